/**
 * @file State-space layers, which are generated as matmuls over chunks, against the recurrence that they stand for, position by
 * position: their results and their gradients.
 */
import test from 'ava';
import { GraphBuilder } from '../../models/builder.js';
import { type StateSpaceSizes, stateSpace } from '../../models/state-space.js';
import { runGraph } from '../../src/api/verification/reference.js';
import { differentiate } from '../../src/ir/autodiff/differentiate.js';
import type { Graph } from '../../src/ir/graph.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';

const SIZES: StateSpaceSizes = { heads: 4, headWidth: 3, state: 5, groups: 2, kernel: 4, chunk: 4 };
const HIDDEN = 6;

type Weights = Readonly<Record<string, readonly number[]>>;

test('chunks compute what the recurrence does, whatever their length', async (t) => {
  for (const [sizes, sequence] of [
    [SIZES, 12],
    [{ ...SIZES, chunk: 3 }, 12],
    [{ ...SIZES, chunk: 16 }, 8],
    [{ ...SIZES, chunk: 1, groups: 1 }, 5],
    [{ ...SIZES, groups: 4, headWidth: 2, kernel: 2 }, 8],
  ] as const) {
    const { graph, input, weights } = layer(sizes, sequence, 2);
    const { y } = await runGraph(graph, { x: input.tensor }, ['y']);
    const expected = input.samples.flatMap((sample) => recurrence(sample, weights, sizes).flat());
    const computed = y ? numbersOf(y) : [];
    t.is(computed.length, expected.length);
    for (const [at, value] of expected.entries()) t.true(Math.abs(value - (computed[at] ?? NaN)) < 1e-4, `${at}`);
  }
});

test('gradients of every parameter are the slopes of the recurrence', async (t) => {
  const sequence = 8;
  const { graph, input, weights } = layer(SIZES, sequence, 1);
  const names = Object.keys(weights).filter((name) => graph.weights.get(name)?.role === 'parameter');
  const { graph: trained, gradients } = differentiate(graph, 'loss', names);
  const results = await runGraph({ ...trained, outputs: [...gradients.values()] }, { x: input.tensor }, [
    ...gradients.values(),
  ]);
  const [sample = []] = input.samples;
  const loss = (changed: Weights) =>
    recurrence(sample, changed, SIZES)
      .flat()
      .reduce((sum, value, at) => sum + value * share(at), 0);
  const step = 1e-4;
  for (const name of names) {
    const gradient = results[gradients.get(name) ?? ''];
    const values = weights[name] ?? [];
    for (const at of [0, Math.floor(values.length / 2), values.length - 1]) {
      const moved = (by: number) => loss({ ...weights, [name]: values.map((v, index) => (index === at ? v + by : v)) });
      const slope = (moved(step) - moved(-step)) / (2 * step);
      const found = gradient ? numbersOf(gradient)[at] : undefined;
      t.true(Math.abs(slope - (found ?? NaN)) < 1e-3 * (1 + Math.abs(slope)), `${name} ${at}: ${found}, not ${slope}`);
    }
  }
});

/** The weight of each number of the result in the loss. */
const share = (at: number) => Math.cos(at * 0.7);

function layer(sizes: StateSpaceSizes, sequence: number, batch: number) {
  const builder = new GraphBuilder('layer', 3);
  const shape = [batch, sequence, HIDDEN];
  const y = stateSpace(builder, builder.input('x', 'float32', shape), sizes);
  const values = Array.from({ length: batch * sequence * HIDDEN }, (_, at) => 1.5 * Math.sin(at * 1.7));
  const shares = constant(
    'float32',
    values.map((_, at) => share(at)),
    shape,
  );
  const weighed = builder.operator('Mul', [y, builder.constant('shares', shares)]);
  const loss = builder.operator('ReduceSum', [weighed], { axes: [0, 1, 2], keepdims: 0 });
  builder.output('y', y);
  builder.output('loss', loss);
  const graph = builder.build();
  const rows = Array.from({ length: batch * sequence }, (_, row) => values.slice(row * HIDDEN, (row + 1) * HIDDEN));
  const samples = Array.from({ length: batch }, (_, index) => rows.slice(index * sequence, (index + 1) * sequence));
  return { graph, weights: valuesOf(graph), input: { tensor: constant('float32', values, shape), samples } };
}

function valuesOf(graph: Graph): Weights {
  return Object.fromEntries(
    [...graph.weights].map(([name, weight]) => [
      name,
      weight.source.kind === 'inline' ? numbersOf({ ...weight, data: weight.source.data }) : [],
    ]),
  );
}

/** One sample, position by position, with one state for each head (Dao and Gu 2024, equation 2). */
function recurrence(
  sample: readonly (readonly number[])[],
  weights: Weights,
  { heads, headWidth, state, groups, kernel }: StateSpaceSizes,
): readonly (readonly number[])[] {
  const of = (name: string, at: number) => weights[name]?.[at] ?? NaN;
  const width = heads * headWidth;
  const product = (rows: readonly (readonly number[])[], name: string, columns: number) =>
    rows.map((row) =>
      Array.from({ length: columns }, (_, column) =>
        row.reduce((sum, value, at) => sum + value * of(`${name}.weight`, at * columns + column), 0),
      ),
    );
  const convolved = (rows: readonly (readonly number[])[], name: string) =>
    rows.map((row, time) =>
      row.map((_, feature) => {
        let sum = of(`${name}.bias`, feature);
        for (let tap = 0; tap < kernel; tap++)
          sum += (rows[time - kernel + 1 + tap]?.[feature] ?? 0) * of(`${name}.weight`, feature * kernel + tap);
        return silu(sum);
      }),
    );
  const both = product(sample, 'gate_value', 2 * width);
  const shared = product(sample, 'key_query', 2 * groups * state);
  const keys = convolved(cut(shared, 0, groups * state), 'key_taps');
  const queries = convolved(cut(shared, groups * state, 2 * groups * state), 'query_taps');
  const values = convolved(cut(both, width, 2 * width), 'value_taps');
  const rates = product(sample, 'rate', heads).map((row) =>
    row.map((value, head) => Math.log1p(Math.exp(value + of('rate_bias', head)))),
  );
  const states = Array.from({ length: heads }, () =>
    Array.from({ length: state }, () => Array.from({ length: headWidth }, () => 0)),
  );
  const normed = sample.map((_, time) => {
    const read = states.flatMap((held, head) => {
      const first = Math.floor(head / (heads / groups)) * state;
      const rate = rates[time]?.[head] ?? NaN;
      const kept = Math.exp(-rate * Math.exp(of('scan.decay', head)));
      return Array.from({ length: headWidth }, (_, feature) => {
        const value = values[time]?.[head * headWidth + feature] ?? NaN;
        let sum = of('scan.skip', head) * value;
        for (const [at, row] of held.entries()) {
          row[feature] = kept * (row[feature] ?? NaN) + rate * (keys[time]?.[first + at] ?? NaN) * value;
          sum += (queries[time]?.[first + at] ?? NaN) * row[feature];
        }
        return sum * silu(both[time]?.[head * headWidth + feature] ?? NaN);
      });
    });
    const size = width / groups;
    return read.map((value, at) => {
      const group = read.slice(Math.floor(at / size) * size, (Math.floor(at / size) + 1) * size);
      const square = group.reduce((sum, other) => sum + other * other, 0) / size;
      return (value / Math.sqrt(square + 1e-5)) * of('norm.weight', at);
    });
  });
  return product(normed, 'output', HIDDEN);
}

function cut(rows: readonly (readonly number[])[], from: number, to: number): readonly (readonly number[])[] {
  return rows.map((row) => row.slice(from, to));
}

function silu(value: number): number {
  return value / (1 + Math.exp(-value));
}
