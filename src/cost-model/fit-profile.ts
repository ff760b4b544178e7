/**
 * @file From measurements on a machine to the cost model's figures for it, in the form of a cluster description: peak, depth
 * and launch of operators, memory bandwidth, launch, latency and bandwidths of collectives.
 *
 * Every part of a price is a sum of known amounts times unknown figures. So least squares finds the figures, with relative
 * errors and no figure below zero.
 */
import type { ClusterDescription } from './cluster-schema.js';
import { CPU_RANK, profileOf } from './device.js';
import { type CollectiveKind, passesOf } from './levels.js';

/** A measured subject, on every rank at once. All in fp32. */
export type MeasuredSubject =
  /**
   * A segment of so many matmuls, rows × side each, with as many square matrices; `stored`: these are weights that the session
   * is loaded with.
   */
  | {
      readonly kind: 'matmul';
      readonly rows: number;
      readonly side: number;
      readonly operators: number;
      readonly stored?: true;
    }
  /** A segment of so many sums with as many other arrays: each reads and writes three times so many elements. */
  | { readonly kind: 'add'; readonly elements: number; readonly operators: number }
  /** A segment of so many operators on one number each. */
  | { readonly kind: 'chain'; readonly operators: number }
  /** A segment that makes so many arrays of as many, each by an operator. */
  | { readonly kind: 'wide'; readonly tensors: number; readonly elements: number }
  /** `elements` as the cost model counts a collective's bytes: of the whole array, or of one rank's operand. */
  | { readonly kind: 'collective'; readonly collective: CollectiveKind; readonly elements: number };

export type Measurement = MeasuredSubject & { readonly ranks: number; readonly seconds: number };

export interface FittedProfile {
  /** A node of `cpu-rank` devices with the measured figures. */
  readonly cluster: ClusterDescription;
  /** How much faster a rank is that has the machine to itself: cores may share arithmetic units, and share memory. */
  readonly alone: { readonly compute: number; readonly memory: number };
  readonly crowded: CrowdedRanks;
  /** Mean relative error of the fitted forms on the measurements. */
  readonly errors: { readonly matmul: number; readonly memory: number; readonly collectives: number };
}

/** Figures for ranks that outnumber the cores and take turns on them, as measured at so many ranks. */
export interface CrowdedRanks {
  readonly ranks: number;
  /** Measured share of the speed that a rank's share of the cores should give it, in matmuls and where memory counts. */
  readonly speed: number;
  readonly memorySpeed: number;
  /** Seconds that a collective and each of its rounds cost, and bytes per second, with all the waiting for turns. */
  readonly collectiveSeconds: number;
  readonly latency: number;
  readonly busBandwidth: Readonly<Partial<Record<CollectiveKind, number>>>;
}

/** @throws Error where a kind of subject was not measured */
export function fitProfile(measurements: readonly Measurement[]): FittedProfile {
  const chains = of(measurements, 'chain');
  const busy = Math.max(...chains.map(({ ranks }) => ranks));
  const launch = launches(chains);
  const memory = fittedMemory(
    of(measurements, 'add').filter(({ ranks }) => ranks === busy),
    launch.operator,
  );
  const handed = handing(
    of(measurements, 'wide').filter(({ ranks }) => ranks === busy),
    launch,
    memory,
  );
  const all = of(measurements, 'matmul');
  const measuredMatmuls = all.map((product) => ({
    ...product,
    seconds: ownSeconds(product, launch.segment, handed.results),
  }));
  const matmul = matmuls(measuredMatmuls.filter(({ ranks }) => ranks === busy));
  const moved = [...of(measurements, 'add'), ...of(measurements, 'wide')];
  const exchanged = of(measurements, 'collective');
  const collectives = exchanges(exchanged.filter(({ ranks }) => ranks <= busy || busy === 1));
  const usual = CPU_RANK.peakFlops;
  const scale = matmul.rate / (usual.fp32 ?? matmul.rate);
  const size = Math.max(...measurements.map(({ ranks }) => ranks));
  return {
    cluster: {
      version: 1,
      name: 'this machine, measured',
      device: {
        like: CPU_RANK.id,
        memoryBandwidth: memory.rate,
        // 16-bit arithmetic runs through fp32.
        peak: { fp32: matmul.rate, fp16: (usual.fp16 ?? 0) * scale, bf16: (usual.bf16 ?? 0) * scale },
        constants: {
          matmulCeiling: 1,
          vectorCeiling: Math.min(1, profileOf(CPU_RANK).vectorCeiling / scale),
          halfDepth: matmul.halfDepth,
          memory: { ...profileOf(CPU_RANK).memory, cacheBytes: memory.cacheBytes, cacheGain: memory.cacheGain },
          ...(matmul.packing > 0 ? { packingBandwidth: matmul.packing } : {}),
          resultBandwidth: handed.results,
          launchSeconds: launch.operator,
          segmentSeconds: launch.segment,
          tensorSeconds: handed.tensor,
          // A collective ends one segment and begins another.
          collectiveSeconds: collectives.launch + launch.segment,
        },
      },
      levels: [
        { name: 'node', size, latency: Math.max(1e-9, collectives.latency), busBandwidth: collectives.busBandwidth },
      ],
    },
    alone: { compute: aloneIn(all, busy), memory: aloneIn(moved, busy) },
    crowded: crowding({ measuredMatmuls: all, moved, exchanged }, busy, launch.segment, collectives),
    errors: { matmul: matmul.error, memory: memory.error, collectives: collectives.error },
  };
}

const FP32_BYTES = 4;

function of<Kind extends MeasuredSubject['kind']>(
  measurements: readonly Measurement[],
  kind: Kind,
): readonly Extract<Measurement, { kind: Kind }>[] {
  const found = measurements.filter((measurement) => measurement.kind === kind);
  if (found.length === 0) throw new Error(`no ${kind} was measured`);
  return found as Extract<Measurement, { kind: Kind }>[];
}

/** Seconds of one more operator in a segment, and of a segment besides its operators. */
function launches(chains: readonly Extract<Measurement, { kind: 'chain' }>[]) {
  const { figures } = leastSquares(
    chains.map(({ operators }) => [1, operators]),
    chains.map(({ seconds }) => seconds),
  );
  const [segment = 0, operator = 0] = figures;
  return { segment, operator };
}

/**
 * Seconds of each tensor that a segment reads or makes beyond one of each, and bytes per second at which it passes results on:
 * t = segment + tensors · (operator + its reads and writes + result / bandwidth) + 2 (tensors − 1) · tensor.
 */
function handing(
  measured: readonly Extract<Measurement, { kind: 'wide' }>[],
  launch: ReturnType<typeof launches>,
  memory: ReturnType<typeof fittedMemory>,
) {
  const { figures } = leastSquares(
    measured.map(({ tensors, elements }) => [2 * (tensors - 1), tensors * FP32_BYTES * elements]),
    measured.map(({ tensors, elements, seconds }) => {
      const own = launch.operator + memory.seconds(2 * FP32_BYTES * elements);
      return Math.max(seconds / 10, seconds - launch.segment - tensors * own);
    }),
  );
  const [tensor = 0, perByte = 0] = figures;
  return { tensor, results: 1 / (perByte || 2 / memory.rate) };
}

/** Seconds of one matmul of a chain, without the session's call and the passing on of the result. */
function ownSeconds({ rows, side, operators, seconds }: MeasuredMatmul, segment: number, results: number): number {
  return Math.max(seconds / 4, seconds - segment - (FP32_BYTES * rows * side) / results) / operators;
}

type MeasuredMatmul = Extract<Measurement, { kind: 'matmul' }>;

/** t = FLOP / rate · (1 + k0 / k) + bytes of a second operand that is not stored / packing bandwidth. */
function matmuls(measured: readonly MeasuredMatmul[]) {
  const flops = measured.map(({ rows, side }) => 2 * rows * side * side);
  const { figures, error } = leastSquares(
    measured.map(({ side, stored }, index) => {
      const work = flops[index] as number;
      return [work, work / side, stored ? 0 : FP32_BYTES * side * side];
    }),
    measured.map(({ seconds }) => seconds),
  );
  const [perFlop = 0, perElement = 0, perPacked = 0] = figures;
  const fastest = Math.max(...measured.map(({ seconds }, index) => (flops[index] as number) / seconds));
  return {
    rate: perFlop > 0 ? 1 / perFlop : fastest,
    halfDepth: perFlop > 0 ? perElement / perFlop : 0,
    packing: perPacked > 0 ? 1 / perPacked : 0,
    error,
  };
}

/** Mean ratio of the seconds on `busy` ranks to the seconds on `ranks`, over subjects that were measured on both. */
function meanRatio(measured: readonly Measurement[], busy: number, ranks: number): number {
  const subjectOf = ({ ranks: _, seconds: __, ...subject }: Measurement) => JSON.stringify(subject);
  const usual = new Map(measured.filter((one) => one.ranks === busy).map((one) => [subjectOf(one), one.seconds]));
  const ratios = measured.flatMap((one) => {
    const seconds = usual.get(subjectOf(one));
    return one.ranks === ranks && seconds !== undefined ? [seconds / one.seconds] : [];
  });
  return ratios.length === 0 ? 1 : ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
}

function aloneIn(measured: readonly Measurement[], busy: number): number {
  return Math.min(busy, Math.max(1, meanRatio(measured, busy, 1)));
}

/** Caches of 64 KiB to 64 MiB: reads and writes of an operator go through them up to this size. */
const CACHES: readonly number[] = Array.from({ length: 21 }, (_, index) => 2 ** (16 + index / 2));

/**
 * Segments of one sum and of several of the same size; the difference is the time of operators:
 * t = launch + bytes / bandwidth, where bytes that fit the cache are `cacheGain` times as fast.
 */
function fittedMemory(measured: readonly Extract<Measurement, { kind: 'add' }>[], launch: number) {
  const sums = measured.flatMap(({ elements, operators, seconds }) => {
    const one = measured.find((other) => other.operators === 1 && other.elements === elements);
    if (operators === 1 || !one) return [];
    const each = Math.max(one.seconds / 50, (seconds - one.seconds) / (operators - 1));
    return [{ bytes: 3 * FP32_BYTES * elements, own: Math.max(each / 2, each - launch) }];
  });
  if (sums.length === 0) throw new Error('no add was measured');
  const own = sums.map((sum) => sum.own);
  const fits = CACHES.map((cacheBytes) => ({
    cacheBytes,
    ...leastSquares(
      sums.map(({ bytes }) => [Math.max(0, bytes - cacheBytes), Math.min(bytes, cacheBytes)]),
      own,
    ),
  }));
  // A cache is at least as fast as the memory behind it.
  const sound = fits.filter(({ figures: [beyond = 0, inside = 0] }) => inside > 0 && beyond >= inside);
  const plain = leastSquares(
    sums.map(({ bytes }) => [bytes]),
    own,
  );
  const best = sound.reduce<(typeof fits)[number]>((least, fit) => (fit.error < least.error - 1e-9 ? fit : least), {
    cacheBytes: 0,
    ...plain,
  });
  const { cacheBytes, error } = best;
  const [perByte = 0, perCached = perByte] = best.figures;
  const seconds = (bytes: number) => {
    const cached = Math.min(bytes, cacheBytes);
    return (bytes - cached) * perByte + cached * perCached;
  };
  return { rate: 1 / perByte, cacheBytes, cacheGain: perByte / perCached, seconds, error };
}

type MeasuredCollective = Extract<Measurement, { kind: 'collective' }>;

/** t = launch + rounds · latency + bytes on the wire / bandwidth of the kind. */
function exchanges(measured: readonly MeasuredCollective[]) {
  const kinds = [...new Set(measured.map(({ collective }) => collective))];
  const wire = measured.map(({ collective, elements, ranks }) => passesOf(collective, ranks) * elements * FP32_BYTES);
  const { figures, error } = leastSquares(
    measured.map(({ collective, ranks }, index) => {
      const doublings = Math.ceil(Math.log2(ranks));
      const rounds = collective === 'permute' ? 1 : (collective === 'all-reduce' ? 2 : 1) * doublings;
      return [1, rounds, ...kinds.map((kind) => (kind === collective ? (wire[index] as number) : 0))];
    }),
    measured.map(({ seconds }) => seconds),
  );
  const [launch = 0, latency = 0, ...perByte] = figures;
  const busBandwidth = kinds.flatMap((kind, index) => {
    const seconds = perByte[index] ?? 0;
    return seconds > 0 ? [[kind, 1 / seconds] as const] : [];
  });
  return { launch, latency, busBandwidth: Object.fromEntries(busBandwidth) as CrowdedRanks['busBandwidth'], error };
}

/** Kinds that were not measured on crowded ranks lose as much as those that were. */
function crowding(
  {
    measuredMatmuls,
    moved,
    exchanged,
  }: {
    readonly measuredMatmuls: readonly MeasuredMatmul[];
    readonly moved: readonly Measurement[];
    readonly exchanged: readonly MeasuredCollective[];
  },
  busy: number,
  segment: number,
  usual: ReturnType<typeof exchanges>,
): CrowdedRanks {
  const ranks = Math.max(...measuredMatmuls.map((product) => product.ranks));
  const turns = ranks / busy;
  const { launch, latency, busBandwidth } = exchanges(exchanged.filter((one) => one.ranks === ranks));
  const kinds = Object.keys(usual.busBandwidth) as CollectiveKind[];
  const shares = kinds.flatMap((kind) => {
    const [there, here] = [busBandwidth[kind], usual.busBandwidth[kind]];
    return there !== undefined && here !== undefined ? [there / here] : [];
  });
  const share = shares.length === 0 ? 1 / turns : shares.reduce((sum, value) => sum + value, 0) / shares.length;
  return {
    ranks,
    speed: Math.min(1, turns * meanRatio(measuredMatmuls, busy, ranks)),
    memorySpeed: Math.min(1, turns * meanRatio(moved, busy, ranks)),
    collectiveSeconds: launch + turns * segment,
    latency: Math.max(1e-9, latency),
    busBandwidth: Object.fromEntries(
      kinds.map((kind) => [kind, busBandwidth[kind] ?? share * (usual.busBandwidth[kind] as number)]),
    ),
  };
}

/**
 * Figures x ≥ 0 that make Σ (row · x / seconds − 1)² least, and the mean of |row · x / seconds − 1|. A figure that would be
 * negative is 0, the most negative first.
 */
export function leastSquares(
  rows: readonly (readonly number[])[],
  seconds: readonly number[],
): { readonly figures: readonly number[]; readonly error: number } {
  const relative = rows.map((row, index) => row.map((amount) => amount / (seconds[index] as number)));
  const width = rows[0]?.length ?? 0;
  let free = Array.from({ length: width }, (_, column) => column);
  for (;;) {
    const solved = solveNormal(relative.map((row) => free.map((column) => row[column] as number)));
    const worst = solved.reduce((least, value, index) => (value < (solved[least] as number) ? index : least), 0);
    if (free.length === 0 || (solved[worst] as number) >= 0) {
      const figures = new Array<number>(width).fill(0);
      for (const [index, column] of free.entries()) figures[column] = solved[index] as number;
      const errors = relative.map((row) =>
        Math.abs(row.reduce((sum, amount, column) => sum + amount * (figures[column] as number), 0) - 1),
      );
      return { figures, error: errors.reduce((sum, value) => sum + value, 0) / errors.length };
    }
    free = free.filter((_, index) => index !== worst);
  }
}

/** Least squares of rows · x = 1 by the normal equations, columns scaled to length 1; a column of zeros gets 0. */
function solveNormal(rows: readonly (readonly number[])[]): readonly number[] {
  const width = rows[0]?.length ?? 0;
  const column = (index: number) => rows.map((row) => row[index] as number);
  const lengths = Array.from({ length: width }, (_, index) => Math.hypot(...column(index)) || 1);
  const matrix = Array.from({ length: width }, (_, a) => [
    ...Array.from({ length: width }, (_, b) =>
      rows.reduce(
        (sum, row) => sum + ((row[a] as number) * (row[b] as number)) / (lengths[a] as number) / (lengths[b] as number),
        0,
      ),
    ),
    rows.reduce((sum, row) => sum + (row[a] as number) / (lengths[a] as number), 0),
  ]);
  for (let pivot = 0; pivot < width; pivot++) {
    const from = matrix.findIndex(
      (row, index) =>
        index >= pivot &&
        Math.abs(row[pivot] as number) ===
          Math.max(...matrix.slice(pivot).map((other) => Math.abs(other[pivot] as number))),
    );
    [matrix[pivot], matrix[from]] = [matrix[from] as number[], matrix[pivot] as number[]];
    const head = matrix[pivot] as number[];
    if (Math.abs(head[pivot] as number) < 1e-12) continue;
    for (const [index, row] of matrix.entries()) {
      if (index === pivot) continue;
      const factor = (row[pivot] as number) / (head[pivot] as number);
      for (let at = pivot; at <= width; at++) row[at] = (row[at] as number) - factor * (head[at] as number);
    }
  }
  return matrix.map((row, index) => {
    const head = row[index] as number;
    return Math.abs(head) < 1e-12 ? 0 : (row[width] as number) / head / (lengths[index] as number);
  });
}
