/**
 * @file Inference in 16 bit where the file has float32. The mixed-precision pass of training converts the graph, so that the
 * price is that of the program; weights that are read in 16 bit alone have that type, since no update needs more. The plan
 * records the pass, and a later import of the model reads it there.
 */
import { canBeHeldInFloat32, heldInFloat32 } from '../../ir/autodiff/held-in-float32.js';
import { inMixedPrecision } from '../../ir/autodiff/mixed-precision.js';
import { LOW_TYPES, type LowPrecision, type TrainingPrecision } from '../../ir/autodiff/training-graph.js';
import { fingerprint } from '../../ir/fingerprint.js';
import { findLayers } from '../../ir/passes/find-layers.js';
import { withNarrowWeights } from '../../ir/passes/narrow-weights.js';
import type { Plan } from '../../strategy/plan.js';
import type { ImportedModel } from './import.js';

/** The precision recipe, and whether the devices lack its type, so that values are held in float32 and rounded. */
export interface InferencePrecision {
  readonly precision: LowPrecision;
  readonly isHeldInFloat32: boolean;
}

const PASS = 'precision';

/** The recipe that changes a graph; undefined for fp32, which keeps the types of the file. */
export function loweredPrecision(
  precision: TrainingPrecision | undefined,
  isHeldInFloat32: boolean,
): InferencePrecision | undefined {
  return precision === undefined || precision === 'fp32' ? undefined : { precision, isHeldInFloat32 };
}

/** The model in mixed precision, like the forward pass of training, with weights rounded to 16 bit where no reader needs more. */
export function inPrecision(imported: ImportedModel, lowered: InferencePrecision | undefined): ImportedModel {
  if (!lowered) return imported;
  const { precision, isHeldInFloat32 } = lowered;
  const low = LOW_TYPES[precision];
  const computed = inMixedPrecision(imported.graph, low);
  const isHeld = isHeldInFloat32 && canBeHeldInFloat32(computed, low);
  const rounded = withNarrowWeights(computed, low);
  const graph = findLayers(isHeld ? heldInFloat32(rounded, low) : rounded);
  const notes = isHeld
    ? [
        `ranks of this machine have no ${precision} kernels: tensors rounded to ${precision} are stored and priced in fp32`,
      ]
    : [];
  return {
    ...imported,
    graph,
    fingerprint: fingerprint(graph),
    notes: [...imported.notes, ...notes],
    passes: [...imported.passes, { name: PASS, options: { precision, isHeldInFloat32 } }],
  };
}

/** The recipe that an inference plan was made with; undefined if the graph has the types of the file. */
export function loweredOfPlan({ passes }: Pick<Plan, 'passes'>): InferencePrecision | undefined {
  const { precision, isHeldInFloat32 } = passes.find(({ name }) => name === PASS)?.options ?? {};
  return precision === 'fp16' || precision === 'bf16'
    ? { precision, isHeldInFloat32: isHeldInFloat32 === true }
    : undefined;
}
