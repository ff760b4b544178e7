/**
 * @file Seconds and bytes of one micro-batch in one direction, through one part of a model or several.
 */

export interface PhaseTime {
  readonly matmul: number;
  readonly attention: number;
  readonly memory: number;
  /** Seconds that the host's launches add beyond the device's time. */
  readonly launch: number;
  /** Exposed communication by axis. */
  readonly tp: number;
  readonly sp: number;
  readonly ep: number;
  /** Transfer of stored activations to the host's memory or back: seconds that it adds to compute, and hidden seconds. */
  readonly host: number;
  readonly hiddenHost: number;
  /** Communication over tp that compute hides. */
  readonly hiddenTp: number;
  /** Seconds of `matmul` for gradients of weights, which nothing after them waits for. */
  readonly weightGradient: number;
  /** Bytes that one rank sends. */
  readonly tpBytes: number;
  readonly spBytes: number;
  readonly epBytes: number;
}

export const NOTHING: PhaseTime = {
  matmul: 0,
  attention: 0,
  memory: 0,
  launch: 0,
  tp: 0,
  sp: 0,
  ep: 0,
  host: 0,
  hiddenHost: 0,
  hiddenTp: 0,
  weightGradient: 0,
  tpBytes: 0,
  spBytes: 0,
  epBytes: 0,
};

/** a + factor · b; written out, since searches do it by the million. */
export function plus(a: PhaseTime, b: PhaseTime, factor = 1): PhaseTime {
  return {
    matmul: a.matmul + factor * b.matmul,
    attention: a.attention + factor * b.attention,
    memory: a.memory + factor * b.memory,
    launch: a.launch + factor * b.launch,
    tp: a.tp + factor * b.tp,
    sp: a.sp + factor * b.sp,
    ep: a.ep + factor * b.ep,
    host: a.host + factor * b.host,
    hiddenHost: a.hiddenHost + factor * b.hiddenHost,
    hiddenTp: a.hiddenTp + factor * b.hiddenTp,
    weightGradient: a.weightGradient + factor * b.weightGradient,
    tpBytes: a.tpBytes + factor * b.tpBytes,
    spBytes: a.spBytes + factor * b.spBytes,
    epBytes: a.epBytes + factor * b.epBytes,
  };
}

/** A time `factor` times as long, with the same bytes. */
export function longer(time: PhaseTime, factor: number): PhaseTime {
  const { tpBytes, spBytes, epBytes } = time;
  return { ...plus(NOTHING, time, factor), tpBytes, spBytes, epBytes };
}

/** Seconds that pass, without hidden time and time that another field includes. */
export function elapsedSeconds({ matmul, attention, memory, launch, tp, sp, ep, host }: PhaseTime): number {
  return matmul + attention + memory + launch + tp + sp + ep + host;
}
