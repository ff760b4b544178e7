/**
 * @file Uneven stages: the cut of a pipeline's layers, and which of them recompute, of least time under memory, for a
 * configuration whose degrees, micro-batches and schedule are decided. Embedding and head are layers of their own, so that their
 * stages get fewer others.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { DEVICE_OVERHEAD } from '../../cost-model/hardware.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { type LayerPrice, type PartPrice, priceParts } from '../../cost-model/step/part-price.js';
import { stageClusters } from '../../cost-model/step/stages.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { cutStages, type FoundCut } from '../stages/cut-stages.js';
import type { LayerPoint, StageProblem } from '../stages/problem.js';
import { evenOut } from './even-out.js';

export interface CutRequest {
  readonly limitBytes: number | null;
  /** Table entries that may be looked at. */
  readonly work: number;
  /** Whether layers may keep their activations where the configuration recomputes. */
  readonly isMixed: boolean;
}

export interface LayerCut {
  /** The configuration with `stageLayers`, and `recomputedLayers` where some layers recompute; the most even cut first. */
  readonly configurations: readonly StepConfiguration[];
}

/**
 * The best cut; null where none fits, or the search over cuts has no answer (as for naive schedules of one stage).
 */
export function cutLayers(
  model: ModelWork,
  configuration: StepConfiguration,
  cluster: Cluster,
  { limitBytes, work, isMixed }: CutRequest,
): LayerCut | null {
  const { degrees, virtualStages } = configuration;
  const { pp } = degrees;
  const layers = model.layers.reduce((sum, { count }) => sum + count, 0);
  // Chunks of one layer leave nothing to cut.
  if (pp === 1 || (!cluster.kinds && pp * virtualStages === layers)) return null;
  const runs = runsOf(stageClusters(cluster, configuration));
  const problem = problemOf(model, configuration, runs, { limitBytes, isMixed });
  const found = cutStages(problem, { work, simulate: 0 });
  if (found.kind !== 'cut') return null;
  const counts = layersOf(found, problem.layers.length, pp * virtualStages);
  const cut = { ...configuration, stageLayers: counts.stageLayers };
  if (counts.recomputed.some((count) => count > 0))
    return { configurations: [{ ...cut, recomputedLayers: counts.recomputed }] };
  const kept: StepConfiguration = { ...cut, recompute: isMixed && !configuration.inference ? 'none' : cut.recompute };
  const even = virtualStages === 1 && runs.length === 1 ? evenLayers(problem, found, pp) : null;
  return { configurations: [...(even ? [{ ...kept, stageLayers: even }] : []), kept] };
}

/** The cut of the same pace whose stages differ least. */
function evenLayers({ layers, tables }: StageProblem, { best }: FoundCut, pp: number): readonly number[] | null {
  const seconds = layers.map((index) => {
    const point = tables[index]?.[0]?.[0];
    return (point?.forwardSeconds ?? 0) + (point?.backwardSeconds ?? 0);
  });
  const pace = Math.max(
    ...best.stages.flatMap(({ chunks }) =>
      chunks.map(({ forwardSeconds, backwardSeconds }) => forwardSeconds + backwardSeconds),
    ),
  );
  const counts = evenOut(seconds, pp, pace);
  return counts?.map((count, stage) => count - (stage === 0 ? 1 : 0) - (stage === pp - 1 ? 1 : 0)) ?? null;
}

/** Stages in a row on devices that are alike. */
interface StageRun {
  readonly cluster: Cluster;
  readonly stages: number;
}

function runsOf(clusters: readonly Cluster[]): readonly StageRun[] {
  const runs: StageRun[] = [];
  for (const cluster of clusters) {
    const last = runs.at(-1);
    if (last?.cluster === cluster) runs[runs.length - 1] = { cluster, stages: last.stages + 1 };
    else runs.push({ cluster, stages: 1 });
  }
  return runs;
}

function problemOf(
  model: ModelWork,
  configuration: StepConfiguration,
  runs: readonly StageRun[],
  { limitBytes, isMixed }: Pick<CutRequest, 'limitBytes' | 'isMixed'>,
): StageProblem {
  const { degrees, schedule, virtualStages, globalBatch, microBatch, inference } = configuration;
  const { dp, sp, tp } = degrees;
  const devices = dp * sp * tp;
  const prices = runs.map(({ cluster }) => priceParts(model, configuration, cluster, STEP_CONSTANTS));
  const classes = model.order ?? model.layers.flatMap(({ count }, index) => Array.from({ length: count }, () => index));
  const tables = [
    prices.map(({ first }) => [pointOf(first, 'first')]),
    ...model.layers.map((_, index) => prices.map(({ layers }) => pointsOf(layers[index] as LayerPrice, isMixed))),
    prices.map(({ last }) => [pointOf(last, 'last')]),
  ];
  const sequence = [0, ...classes.map((index) => index + 1), tables.length - 1];
  const sent = Math.max(...prices.map(({ send }) => send.bytes));
  const seconds = Math.max(...prices.map(({ send }) => send.seconds));
  return {
    layers: sequence,
    tables,
    subMeshes: runs.map((_, group) => ({
      name: `dp ${dp} · sp ${sp} · tp ${tp}`,
      devices,
      group,
      memoryBytes: memoryFor(limitBytes),
    })),
    groups: runs.map(({ stages }, group) => ({ name: `run ${group}`, devices: devices * stages })),
    tensors: sequence.slice(1).map((_, index) => ({ producer: index, lastReader: index + 1, bytes: sent })),
    links: [(bytes) => (bytes / Math.max(1, sent)) * seconds],
    transfers: prices.some(({ send }) => send.blocks) ? 'exposed' : 'overlapped',
    schedule: {
      kind: virtualStages > 1 ? 'interleaved-1f1b' : (schedule ?? '1f1b'),
      microBatches: Math.max(1, Math.round(globalBatch / (microBatch * dp))),
      ...(virtualStages > 1 ? { virtualStages } : {}),
      training: !inference,
    },
    pins: {
      stages: runs.reduce((sum, { stages }) => sum + stages, 0),
      subMeshes: runs.flatMap(({ stages }, run) => Array.from({ length: stages }, () => run)),
    },
  };
}

/** What tensors may take of a device: its memory without context, communication library and fragmentation. */
function memoryFor(limitBytes: number | null): number {
  if (limitBytes === null) return Number.MAX_SAFE_INTEGER;
  const { contextBytes, communicationBytes, fragmentation } = DEVICE_OVERHEAD;
  return Math.max(0, (limitBytes - contextBytes - communicationBytes) / (1 + fragmentation));
}

/** The ways to run a layer: keeping what its backward reads, or recomputing; the latter alone where that is given. */
function pointsOf({ kept, recomputed }: LayerPrice, isMixed: boolean): readonly LayerPoint[] {
  return kept === recomputed || !isMixed
    ? [pointOf(recomputed, KEPT)]
    : [pointOf(kept, KEPT), pointOf(recomputed, RECOMPUTED)];
}

function pointOf(part: PartPrice, name: string): LayerPoint {
  return {
    name,
    forwardSeconds: part.forwardSeconds,
    backwardSeconds: part.backwardSeconds,
    // Of two products in backward one is a weight's gradient.
    weightGradientSeconds: part.backwardSeconds / 2,
    residentBytes: part.bytes.parameters + part.bytes.gradients + part.bytes.optimizer,
    savedBytes: part.bytes.saved,
    // Of what goes to the host two layers' worth is on the device.
    transientBytes: part.bytes.transient + part.bytes.gathered + 2 * part.bytes.hostSaved,
  };
}

const KEPT = 'kept';
const RECOMPUTED = 'recomputed';

/** Layers of each chunk, in order, and how many of each stage there are and recompute; embedding and head left out. */
function layersOf(
  { best }: FoundCut,
  length: number,
  chunks: number,
): {
  readonly stageLayers: readonly number[];
  readonly all: readonly number[];
  readonly recomputed: readonly number[];
} {
  const stageLayers = Array.from({ length: chunks }, () => 0);
  const { stages } = best;
  const isLayer = (index: number) => index > 0 && index < length - 1;
  const own = stages.map(({ chunks: parts }, stage) =>
    parts.map(({ first, end, points }, chunk) => {
      const inside = points.filter((_, offset) => isLayer(first + offset));
      stageLayers[chunk * stages.length + stage] = [...Array(end - first).keys()].filter((at) =>
        isLayer(first + at),
      ).length;
      return { all: inside.length, recomputed: inside.filter((which) => which === 1).length };
    }),
  );
  const sum = (of: (part: { all: number; recomputed: number }) => number) =>
    own.map((parts) => parts.reduce((total, part) => total + of(part), 0));
  return { stageLayers, all: sum(({ all }) => all), recomputed: sum(({ recomputed }) => recomputed) };
}
