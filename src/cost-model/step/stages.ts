/**
 * @file Which layers lie on which stage of a pipeline, and which devices a stage has.
 */
import type { Cluster } from '../cluster.js';
import { onNodes } from '../node-kinds.js';
import type { StepConfiguration } from './configuration.js';
import type { ModelWork } from './work.js';

/** What a stage holds: layers by class, those that keep their activations and those that recompute, and the model's ends. */
export interface StageLayers {
  readonly stage: number;
  readonly kept: readonly number[];
  readonly recomputed: readonly number[];
  /** All of them. */
  readonly layers: number;
  readonly first: boolean;
  readonly last: boolean;
}

/**
 * The layers of each stage. Cut by `stageLayers`, a stage has the classes that lie there in the model's order; cut evenly
 * (one layer more on the first chunks where it does not divide), each has its share of every class, as one who cuts by hand
 * would balance them. Of a stage's layers the first `recomputedLayers` recompute, all where that is left out.
 * @throws Error where `stageLayers` are not those of the model
 */
export function stageLayers(model: ModelWork, configuration: StepConfiguration): readonly StageLayers[] {
  const { degrees, recomputedLayers } = configuration;
  const counts = classCounts(model, configuration);
  return counts.map((byClass, stage) => {
    const layers = byClass.reduce((sum, count) => sum + count, 0);
    const share = recomputedLayers ? Math.min(1, (recomputedLayers[stage] ?? 0) / Math.max(1, layers)) : 1;
    return {
      stage,
      kept: byClass.map((count) => count * (1 - share)),
      recomputed: byClass.map((count) => count * share),
      layers,
      first: stage === 0,
      last: stage === degrees.pp - 1,
    };
  });
}

/** Layers of each stage by class. */
function classCounts({ layers, order }: ModelWork, configuration: StepConfiguration): readonly (readonly number[])[] {
  const { degrees, virtualStages, stageLayers: cut } = configuration;
  const { pp } = degrees;
  const total = layers.reduce((sum, { count }) => sum + count, 0);
  if (!cut) {
    const chunks = pp * virtualStages;
    return Array.from({ length: pp }, (_, stage) => {
      let own = 0;
      for (let chunk = stage; chunk < chunks; chunk += pp)
        own += Math.floor(total / chunks) + (chunk < total % chunks ? 1 : 0);
      return layers.map(({ count }) => (count * own) / total);
    });
  }
  if ((cut.length !== pp && cut.length !== pp * virtualStages) || cut.reduce((sum, own) => sum + own, 0) !== total)
    throw new Error(`stages of ${cut.join(', ')} layers are not ${pp} stages of a model of ${total} layers`);
  const classes = order ?? layers.flatMap(({ count }, index) => Array.from({ length: count }, () => index));
  const counts = Array.from({ length: pp }, () => layers.map(() => 0));
  let next = 0;
  for (const [chunk, own] of cut.entries()) {
    const stage = counts[chunk % pp] as number[];
    for (const index of classes.slice(next, next + own)) stage[index] = (stage[index] as number) + 1;
    next += own;
  }
  return counts;
}

/**
 * The devices of each stage: those of the nodes that it lies on, stages following one another over the nodes. Stages on
 * nodes of the same kinds have the same record, so that parts can be priced once for all of them.
 */
export function stageClusters(cluster: Cluster, { pp, tp, sp, dp }: StepConfiguration['degrees']): readonly Cluster[] {
  const { kinds, perNode } = cluster;
  if (!kinds) return Array.from({ length: pp }, () => cluster);
  const kindOf = kinds.flatMap(({ nodes }, kind) => Array.from({ length: nodes }, () => kind));
  const devices = tp * sp * dp;
  const known = new Map<string, Cluster>();
  return Array.from({ length: pp }, (_, stage) => {
    const from = Math.floor((stage * devices) / perNode);
    const to = Math.ceil(((stage + 1) * devices) / perNode);
    const key = [...new Set(kindOf.slice(from, to))].join(' ');
    const own = known.get(key) ?? onNodes(cluster, from, to - from);
    known.set(key, own);
    return own;
  });
}
