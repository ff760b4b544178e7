/**
 * @file LinearAttention in plain operators, step by step. A state of a key head is a matrix, features of keys by
 * features of values; with decay a = exp g where the rule is gated, and the correction where it is a delta rule (Yang et al.
 * 2024):
 *
 *     D = a ∘ S₋₁    r = v − kᵀ D  (v where there is no correction)    S = D + k (β r)    o = scale · q S
 */
import { AutoparError } from '../error.js';
import { constant } from './constants.js';
import { numberOf, operand, text } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import { type DimensionAxes, dimensionSizes, type RearrangedAxis } from './rearrange.js';

/** Sizes as linear-attention.ts reads them off the operands. */
export interface LinearSizes {
  readonly batch: number;
  readonly positions: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly head: number;
  readonly valueHead: number;
}

const [QUERY, KEY, VALUE, STATE, DECAY, RATE] = [0, 1, 2, 3, 4, 5];

/** Maximum number of steps that are written out. */
const MOST_STEPS = 1024;

export function plainLinearAttention(write: OperatorWriter, sizes: LinearSizes): void {
  const { operator } = write;
  refuse(write, sizes);
  const type = write.sumType;
  const { batch, positions, heads, keyHeads, head, valueHead } = sizes;
  const common = Math.min(heads, keyHeads);
  const [groups, states] = [heads / common, keyHeads / common];
  const axisOf = (size: number): RearrangedAxis => ({ size });
  const [b, t, h, e, f] = [axisOf(batch), axisOf(positions), axisOf(common), axisOf(head), axisOf(valueHead)];
  const [g, j] = [axisOf(groups), axisOf(states)];
  const only = (axis: RearrangedAxis): readonly RearrangedAxis[] => (axis.size > 1 ? [axis] : []);
  /** An operand as steps take it, one after the other: [batch, head, head of it, …, …]. */
  const chain = (index: number, inner: readonly RearrangedAxis[], rest: DimensionAxes): readonly string[] => {
    const heading: DimensionAxes = [
      inner.includes(h) ? [h] : [],
      inner.includes(j) ? only(j) : inner.includes(g) ? only(g) : [],
    ];
    const form: DimensionAxes = [[t], [b], ...heading, ...rest];
    const raised = write.inType(`in${index}`, operand(operator, index).dtype, type);
    const whole = write.rearrange(raised, [[b], [t], inner], form);
    const names = Array.from({ length: positions }, (_, step) => `in${index}_${step}`);
    write.addAll('Split', [whole], names, { axis: 0, split: names.map(() => 1) });
    return names.map((name) => write.add('Squeeze', [name], { axes: [0] }));
  };
  const withStates = states > 1 ? [h, j] : [h];
  const query = chain(QUERY, groups > 1 ? [h, g, e] : [h, e], [[], [e]]);
  const isWide = operand(operator, KEY).shape[2] === keyHeads * head;
  const key = chain(KEY, isWide ? [...withStates, e] : [h, e], [[e], []]);
  const value = chain(VALUE, [...withStates, f], [[], [f]]);
  const perHead = (index: number) => {
    const width = operand(operator, index).shape[2] ?? 1;
    if (width === keyHeads) return chain(index, withStates, [[], []]);
    return width === 1 ? chain(index, [], [[], []]) : chain(index, [...withStates, e], [[e], []]);
  };
  const rule = text(operator, 'update_rule', 'gated_delta');
  const isDelta = rule.endsWith('delta');
  const decay = rule.startsWith('gated') && operator.inputs[DECAY] ? perHead(DECAY) : null;
  const rate = isDelta && operator.inputs[RATE] ? perHead(RATE) : null;
  const scale = numberOf(operator, 'scale', 0) || 1 / Math.sqrt(head);
  const matrix: DimensionAxes = [[b], [h], only(j), [e], [f]];
  const stateForm: DimensionAxes = [[b], [h, ...only(j)], [e], [f]];
  const on = write.on(type);
  const transposed = (name: string) => write.add('Transpose', [name], { perm: [0, 1, 2, 4, 3] });
  const matmul = (left: string, right: string) => write.add('MatMul', [left, right]);
  const given = operator.inputs[STATE];
  let state = given
    ? write.rearrange(write.inType(`in${STATE}`, given.dtype, type), stateForm, matrix)
    : write.add('ConstantOfShape', [], { shape: dimensionSizes(matrix), value: constant(type, [0], [1]) });
  const answers = query.map((q, step) => {
    const [k = '', v = ''] = [key[step], value[step]];
    const kept = decay ? on.mul(state, on.of('Exp', decay[step] ?? '')) : state;
    const rest = isDelta ? on.sub(v, matmul(transposed(k), kept)) : v;
    const written = rate ? on.mul(rest, rate[step] ?? '') : rest;
    state = on.add(kept, on.mul(k, written));
    return write.add('Unsqueeze', [on.mul(matmul(q, state), scale)], { axes: [0] });
  });
  const beside = groups > 1 ? [g] : only(j);
  const joined = write.add('Concat', answers, { axis: 0 });
  write.makes(0, write.rearrange(joined, [[t], [b], [h], beside, [], [f]], [[b], [t], [h, ...beside, f]]), type);
  if (operator.outputs[1]) write.makes(1, write.rearrange(state, matrix, stateForm), type);
}

function refuse({ operator }: OperatorWriter, { positions }: LinearSizes): void {
  if (numberOf(operator, 'state_window', 0) === 0 && positions <= MOST_STEPS) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${operator.op} ${operator.name}: this form of it has no gradient (a window of states, or more than ${MOST_STEPS} positions)`,
    { node: operator.name },
    'Train on shorter sequences, or export the model before it is optimised for inference.',
  );
}
