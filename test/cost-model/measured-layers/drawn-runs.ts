/**
 * @file Runs whose layers take times by a hidden law, so that a fit can be compared with the law.
 */
import type { Cluster } from '../../../src/cost-model/cluster.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { type LayerShape, layerShape } from '../../../src/cost-model/measured-layers/layer-shape.js';
import type { MeasuredRun } from '../../../src/cost-model/measured-layers/linear-step.js';
import type { StepConfiguration } from '../../../src/cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../../src/cost-model/step/constants.js';
import { priceStep } from '../../../src/cost-model/step/step-price.js';
import { type ModelWork, NO_WORK, type PartWork } from '../../../src/cost-model/step/work.js';

export const CLUSTER: Cluster = parseCluster('1x8:a100-sxm-80', undefined);

/** Two matmuls of a transformer's feed-forward on one rank, and the collectives of its ranks. */
export function layer(width: number, tokens: number, tp: number): PartWork {
  const product = { kind: 'matmul' as const, batch: 1, experts: false, rows: tokens };
  const up = { ...product, columns: (4 * width) / tp, depth: width, tokens: 'rows' as const };
  const down = { ...product, columns: width, depth: (4 * width) / tp, tokens: 'rows' as const };
  const exchange = {
    ...{ kind: 'exchange' as const, collective: 'all-reduce' as const, elements: tokens * width },
    ...{ activation: true, loss: false },
  };
  const gradients = [up, down].map((one) => ({
    ...one,
    ...{ rows: one.depth, depth: one.rows, tokens: 'depth' as const },
  }));
  return {
    ...NO_WORK,
    forward: [up, down, exchange],
    backward: [up, down, ...gradients, exchange],
    parameters: (8 * width * width) / tp,
    saved: tokens * width,
  };
}

export function model(layers: ModelWork['layers']): ModelWork {
  const outside = { ...NO_WORK, forward: layer(512, 1024, 1).forward, backward: layer(512, 1024, 1).backward };
  return { first: NO_WORK, layers, last: outside, chosen: 1, boundary: 2 ** 20, tied: 0 };
}

export function configuration(tp: number, dp: number, also: Partial<StepConfiguration> = {}): StepConfiguration {
  return {
    ...{ degrees: { tp, dp, pp: 1, sp: 1, ep: 1 }, microBatch: 1, globalBatch: 8 * dp, virtualStages: 1 },
    ...{ tpSequence: false, zero: 0, recompute: 'none', attention: 'fused', precision: 'bf16' },
    ...{ software: 'megatron-core', fusedNorms: true, scatteredSends: true, loss: 'parallel', gradientBytes: 2 },
    overlap: { tensor: false, data: true, pipeline: true, experts: false },
    ...also,
  };
}

/** A run that takes what it would if a layer's seconds were those that are predicted times a law's. */
export function runUnder(law: (shape: LayerShape) => number, work: ModelWork, own: StepConfiguration): MeasuredRun {
  const layerFactors = { factorOf: (part: PartWork) => law(layerShape(part, own)) };
  const { stepSeconds } = priceStep(work, own, { ...CLUSTER, layerFactors }, STEP_CONSTANTS);
  return { work, configuration: own, cluster: CLUSTER, seconds: stepSeconds };
}

const PARTS = new Map<string, PartWork>();

/** The same record for the same layer, as models of one width have it. */
function known(width: number, tokens: number, tp: number): PartWork {
  const key = `${width} ${tokens} ${tp}`;
  const found = PARTS.get(key) ?? layer(width, tokens, tp);
  PARTS.set(key, found);
  return found;
}

/** Runs of 4, 12 and 24 layers in each of 24 shapes. */
export function manyRuns(law: (shape: LayerShape) => number): readonly MeasuredRun[] {
  return [1024, 2048, 4096].flatMap((width) =>
    [1024, 4096].flatMap((tokens) =>
      [1, 2, 4, 8].flatMap((tp) =>
        [4, 12, 24].map((count) =>
          runUnder(law, model([{ count, part: known(width, tokens, tp) }]), configuration(tp, 8 / tp)),
        ),
      ),
    ),
  );
}
