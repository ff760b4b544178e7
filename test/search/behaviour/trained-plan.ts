/**
 * @file The plan of a generated model's training step, and the factor over which each operator is sharded.
 */
import { generatedFile } from '../../../src/api/models/generated.js';
import { importModel } from '../../../src/api/models/import.js';
import { withTraining } from '../../../src/api/models/training.js';
import { plan } from '../../../src/api/plan.js';
import type { PlanResult } from '../../../src/search/plan.js';

export interface Asked {
  readonly cluster: string;
  readonly batch: number;
  readonly dp: number;
  readonly tp: number;
  readonly axes?: 'roles' | 'free';
  /** Bytes of each device. */
  readonly memory?: number;
}

/** @param model `FAMILY:key=value,…` */
export async function trainedPlan(
  model: string,
  { cluster, batch, dp, tp, axes = 'free', memory }: Asked,
): Promise<PlanResult> {
  const imported = await importModel(await generatedFile(model, batch));
  const trained = withTraining(imported, {
    loss: { kind: 'cross_entropy' },
    optimizer: { kind: 'adamw', learningRate: 0.001 },
  });
  const { found } = await plan(trained, {
    cluster,
    degrees: { dp, tp },
    axes,
    ...(memory === undefined ? {} : { memory }),
  });
  return found;
}

/** The factors that an operator is sharded over, and none where it is whole on every rank. */
export function cutAlong({ assignment }: PlanResult, operator: string): readonly string[] {
  const strategy = assignment.strategies.get(operator);
  if (!strategy) throw new Error(`the plan has no operator ${operator}`);
  return Object.keys(strategy.axes).filter((factor) => (strategy.axes[factor] ?? []).length > 0);
}

/** Operators of the forward pass whose names match. */
export function operatorsLike({ assignment }: PlanResult, pattern: RegExp): readonly string[] {
  return [...assignment.strategies.keys()].filter((name) => pattern.test(name) && !/gradient|update/.test(name));
}
