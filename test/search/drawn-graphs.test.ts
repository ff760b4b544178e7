/**
 * @file Drawn chains of operators that mix dimensions and operators that look along one: whatever is drawn has a plan whose
 * lowered graph the checker accepts.
 */
import test from 'ava';
import fc from 'fast-check';
import { parseCluster } from '../../src/cost-model/cluster.js';
import type { Attributes, Graph } from '../../src/ir/graph.js';
import { checkSharded } from '../../src/partition/check.js';
import { partition } from '../../src/partition/partition.js';
import { type PlanOptions, plan } from '../../src/search/plan.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { draws } from '../selection.js';
import { GraphBuilder } from './small-graphs.js';

/** A draw of numbers, each used modulo what it chooses from. */
interface Draw {
  readonly kind: number;
  readonly axis: number;
  readonly more: readonly number[];
}

/** A drawn operator on a tensor of a shape. */
interface Drawn {
  readonly op: string;
  readonly attributes: Attributes;
  readonly inputs?: number;
  /** Its result is int64: a Cast follows. */
  readonly whole?: true;
}

const LONGEST = 5;

/** A shape of as many elements, each dimension a divisor of what is left. */
function reshaped(count: number, more: readonly number[]): readonly number[] {
  const shape: number[] = [];
  let left = count;
  for (const number of more.slice(0, LONGEST - 1)) {
    const divisors = Array.from({ length: left }, (_, index) => index + 1).filter((size) => left % size === 0);
    const size = divisors[number % divisors.length] ?? 1;
    shape.push(size);
    left /= size;
  }
  return [...shape, left];
}

function permuted(rank: number, more: readonly number[]): readonly number[] {
  const left = Array.from({ length: rank }, (_, index) => index);
  return Array.from({ length: rank }, (_, index) => left.splice((more[index] ?? 0) % left.length, 1)[0] ?? 0);
}

const KINDS: readonly ((shape: readonly number[], draw: Draw) => Drawn)[] = [
  (shape, { more }) => ({
    op: 'Reshape',
    attributes: {
      shape: reshaped(
        shape.reduce((product, size) => product * size, 1),
        more,
      ),
    },
  }),
  (shape, { more }) => ({ op: 'Transpose', attributes: { perm: permuted(shape.length, more) } }),
  ...['ArgMax', 'ArgMin'].map(
    (op) =>
      (shape: readonly number[], { axis, more }: Draw): Drawn => ({
        op,
        attributes: { axis: axis % shape.length, keepdims: (more[0] ?? 0) % 2, select_last_index: (more[1] ?? 0) % 2 },
        whole: true,
      }),
  ),
  ...['Hardmax', 'Softmax', 'LogSoftmax'].map(
    (op) =>
      (shape: readonly number[], { axis }: Draw): Drawn => ({ op, attributes: { axis: axis % shape.length } }),
  ),
  ...['CumSum'].map(
    (op) =>
      (shape: readonly number[], { axis }: Draw): Drawn => ({ op, attributes: { axis: axis % shape.length } }),
  ),
  (shape, { axis, more }) => ({
    op: 'TopK',
    attributes: {
      axis: axis % shape.length,
      k: [1 + ((more[0] ?? 0) % (shape[axis % shape.length] ?? 1))],
      largest: (more[1] ?? 0) % 2,
    },
  }),
  ...['ReduceMax', 'ReduceSum', 'ReduceMean'].map(
    (op) =>
      (shape: readonly number[], { axis, more }: Draw): Drawn => ({
        op,
        attributes: { axes: [axis % shape.length], keepdims: (more[0] ?? 0) % 2 },
      }),
  ),
  () => ({ op: 'Add', attributes: {}, inputs: 2 }),
  (shape, { axis }) => ({ op: 'Concat', attributes: { axis: axis % shape.length }, inputs: 2 }),
  (shape, { axis }) => ({ op: 'Gather', attributes: { axis: axis % shape.length } }),
];

/** One operator after another; a scalar ends the chain. */
function chain(shape: readonly number[], list: readonly Draw[]): Graph {
  const builder = new GraphBuilder();
  let x = builder.input('x', shape);
  for (const [index, draw] of list.entries()) {
    const { shape: current } = builder.build([x]).tensors.get(x) ?? { shape: [] };
    if (current.length === 0) break;
    const {
      op,
      attributes,
      inputs = 1,
      whole,
    } = (KINDS[draw.kind % KINDS.length] as (typeof KINDS)[number])(current, draw);
    const operands = op === 'Gather' ? [x, builder.input(`indices${index}`, [4], 'int64')] : Array(inputs).fill(x);
    x = builder.add(`${op}${index}`, op, operands, attributes);
    if (whole) x = builder.add(`${op}${index}/cast`, 'Cast', [x], { to: 1 });
  }
  return { ...builder.build([x]), batch: [] };
}

const SHAPES: readonly (readonly number[])[] = [[3, 4], [4, 6], [2, 3, 4], [4, 2, 6], [8, 6], [2, 12], [12]];

const OPTIONS: readonly PlanOptions[] = [
  { degrees: { dp: 1, tp: 2 } },
  { degrees: { dp: 1, tp: 2 }, axes: 'free' },
  { degrees: { dp: 1, tp: 4 }, axes: 'free' },
];

test('every drawn chain has a plan that the checker accepts', async (t) => {
  const number = fc.nat(1000);
  const draw = fc.record({ kind: number, axis: number, more: fc.array(number, { minLength: 4, maxLength: 4 }) });
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...SHAPES),
      fc.array(draw, { minLength: 1, maxLength: 6 }),
      fc.constantFrom(...OPTIONS),
      async (shape, list, options) => {
        const graph = chain(shape, list);
        const cluster = parseCluster('local', options.degrees?.tp ?? 1);
        const { assignment } = await plan(graph, cluster, options);
        const sharded = partition(
          graph,
          assignment,
          makeResharder(assignment.mesh, () => 1),
        );
        const findings = checkSharded(sharded);
        if (findings.length > 0) throw new Error(findings.map(({ node, problem }) => `${node}: ${problem}`).join('; '));
      },
    ),
    { numRuns: draws(300) },
  );
  t.pass();
});
