/**
 * @file The gradient of LinearAttention, written out step by step. A state of a key head is a matrix, features of keys by
 * features of values; with decay a = exp g where the rule is gated, and the correction where it is a delta rule (Yang et al.
 * 2024):
 *
 *     D = a ∘ S₋₁    r = v − kᵀ D  (v where there is no correction)    S = D + k (β r)    o = scale · q S
 *
 * States are made again, and gone through from the last to the first.
 */
import { AutoparError } from '../error.js';
import { constant } from './constants.js';
import { numberOf, operand, result, text } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, sizesOf } from './rearrange.js';

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

/** More steps than these are not written out. */
const MOST_STEPS = 1024;

/** An operand as steps take it: [time, batch, head, head of it, …, …]. */
interface Chain {
  readonly index: number;
  readonly form: Axes;
  readonly own: Axes;
  /** [batch, head, head of it, …, …] at a step. */
  readonly at: (step: number) => string;
}

export function linearAttentionGradient(write: OperatorGradient, sizes: LinearSizes): void {
  const { view } = write;
  refuse(write, sizes);
  const type = write.sumType;
  const { batch, positions, heads, keyHeads, head, valueHead } = sizes;
  const common = Math.min(heads, keyHeads);
  const [groups, states] = [heads / common, keyHeads / common];
  const axisOf = (size: number): Axis => ({ size });
  const [b, t, h, e, f] = [axisOf(batch), axisOf(positions), axisOf(common), axisOf(head), axisOf(valueHead)];
  const [g, j] = [axisOf(groups), axisOf(states)];
  const only = (axis: Axis): readonly Axis[] => (axis.size > 1 ? [axis] : []);
  const chain = (index: number, inner: readonly Axis[], rest: Axes): Chain => {
    const own: Axes = [[b], [t], inner];
    const heading: Axes = [
      inner.includes(h) ? [h] : [],
      inner.includes(j) ? only(j) : inner.includes(g) ? only(g) : [],
    ];
    const form: Axes = [[t], [b], ...heading, ...rest];
    const name = write.rearrange(write.inType(`in${index}`, operand(view, index).dtype, type), own, form);
    const at = (step: number) =>
      write.add('Gather', [name, write.tensor(constant('int64', [step], []))], {
        axis: 0,
      });
    return { index, form, own, at };
  };
  const withStates = states > 1 ? [h, j] : [h];
  const query = chain(QUERY, groups > 1 ? [h, g, e] : [h, e], [[], [e]]);
  const isWide = operand(view, KEY).shape[2] === keyHeads * head;
  const key = chain(KEY, isWide ? [...withStates, e] : [h, e], [[e], []]);
  const value = chain(VALUE, [...withStates, f], [[], [f]]);
  const perHead = (index: number) => {
    const width = operand(view, index).shape[2] ?? 1;
    if (width === keyHeads) return chain(index, withStates, [[], []]);
    return width === 1 ? chain(index, [], [[], []]) : chain(index, [...withStates, e], [[e], []]);
  };
  const rule = text(view, 'update_rule', 'gated_delta');
  const decay = rule.startsWith('gated') && view.inputs[DECAY] ? perHead(DECAY) : null;
  const rate = rule.endsWith('delta') && view.inputs[RATE] ? perHead(RATE) : null;
  const isDelta = rule.endsWith('delta');
  const scale = numberOf(view, 'scale', 0) || 1 / Math.sqrt(head);
  const lead: Axes = [[b], [h], only(j)];
  const matrix: Axes = [...lead, [e], [f]];
  const row: Axes = [...lead, [], [f]];
  const column: Axes = [...lead, [e], []];
  const answered: Axes = [[b], [h], groups > 1 ? [g] : only(j), [], [f]];
  const on = write.on(type);
  const turned = (name: string) =>
    write.add('Transpose', [name], {
      perm: [0, 1, 2, 4, 3],
    });
  const product = (left: string, right: string) => write.add('MatMul', [left, right]);
  const zeros = () => write.add('ConstantOfShape', [], { shape: sizesOf(matrix), value: constant(type, [0], [1]) });
  const stateForm: Axes = [[b], [h, ...only(j)], [e], [f]];
  const stateOf = (name: string, dtype: typeof type) =>
    write.rearrange(write.inType(name, dtype, type), stateForm, matrix);
  const given = view.inputs[STATE];
  let state = given ? stateOf(`in${STATE}`, given.dtype) : zeros();
  const steps = Array.from({ length: positions }, (_, step) => {
    const [k, v] = [key.at(step), value.at(step)];
    const factor = decay && on.of('Exp', decay.at(step));
    const kept = factor === null ? state : on.mul(state, factor);
    const rest = isDelta ? on.sub(v, product(turned(k), kept)) : v;
    const beta = rate?.at(step) ?? null;
    const written = beta === null ? rest : on.mul(rest, beta);
    state = on.add(kept, on.mul(k, written));
    return { k, factor, kept, rest, beta, written, state };
  });
  const outputForm: Axes = [[b], [t], [h, ...(groups > 1 ? [g] : only(j)), f]];
  const answers: Axes = [[t], ...answered];
  const grown = write.has(0)
    ? write.rearrange(write.inType('grad0', operand(view, QUERY).dtype, type), outputForm, answers)
    : null;
  const parts = new Map<Chain, string[]>();
  /** Summed over the dimensions that the operand lacks, at this step. */
  const give = (to: Chain | null, name: string, from: Axes) => {
    if (to === null || !write.wants(to.index)) return;
    const target = to.form.slice(1);
    const axes = sizesOf(from).flatMap((size, axis) => (size > 1 && sizesOf(target)[axis] === 1 ? [axis] : []));
    const sum = axes.length === 0 ? name : write.add('ReduceSum', [name], { axes, keepdims: 1 });
    parts.set(to, [write.add('Unsqueeze', [sum], { axes: [0] }), ...(parts.get(to) ?? [])]);
  };
  let owed = write.has(1) ? stateOf('grad1', result(view, 1).dtype) : zeros();
  for (let step = positions - 1; step >= 0; step--) {
    const made = steps[step];
    if (!made) continue;
    if (grown !== null) {
      const index = write.tensor(constant('int64', [step], []));
      const taken = write.add('Gather', [grown, index], { axis: 0 });
      const slope = on.mul(taken, scale);
      const wide: Axes = [...answered.slice(0, 3), [], [e]];
      give(query, product(slope, turned(made.state)), wide);
      const q = query.at(step);
      const outer = on.mul(turned(q), slope);
      const sum = groups > 1 ? write.add('ReduceSum', [outer], { axes: [2], keepdims: 1 }) : outer;
      owed = on.add(owed, sum);
    }
    const writes = product(turned(made.k), owed);
    let ofKey = product(owed, turned(made.written));
    const ofRest = made.beta === null ? writes : on.mul(writes, made.beta);
    give(rate, on.mul(writes, made.rest), row);
    give(value, ofRest, row);
    let ofKept = owed;
    if (isDelta) {
      ofKept = on.sub(owed, on.mul(made.k, ofRest));
      ofKey = on.sub(ofKey, product(made.kept, turned(ofRest)));
    }
    give(key, ofKey, column);
    give(decay, on.mul(ofKept, made.kept), matrix);
    owed = made.factor === null ? ofKept : on.mul(ofKept, made.factor);
  }
  for (const to of [query, key, value, decay, rate]) {
    if (to === null || !write.wants(to.index)) continue;
    const list = parts.get(to);
    if (!list) {
      write.none(to.index);
      continue;
    }
    const joined = write.add('Concat', list, { axis: 0 });
    write.become(to.index, write.rearrange(joined, to.form, to.own), type);
  }
  if (write.wants(STATE)) write.become(STATE, write.rearrange(owed, matrix, stateForm), type);
  for (const [index, used] of [
    [DECAY, decay],
    [RATE, rate],
  ] as const)
    if (used === null && write.wants(index)) write.none(index);
}

function refuse({ view }: OperatorGradient, { positions }: LinearSizes): void {
  if (numberOf(view, 'state_window', 0) === 0 && positions <= MOST_STEPS) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${view.op} ${view.name}: this form of it has no gradient (a window of states, or more than ${MOST_STEPS} positions)`,
    { node: view.name },
    'Train on shorter sequences, or export the model before it is optimised for inference.',
  );
}
