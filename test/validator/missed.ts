/**
 * @file Shardings that an operator would allow and its rule does not offer: found by trying. Operands are sharded in two along
 * every choice of one dimension each, the operator is run on both halves, and where every result is the halves put together, or
 * their sum, maximum or minimum, that was a legal sharding. (PyTorch's DTensor is validated in the same way.)
 */
import type { FactorRule } from '../../src/ir/factor-rule.js';
import { operatorOfCase } from '../ir/ops/cases.js';
import type { Run, Values } from '../ir/ops/one-node.js';
import type { Case } from '../ir/ops/sample.js';
import { needEntry } from '../ir/ops/simulate.js';
import { difference } from '../ir/ops/values.js';

/** By operand: the dimension that is sharded, or null. */
type Choice = readonly (number | null)[];

/** More choices than this are not tried in full: then no more than two operands are sharded. */
const CHOICES = 400;

/**
 * Legal shardings over two ranks that the rule of a sample lacks, as text: `0 1 _ -> sum` shards dimension 0 of the first
 * operand and 1 of the second, and results add up. `values` are several draws; all must agree. Operators whose attributes hold
 * sizes have rules that are generated from them, and no halves without new ones: they are left out.
 */
export async function missedShardings(
  sample: Case,
  values: readonly (readonly (Values | null)[])[],
  run: Run,
): Promise<readonly string[]> {
  const operator = operatorOfCase(sample);
  const entry = needEntry(sample.op, sample.domain);
  if (entry.resize) return [];
  const rule = entry.rule(operator);
  const wholes = await Promise.all(values.map((inputs) => run(sample, inputs, operator.outputs)));
  const missed: string[] = [];
  for (const choice of choicesOf(sample)) {
    if (isOffered(rule, choice)) continue;
    const found = new Set<string | null>();
    for (const [draw, inputs] of values.entries()) {
      const joined = await resultsOf(sample, inputs, choice, wholes[draw] ?? [], run);
      found.add(joined);
      if (joined === null) break;
    }
    const [only] = found;
    if (found.size === 1 && typeof only === 'string')
      missed.push(`${choice.map((axis) => axis ?? '_').join(' ')} -> ${only}`);
  }
  return missed;
}

function choicesOf({ inputs }: Case): readonly Choice[] {
  const options = inputs.map((input): readonly (number | null)[] => [
    null,
    ...(input?.shape.flatMap((size, axis) => (size % 2 === 0 && size > 0 ? [axis] : [])) ?? []),
  ]);
  const count = options.reduce((product, list) => product * list.length, 1);
  const cuts = (choice: Choice) => choice.filter((axis) => axis !== null).length;
  const all = options.reduce<readonly Choice[]>(
    (before, list) =>
      before
        .flatMap((choice) => list.map((axis) => [...choice, axis]))
        .filter((choice) => count <= CHOICES || cuts(choice) <= 2),
    [[]],
  );
  return all.filter((choice) => cuts(choice) > 0);
}

/** Whether the choice shards a factor of the rule that may be sharded. */
function isOffered(rule: FactorRule, choice: Choice): boolean {
  return [...rule.factors.values()].some(
    ({ name, kind }) =>
      !['whole', 'halo'].includes(kind) &&
      choice.every((axis, operand) => {
        const dims = rule.inputs[operand] ?? [];
        const own = dims.findIndex((names) => names[0] === name);
        return axis === null ? own < 0 : own === axis;
      }),
  );
}

/** How the halves' results make up the whole ones, one word each; null where they do not. */
async function resultsOf(
  sample: Case,
  inputs: readonly (Values | null)[],
  choice: Choice,
  wholes: readonly (Values | null)[],
  run: Run,
): Promise<string | null> {
  const operator = operatorOfCase(sample);
  const entry = needEntry(sample.op, sample.domain);
  const halves: (readonly (Values | null)[])[] = [];
  for (const half of [0, 1]) {
    const local = inputs.map((value, operand) => {
      const axis = choice[operand] ?? null;
      return value && axis !== null ? cutHalf(value, axis, half) : value;
    });
    try {
      const types = entry.infer({ ...operator, inputs: local, outputs: [] });
      halves.push(
        await run(
          sample,
          local,
          types.map((type, index) => (operator.outputs[index] ? type : null)),
        ),
      );
    } catch {
      return null;
    }
  }
  const words = wholes.map((whole, index) => {
    const [first, second] = halves.map((results) => results[index]);
    return whole && first && second ? wordFor(first, second, whole, sample.tolerance ?? 1e-4) : 'unused';
  });
  if (words.some((word) => word === null) || words.every((word) => word === 'same' || word === 'unused')) return null;
  return words.join(', ');
}

function wordFor(first: Values, second: Values, whole: Values, tolerance: number): string | null {
  const equal = (made: Values) => difference(made, whole, tolerance) === null;
  if (equal(first) && equal(second)) return 'same';
  for (const axis of whole.shape.keys()) if (equal(joined(first, second, axis))) return `${axis}`;
  if (first.shape.join() !== whole.shape.join()) return null;
  const combined = (of: (a: number, b: number) => number): Values => ({
    ...whole,
    data: first.data.map((value, index) => of(value, second.data[index] ?? Number.NaN)),
  });
  if (equal(combined((a, b) => a + b))) return 'sum';
  if (equal(combined(Math.max))) return 'max';
  return equal(combined(Math.min)) ? 'min' : null;
}

function cutHalf(value: Values, axis: number, half: number): Values {
  const { outer, size, inner } = around(value.shape, axis);
  const count = size / 2;
  const data = Array.from({ length: outer }, (_, row) => {
    const start = (row * size + half * count) * inner;
    return value.data.slice(start, start + count * inner);
  }).flat();
  return { dtype: value.dtype, shape: value.shape.map((whole, at) => (at === axis ? count : whole)), data };
}

function joined(first: Values, second: Values, axis: number): Values {
  const [a, b] = [around(first.shape, axis), around(second.shape, axis)];
  const data = Array.from({ length: a.outer }, (_, row) => [
    ...first.data.slice(row * a.size * a.inner, (row + 1) * a.size * a.inner),
    ...second.data.slice(row * b.size * b.inner, (row + 1) * b.size * b.inner),
  ]).flat();
  return { dtype: first.dtype, shape: first.shape.map((size, at) => (at === axis ? size + b.size : size)), data };
}

function around(shape: readonly number[], axis: number) {
  const product = (sizes: readonly number[]) => sizes.reduce((total, size) => total * size, 1);
  return { outer: product(shape.slice(0, axis)), size: shape[axis] ?? 1, inner: product(shape.slice(axis + 1)) };
}
