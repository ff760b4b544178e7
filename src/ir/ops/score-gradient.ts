/**
 * @file What gradients of attention share. Probabilities are computed again from queries and keys, in float32 for half precision:
 *
 *     S = scale · Q Kᵀ, capped and masked    P = softmax S    dP = dO Vᵀ    dS = P (dP − Σ P dP)
 *     dQ = scale · dS K       dK = scale · dSᵀ Q       dV = Pᵀ dO
 *
 * Everything is batch, key head, query head of it, position, feature here; what queries that share a key head hand back to it
 * is summed.
 */
import type { TensorType } from '../graph.js';
import { constant } from './constants.js';
import { operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, sizesOf } from './rearrange.js';

/** What scores are made of: one object per axis. */
export interface AttentionAxes {
  readonly b: Axis;
  readonly h: Axis;
  readonly g: Axis;
  readonly s: Axis;
  /** Keys that are attended to, those of the past before those of this call. */
  readonly t: Axis;
  readonly e: Axis;
  readonly f: Axis;
}

/** A tensor that scores are joined with, and its dimensions: at most those of the scores, aligned at the right. */
interface ScoreOperand {
  readonly name: string;
  readonly axes: Axes;
}

/** A step from scores to scores. */
export type ScoreStep =
  | { readonly kind: 'cap'; readonly by: number }
  /** `operand`: where its gradient goes. */
  | { readonly kind: 'add'; readonly name: string; readonly axes: Axes; readonly operand: number }
  /** Scores where the truth value is false are none. */
  | { readonly kind: 'keep'; readonly name: string }
  /** A gradient of the scores at this stage. */
  | { readonly kind: 'given'; readonly name: string };

interface AttentionParts {
  readonly axes: AttentionAxes;
  readonly scale: number;
  /** [b h g s e], [b h 1 t e], [b h 1 t f], in the type that sums are formed in. */
  readonly query: string;
  readonly key: string;
  readonly value: string;
  /** [b h g s f]; null where the output has no gradient. */
  readonly output: string | null;
  readonly steps: readonly ScoreStep[];
  /** A gradient of the probabilities. */
  readonly probabilities: string | null;
  /** A score beside those of the keys, which takes part in the softmax and has no value: [h g 1 1] or one number. */
  readonly sink?: { readonly name: string; readonly operand: number } | null;
}

/**
 * Gradients in the layouts of `query`, `key` and `value`, the last two summed over g (and without it); of added biases by
 * operand.
 */
interface AttentionSlopes {
  readonly query: () => string;
  readonly key: () => string;
  readonly value: (() => string) | null;
}

/** No score at all. Finite, so that rows without any key have no NaN. */
const NEVER = -3e38;

/** Writes what all gradients share, and those of added biases. */
export function addAttentionSlopes(write: OperatorGradient, parts: AttentionParts): AttentionSlopes {
  const { b, h, g, s, t } = parts.axes;
  const type = write.sumType;
  const scores: Axes = [[b], [h], [g], [s], [t]];
  const at = write.on(type);
  const flip = (name: string) => write.add('Transpose', [name], { perm: [0, 1, 2, 4, 3] });
  const product = write.add('MatMul', [parts.query, flip(parts.key)]);
  let score = at.mul(product, parts.scale);
  /** From the last step to the first: what each makes of the scores' gradient. */
  const back: ((slope: string) => string)[] = [];
  for (const step of parts.steps) {
    if (step.kind === 'cap') {
      const tanh = at.of('Tanh', at.div(score, step.by));
      score = at.mul(tanh, step.by);
      back.unshift((slope) => at.mul(slope, at.sub(1, at.square(tanh))));
    } else if (step.kind === 'keep') {
      score = at.where(step.name, score, NEVER);
      back.unshift((slope) => at.where(step.name, slope, 0));
    } else if (step.kind === 'given') {
      back.unshift((slope) => at.add(slope, step.name));
    } else {
      score = at.add(score, step.name);
      back.unshift((slope) => {
        addBias(write, step, slope, scores);
        return slope;
      });
    }
  }
  let chances = write.add('Softmax', [score], { axis: -1 });
  // A query without any key takes part in nothing, and neither does it hand anything back.
  for (const step of parts.steps) if (step.kind === 'keep') chances = at.where(step.name, chances, 0);
  const { sink = null } = parts;
  const beside = sink && besideSink(write, sink.name, score);
  if (beside !== null) chances = at.mul(chances, beside.rest);
  let owed = parts.probabilities;
  if (parts.output !== null) {
    const own = write.add('MatMul', [parts.output, flip(parts.value)]);
    owed = owed === null ? own : at.add(own, owed);
  }
  const shared = owed === null ? null : at.sum(at.mul(chances, owed), [4]);
  const inner = owed === null || shared === null ? null : at.mul(chances, at.sub(owed, shared));
  if (sink && beside && write.wants(sink.operand)) {
    if (shared === null) write.noneOf(sink.operand);
    else giveSink(write, sink.operand, write.add('Mul', [beside.taken, shared]), parts.axes);
  }
  const first = parts.steps.findIndex(({ kind }) => kind === 'given');
  let slope = inner ?? (first < 0 ? null : at.mul(score, 0));
  if (slope !== null) for (const step of back) slope = step(slope);
  else for (const step of parts.steps) if (step.kind === 'add') write.noneOf(step.operand);
  const scaled = slope === null ? at.mul(score, 0) : at.mul(slope, parts.scale);
  const overQueries = (left: string, right: string) => {
    const turned = flip(left);
    const each = write.add('MatMul', [turned, right]);
    return write.add('ReduceSum', [each], { axes: [2], keepdims: 0 });
  };
  const { output } = parts;
  return {
    query: () => write.add('MatMul', [scaled, parts.key]),
    key: () => overQueries(scaled, parts.query),
    value: output === null ? null : () => overQueries(chances, output),
  };
}

/** What a sink takes of each query's probability, and what it leaves: exp(sink) and Σ exp(score) of their sum. */
function besideSink(write: OperatorGradient, sink: string, score: string) {
  const total = write.add('ReduceLogSumExp', [score], { axes: [4], keepdims: 1 });
  const over = write.add('Sub', [total, sink]);
  const taken = write.add('Sigmoid', [write.add('Neg', [over])]);
  return { rest: write.add('Sigmoid', [over]), taken };
}

/** d sink = −Σ P(sink) Σ P dP, over samples and queries. */
function giveSink(write: OperatorGradient, index: number, name: string, { h, g }: AttentionAxes): void {
  const sum = write.add('ReduceSum', [name], { axes: [0, 3, 4], keepdims: 0 });
  const negative = write.add('Neg', [sum]);
  write.become(index, write.rearrange(negative, [[h], [g]], [[h, g]]), write.sumType);
}

/** The gradient of what was added to the scores: summed over the dimensions that it was broadcast along. */
function addBias(
  write: OperatorGradient,
  { operand: index, axes }: ScoreStep & { readonly kind: 'add' },
  slope: string,
  scores: Axes,
): void {
  if (!write.wants(index)) return;
  const own = sizesOf(axes);
  const all = sizesOf(scores);
  const extra = all.length - own.length;
  const spread = all.flatMap((size, axis) => (axis < extra || (own[axis - extra] === 1 && size !== 1) ? [axis] : []));
  const sum = spread.length === 0 ? slope : write.add('ReduceSum', [slope], { axes: spread, keepdims: 1 });
  const { dtype, shape } = operand(write.view, index);
  const last = shape.at(-1) ?? 1;
  const size = sizesOf(scores).at(-1) ?? 1;
  let name = sum;
  if (last !== 1 && last < size)
    name = write.add('Slice', [name], {
      starts: [0],
      ends: [last],
      axes: [4],
      steps: [1],
    });
  const shaped = write.add('Reshape', [name], { shape });
  write.become(index, write.inType(shaped, write.sumType, dtype), dtype);
}

/** A mask as the scores have their dimensions: heads apart, and as long as the keys; what it lacks at the end is `filler`. */
export function addMask(
  write: OperatorGradient,
  index: number,
  { h, g, t }: AttentionAxes,
  filler: number,
): ScoreOperand {
  const type: TensorType = operand(write.view, index);
  const rank = type.shape.length;
  const axisOf = (axis: number): Axis => ({ size: type.shape[axis] ?? 1 });
  let name = `in${index}`;
  const last = axisOf(rank - 1);
  let end = last;
  if (last.size !== 1 && last.size < t.size) {
    const value = constant(type.dtype, [filler]);
    const pads = [
      ...type.shape.map(() => 0),
      ...type.shape.map((_, axis) => (axis === rank - 1 ? t.size - last.size : 0)),
    ];
    name = write.add('Pad', [name], { pads, constant_value: value });
    end = t;
  }
  const lead = Array.from({ length: rank - 1 }, (_, axis) => axisOf(axis));
  const heads = lead.length - 2;
  const from: Axes = [...lead.map((axis) => [axis]), [end]];
  const isShared = (type.shape[heads] ?? 1) === 1;
  const apart: Axes = lead.flatMap((axis, place): Axes => {
    if (place !== heads) return [[axis]];
    return isShared ? [[axis], []] : [[h], [g]];
  });
  const joined: Axes = lead.map((axis, place) => (place === heads && !isShared ? [h, g] : [axis]));
  const to: Axes = [...apart, [end]];
  return { name: heads < 0 ? name : write.rearrange(name, [...joined, [end]], to), axes: heads < 0 ? from : to };
}
