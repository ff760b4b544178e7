/**
 * @file Part of cross entropy: from the labels' log-probabilities to the loss. Masks, the minus and the reduction may come
 * in any order that gives the same loss, with views and casts between them.
 *
 * `reduction` and `ignore_index` are stated only if they describe the loss completely: a mask that is not `labels ≠ number`, or
 * a sum that is divided by a count of something else, has no name in ONNX.
 */
import { type Attributes, elementCount, type Node } from '../graph.js';
import {
  type GraphIndex,
  isFloatCast,
  isOp,
  makerOf,
  operandOf,
  otherOperand,
  resultOf,
  scalarOf,
  shapeOf,
  soleReader,
  typeIn,
} from './matching.js';
import type { PickedScores } from './picked-labels.js';

export interface Loss {
  readonly tensor: string;
  readonly nodes: readonly Node[];
  /** ONNX's attributes for the reduction, given the final nodes of the region. */
  readonly attributes: (nodes: ReadonlySet<Node>) => Attributes;
}

/** A truth value, and whether a sample counts where it is true or where it is false. */
interface LossMask {
  readonly truth: string;
  readonly counts: boolean;
}

interface LossProgress {
  readonly sign: 1 | -1;
  readonly masks: readonly LossMask[];
  /** `none` until something is reduced; null where ONNX has no name for it. */
  readonly reduction: string | null;
}

/** Maximum number of views and casts between two steps. */
const MAX_PASSED = 3;

/** From the labels' log-probabilities to the loss; null where they are never negated. */
export function lossAfter(index: GraphIndex, picked: PickedScores): Loss | null {
  let progress: LossProgress = { sign: picked.sign, masks: [], reduction: picked.reduction ?? 'none' };
  let taken: { readonly tensor: string; readonly nodes: readonly Node[] } = { tensor: picked.tensor, nodes: [] };
  let tensor = picked.tensor;
  let pending: readonly Node[] = [];
  for (let reader = soleReader(index, tensor); reader; reader = soleReader(index, tensor)) {
    const next = advanced(index, reader, tensor, progress);
    const passes = isOp(reader, 'Squeeze', 'Reshape', 'Unsqueeze') || isFloatCast(index, reader);
    if (!next && (!passes || pending.length === MAX_PASSED)) break;
    tensor = resultOf(reader);
    pending = [...pending, reader];
    // A view that makes a scalar of a reduced loss is part of the loss.
    const ends = passes && progress.reduction !== 'none' && shapeOf(index, tensor).length === 0;
    if (!next && !ends) continue;
    progress = next ?? progress;
    taken = { tensor, nodes: [...taken.nodes, ...pending] };
    pending = [];
  }
  if (progress.sign < 0) return null;
  const { reduction, masks } = progress;
  return { ...taken, attributes: (nodes) => attributesOf(index, nodes, reduction, masks) };
}

/** The progress after one more step of the loss; null if `reader` is not a step. */
function advanced(index: GraphIndex, reader: Node, tensor: string, progress: LossProgress): LossProgress | null {
  const other = otherOperand(reader, tensor);
  const negates = isOp(reader, 'Neg') || (isOp(reader, 'Mul') && scalarOf(index, other) === -1);
  if (negates) return progress.sign < 0 ? { ...progress, sign: 1 } : null;
  if (progress.reduction !== 'none') return finished(index, reader, tensor, progress);
  const mask = maskBy(index, reader, tensor);
  if (mask) return { ...progress, masks: [...progress.masks, mask] };
  if (!isOp(reader, 'ReduceMean', 'ReduceSum')) return null;
  const whole = elementCount(shapeOf(index, resultOf(reader))) === 1;
  const named = isOp(reader, 'ReduceSum') ? 'sum' : progress.masks.length === 0 ? 'mean' : null;
  return { ...progress, reduction: whole ? named : null };
}

/** The mask that a step puts on losses that are not reduced yet: a factor, or a choice between them and 0. */
function maskBy(index: GraphIndex, reader: Node, tensor: string): LossMask | null {
  if (shapeOf(index, resultOf(reader)).join() !== shapeOf(index, tensor).join()) return null;
  if (isOp(reader, 'Where')) {
    const [condition = '', yes = '', no = ''] = reader.inputs.map((input) => input ?? '');
    const kept = yes === tensor && scalarOf(index, no) === 0;
    if (!kept && !(no === tensor && scalarOf(index, yes) === 0)) return null;
    const { truth, counts } = truthOf(index, condition);
    return { truth, counts: counts === kept };
  }
  const factor = isOp(reader, 'Mul') ? otherOperand(reader, tensor) : null;
  return factor === null || factor === tensor || scalarOf(index, factor) !== null ? null : truthOf(index, factor);
}

/** After a reduction: another one, or the division of a sum by the number of samples that count. */
function finished(index: GraphIndex, reader: Node, tensor: string, progress: LossProgress): LossProgress | null {
  if (progress.reduction === null) return isOp(reader, 'ReduceMean', 'ReduceSum') ? progress : null;
  if (!isOp(reader, 'Div') || progress.reduction !== 'sum' || operandOf(reader) !== tensor) return null;
  const counted = countedBy(index, operandOf(reader, 1));
  if (!counted) return null;
  const [mask] = progress.masks;
  const same = mask?.truth === counted.truth && mask.counts === counted.counts;
  return { ...progress, reduction: same ? 'mean' : null };
}

/** The mask whose true values a number counts: a sum of cast booleans, perhaps clamped to at least 1; null for others. */
function countedBy(index: GraphIndex, tensor: string): LossMask | null {
  let maker = makerOf(index, tensor);
  for (let steps = 0; maker && steps < MAX_STEPS; steps++) {
    if (isOp(maker, 'ReduceSum')) {
      const mask = makerOf(index, operandOf(maker), 'Cast');
      return mask && typeIn(index, operandOf(mask)).dtype === 'bool' ? truthOf(index, operandOf(mask)) : null;
    }
    maker = isOp(maker, 'Cast', 'Max', 'Clip', 'Squeeze', 'Reshape') ? makerOf(index, operandOf(maker)) : null;
  }
  return null;
}

/** Maximum number of steps from a number or a mask back to its source. */
const MAX_STEPS = 4;

/** A mask before casts and Not. */
function truthOf(index: GraphIndex, tensor: string): LossMask {
  let mask: LossMask = { truth: tensor, counts: true };
  for (let steps = 0; steps < MAX_STEPS; steps++) {
    const maker = makerOf(index, mask.truth, 'Cast', 'Not');
    if (!maker) break;
    mask = { truth: operandOf(maker), counts: isOp(maker, 'Not') ? !mask.counts : mask.counts };
  }
  return mask;
}

function attributesOf(
  index: GraphIndex,
  nodes: ReadonlySet<Node>,
  reduction: string | null,
  masks: readonly LossMask[],
): Attributes {
  const stated = [...nodes].find((node) => isOp(node, 'NegativeLogLikelihoodLoss'))?.attributes['ignore_index'];
  if (reduction === null || masks.length > 1) return {};
  const [mask] = masks;
  if (!mask) return typeof stated === 'number' ? { reduction, ignore_index: stated } : { reduction };
  const equal = mask.counts ? null : makerOf(index, mask.truth, 'Equal');
  const values = equal && nodes.has(equal) ? equal.inputs.map((input) => scalarOf(index, input)) : [];
  const ignored = values.find((value) => value !== null);
  return typeof ignored === 'number' && stated === undefined ? { reduction, ignore_index: ignored } : {};
}
