/**
 * @file Attention in plain operators, shared by all attention operators:
 *
 *     S = scale · Q Kᵀ, capped and masked    P = softmax S    O = P V
 *
 * Everything is batch, key head, query head of it, position, feature here; half precision is computed in float32. Gradients go
 * through it (autodiff/plain-form.ts): S and P are then recomputed from queries and keys.
 */
import type { TensorType } from '../graph.js';
import { constant } from './constants.js';
import { operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import type { DimensionAxes, RearrangedAxis } from './rearrange.js';

/** The axes of scores: one object per axis. */
export interface AttentionAxes {
  readonly b: RearrangedAxis;
  readonly h: RearrangedAxis;
  readonly g: RearrangedAxis;
  readonly s: RearrangedAxis;
  /** Keys attended to, past ones before those of this call. */
  readonly t: RearrangedAxis;
  readonly e: RearrangedAxis;
  readonly f: RearrangedAxis;
}

/** A step from scores to scores. */
export type ScoreStep =
  | { readonly kind: 'cap'; readonly by: number }
  /** A tensor that broadcasts to the scores. */
  | { readonly kind: 'add'; readonly name: string }
  /** Scores where the truth value is false are masked. */
  | { readonly kind: 'keep'; readonly name: string }
  /** The scores at this stage are a result. */
  | { readonly kind: 'shown'; readonly to: (scores: string) => void };

interface AttentionParts {
  readonly scale: number;
  /** [b h g s e], [b h 1 t e], [b h 1 t f], in the type that sums are formed in. */
  readonly query: string;
  readonly key: string;
  readonly value: string;
  readonly steps: readonly ScoreStep[];
  /** A score beside those of the keys, which takes part in the softmax and has no value: [h g 1 1] or one number. */
  readonly sink?: string | null;
  /** For a result that returns the probabilities. */
  readonly probabilities?: (name: string) => void;
}

/** The score of a masked pair. Finite, so that rows without any key have no NaN. */
const NEVER = -3e38;

/** Writes an attention; returns its result [b h g s f]. */
export function writeAttention(write: OperatorWriter, parts: AttentionParts): string {
  const at = write.on(write.sumType);
  const transposed = write.add('Transpose', [parts.key], { perm: [0, 1, 2, 4, 3] });
  let score = at.mul(write.add('MatMul', [parts.query, transposed]), parts.scale);
  for (const step of parts.steps) {
    if (step.kind === 'cap') score = at.mul(at.of('Tanh', at.div(score, step.by)), step.by);
    else if (step.kind === 'keep') score = at.where(step.name, score, NEVER);
    else if (step.kind === 'add') score = at.add(score, step.name);
    else step.to(score);
  }
  let probabilities = write.add('Softmax', [score], { axis: -1 });
  // A query without any key gets zero probabilities.
  for (const step of parts.steps) if (step.kind === 'keep') probabilities = at.where(step.name, probabilities, 0);
  if (parts.sink) {
    // Σ exp(score) of Σ exp(score) + exp(sink).
    const total = write.add('ReduceLogSumExp', [score], { axes: [4], keepdims: 1 });
    probabilities = at.mul(probabilities, write.add('Sigmoid', [write.add('Sub', [total, parts.sink])]));
  }
  parts.probabilities?.(probabilities);
  return write.add('MatMul', [probabilities, parts.value]);
}

/** A mask in the dimensions of scores: heads split, and as long as the keys; elements that it lacks at the end are `filler`. */
export function addMask(write: OperatorWriter, index: number, { h, g, t }: AttentionAxes, filler: number): string {
  const type: TensorType = operand(write.operator, index);
  const rank = type.shape.length;
  const axisOf = (axis: number): RearrangedAxis => ({ size: type.shape[axis] ?? 1 });
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
  if (heads < 0) return name;
  const isShared = (type.shape[heads] ?? 1) === 1;
  const apart: DimensionAxes = lead.flatMap((axis, place): DimensionAxes => {
    if (place !== heads) return [[axis]];
    return isShared ? [[axis], []] : [[h], [g]];
  });
  const joined: DimensionAxes = lead.map((axis, place) => (place === heads && !isShared ? [h, g] : [axis]));
  return write.rearrange(name, [...joined, [end]], [...apart, [end]]);
}
