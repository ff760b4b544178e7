/**
 * @file From measurements on a machine to the cost model's figures for it, in the form of a cluster description: peak, depth
 * and launch of operators, memory bandwidth, launch, latency and bandwidths of collectives.
 *
 * Every part of a price is a sum of known amounts times unknown figures, so that the figures are found by least squares, the
 * errors being relative and no figure below zero.
 */
import type { ClusterDescription } from './cluster-schema.js';
import { CPU_RANK, profileOf } from './device.js';
import { type CollectiveKind, passesOf } from './levels.js';

/** What is measured, on every rank at once. All in fp32. */
export type Subject =
  /** rows × depth times depth × columns. */
  | { readonly kind: 'matmul'; readonly rows: number; readonly columns: number; readonly depth: number }
  /** The sum of two arrays: three times so many elements are read and written. */
  | { readonly kind: 'add'; readonly elements: number }
  /** A segment of so many operators on one number each. */
  | { readonly kind: 'chain'; readonly operators: number }
  /** `elements` as the cost model counts a collective's bytes: of the whole array, or of one rank's block. */
  | { readonly kind: 'collective'; readonly collective: CollectiveKind; readonly elements: number };

export type Measurement = Subject & { readonly ranks: number; readonly seconds: number };

export interface FittedProfile {
  /** A node of `cpu-rank` devices with the measured figures. */
  readonly cluster: ClusterDescription;
  /** How much faster a rank is that has the machine to itself: cores may share what they compute with. */
  readonly alone: number;
  /** Mean relative error of the fitted forms on what was measured. */
  readonly errors: { readonly matmul: number; readonly memory: number; readonly collectives: number };
}

/** @throws Error where a kind of subject was not measured */
export function fitProfile(measurements: readonly Measurement[]): FittedProfile {
  const launch = launches(of(measurements, 'chain'));
  const products = of(measurements, 'matmul');
  const busy = Math.max(...products.map(({ ranks }) => ranks));
  const matmul = matmuls(products.filter(({ ranks }) => ranks === busy));
  const memory = copies(of(measurements, 'add'));
  const collectives = exchanges(of(measurements, 'collective'), busy);
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
          launchSeconds: launch.operator,
          segmentSeconds: launch.segment,
          // A collective ends one segment and begins another.
          collectiveSeconds: collectives.launch + launch.segment,
        },
      },
      levels: [
        { name: 'node', size, latency: Math.max(1e-9, collectives.latency), busBandwidth: collectives.busBandwidth },
      ],
    },
    alone: speedAlone(products, busy),
    errors: { matmul: matmul.error, memory: memory.error, collectives: collectives.error },
  };
}

const FP32_BYTES = 4;

function of<Kind extends Subject['kind']>(
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

/** t = launch + FLOP / rate · (1 + k0 / k). */
function matmuls(measured: readonly Extract<Measurement, { kind: 'matmul' }>[]) {
  const flops = measured.map(({ rows, columns, depth }) => 2 * rows * columns * depth);
  const { figures, error } = leastSquares(
    measured.map(({ depth }, index) => [1, flops[index] as number, (flops[index] as number) / depth]),
    measured.map(({ seconds }) => seconds),
  );
  const [, perFlop = 0, perElement = 0] = figures;
  const fastest = Math.max(...measured.map(({ seconds }, index) => (flops[index] as number) / seconds));
  return { rate: perFlop > 0 ? 1 / perFlop : fastest, halfDepth: perFlop > 0 ? perElement / perFlop : 0, error };
}

/** Of products that were measured on one rank and on `busy` at once, the mean ratio of times, from 1 to `busy`. */
function speedAlone(measured: readonly Extract<Measurement, { kind: 'matmul' }>[], busy: number): number {
  const ratios = measured.flatMap((one) => {
    const all = measured.find(
      ({ ranks, rows, columns, depth }) =>
        ranks === busy && rows === one.rows && columns === one.columns && depth === one.depth,
    );
    return one.ranks === 1 && busy > 1 && all ? [all.seconds / one.seconds] : [];
  });
  const mean = ratios.reduce((sum, ratio) => sum + ratio, 0) / ratios.length;
  return ratios.length === 0 ? 1 : Math.min(busy, Math.max(1, mean));
}

/** t = launch + bytes / bandwidth. */
function copies(measured: readonly Extract<Measurement, { kind: 'add' }>[]) {
  const bytes = measured.map(({ elements }) => 3 * FP32_BYTES * elements);
  const { figures, error } = leastSquares(
    bytes.map((amount) => [1, amount]),
    measured.map(({ seconds }) => seconds),
  );
  const [, perByte = 0] = figures;
  const fastest = Math.max(...measured.map(({ seconds }, index) => (bytes[index] as number) / seconds));
  return { rate: perByte > 0 ? 1 / perByte : fastest, error };
}

/** t = launch + rounds · latency + bytes on the wire / bandwidth of the kind; as often as there are ranks for a core. */
function exchanges(measured: readonly Extract<Measurement, { kind: 'collective' }>[], cores: number) {
  const kinds = [...new Set(measured.map(({ collective }) => collective))];
  const wire = measured.map(({ collective, elements, ranks }) => passesOf(collective, ranks) * elements * FP32_BYTES);
  const { figures, error } = leastSquares(
    measured.map(({ collective, ranks }, index) => {
      const doublings = Math.ceil(Math.log2(ranks));
      const rounds = collective === 'permute' ? 1 : (collective === 'all-reduce' ? 2 : 1) * doublings;
      const row = [1, rounds, ...kinds.map((kind) => (kind === collective ? (wire[index] as number) : 0))];
      return row.map((amount) => amount * Math.max(1, ranks / cores));
    }),
    measured.map(({ seconds }) => seconds),
  );
  const [launch = 0, latency = 0, ...perByte] = figures;
  const busBandwidth = kinds.flatMap((kind, index) => {
    const seconds = perByte[index] ?? 0;
    return seconds > 0 ? [[kind, 1 / seconds] as const] : [];
  });
  return { launch, latency, busBandwidth: Object.fromEntries(busBandwidth), error };
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
