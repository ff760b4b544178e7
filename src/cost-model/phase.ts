/**
 * @file Time of a phase beyond its kernels and collectives, and of a step beyond its phases: the host's launches, the overlap of
 * communication with compute, and framework overhead. One price for lowered plans and for training steps.
 */
import { STEP_CONSTANTS, type StepConstants } from './step/constants.js';

/**
 * Seconds of a phase whose device is busy so long and whose host needs so long: the longer of them where they differ much, and
 * more where they are alike, since each waits for the other at times (short kernels for the host, long ones for the device).
 */
export function together(host: number, busy: number, power: number = STEP_CONSTANTS.hostPower): number {
  const longer = Math.max(host, busy);
  return longer === 0 ? 0 : longer * (1 + (Math.min(host, busy) / longer) ** power) ** (1 / power);
}

/** Exposed seconds of gradients or parameters in transfer, which nothing waits for at once, under so long a pass. */
export function exposedSeconds(seconds: number, under: number, constants: StepConstants = STEP_CONSTANTS): number {
  return Math.max(seconds * LEAST_EXPOSED, seconds - under * constants.hiddenData);
}

/**
 * Passes of micro-batches through a stage's layers beside which its gradients are reduced, from the end of the first chunk that
 * has them all; or its parameters gathered, until the last chunk reads them. More than one with interleaved chunks: p
 * micro-batches pass one chunk before the next.
 */
export function passesBeside(chunks: number, stages: number, microBatches: number): number {
  return (1 + (chunks - 1) * Math.min(stages, microBatches)) / chunks;
}

/** The first message has nothing to run beside, or the last. */
const LEAST_EXPOSED = 0.05;

/** Seconds of framework overhead in a step: data, scalars read back, logging; and waiting for the slowest of many nodes. */
export function outsideSeconds(
  inside: number,
  step: { readonly trains: boolean; readonly nodes: number },
  constants: StepConstants = STEP_CONSTANTS,
): number {
  const outside = step.trains ? constants.stepSeconds : 0;
  return outside + (inside + outside) * constants.jitter * Math.log2(Math.max(1, step.nodes));
}
