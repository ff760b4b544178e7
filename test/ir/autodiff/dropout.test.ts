/**
 * @file Dropout drops what its formula says, at random by every measure here, and leaves alone what it cannot know.
 */
import test from 'ava';
import fc from 'fast-check';
import { floats, GraphBuilder } from '../../../models/builder.js';
import { importModel } from '../../../src/api/models/import.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { differentiate } from '../../../src/ir/autodiff/differentiate.js';
import { drawDropout, keepMasks } from '../../../src/ir/autodiff/dropout.js';
import type { Graph } from '../../../src/ir/graph.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { float, model, node, saved, tensor, value } from '../model-maker.js';
import { noise } from '../same-results.js';
import { type Mask, maskOf } from './dropout-masks.js';

/** x → Dropout → Dropout, of one shape. */
function twice(shape: readonly number[], ratio: number): Graph {
  const builder = new GraphBuilder('twice', 1);
  const share = builder.constant('ratio', floats([ratio]));
  const first = builder.operator('Dropout', [builder.input('x', 'float32', shape), share]);
  builder.output('y', builder.operator('Dropout', [first, share]));
  return builder.build();
}

/** The graph in step `step`, from 0 on. */
function atStep(graph: Graph, step: number): Graph {
  const counter = graph.weights.get('dropout/step');
  if (!counter) throw new Error('nothing counts steps');
  const source = { kind: 'inline' as const, data: constant('int64', [step]).data };
  return { ...graph, weights: new Map(graph.weights).set('dropout/step', { ...counter, source }) };
}

test('what is kept is what the formula says, whatever shape, ratio, seed and step', async (t) => {
  const cases = fc.record({
    shape: fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 4 }),
    ratio: fc.double({ min: 0.05, max: 0.95, noNaN: true }).map(Math.fround),
    seed: fc.integer({ min: 0, max: 2 ** 31 }),
    step: fc.integer({ min: 0, max: 1e6 }),
  });
  await fc.assert(
    fc.asyncProperty(cases, async ({ shape, ratio, seed, step }) => {
      const { graph, drawn } = drawDropout(twice(shape, ratio), seed);
      t.is(drawn, 2);
      const x = noise(shape);
      const names = ['/Dropout/kept', '/Dropout_1/kept'];
      const results = await runGraph(atStep(graph, step), { x }, [...names, '/Dropout_output']);
      const masks = names.map((_, index) => maskOf({ shape, ratio, ordinal: index + 1, step, seed }));
      for (const [index, name] of names.entries()) t.deepEqual(results[name], masks[index]);
      const [first] = masks;
      const kept = first ? numbersOf(first) : [];
      const scaled = numbersOf(x).map((number, index) => (kept[index] ? number / (1 - ratio) : 0));
      const got = results['/Dropout_output'];
      t.true(got !== undefined && numbersOf(got).every((number, index) => near(number, scaled[index] ?? Number.NaN)));
    }),
    { numRuns: 25, seed: 7 },
  );
});

function near(left: number, right: number): boolean {
  return Math.abs(left - right) <= 1e-6 * Math.max(1, Math.abs(right));
}

const SIZE = 128;
const PLAIN: Mask = { shape: [SIZE, SIZE], ratio: 0.3, ordinal: 1, step: 0, seed: 0 };

/** The correlation of two lists of truth values with the mean `mean`; about 1/√n where they are independent. */
function correlation(left: readonly number[], right: readonly number[], mean: number): number {
  const sum = left.reduce((total, value, index) => total + (value - mean) * ((right[index] ?? 0) - mean), 0);
  return sum / (left.length * mean * (1 - mean));
}

test('masks are random by every pair: neighbours, rows, columns, operators, steps, seeds', (t) => {
  const kept = numbersOf(maskOf(PLAIN));
  const limit = 4.5 / SIZE;
  const shifted = (by: number) => kept.map((_, at) => kept[(at + by) % kept.length] ?? 0);
  const others: Readonly<Record<string, readonly number[]>> = {
    'the next column': shifted(1),
    'the column after': shifted(2),
    'the next row': shifted(SIZE),
    'the next diagonal': shifted(SIZE + 1),
    'half the rows on': shifted((SIZE / 2) * SIZE),
    'another operator': numbersOf(maskOf({ ...PLAIN, ordinal: 2 })),
    'the next step': numbersOf(maskOf({ ...PLAIN, step: 1 })),
    'another seed': numbersOf(maskOf({ ...PLAIN, seed: 1 })),
  };
  for (const [what, other] of Object.entries(others)) {
    const found = correlation(kept, other, 0.7);
    t.true(Math.abs(found) < limit, `${what}: ${found}`);
  }
});

test('the share that is dropped is the ratio: of all, of every row and of every column', (t) => {
  for (const ratio of [0.1, 0.5, 0.9]) {
    const kept = numbersOf(maskOf({ ...PLAIN, ratio }));
    const total = kept.reduce((sum, value) => sum + value, 0);
    const spread = Math.sqrt(ratio * (1 - ratio));
    t.true(Math.abs(total / SIZE ** 2 - (1 - ratio)) < (4.5 * spread) / SIZE);
    for (const stride of [1, SIZE]) {
      for (let line = 0; line < SIZE; line++) {
        const first = line * (SIZE / stride);
        const sum = Array.from({ length: SIZE }, (_, index) => kept[first + index * stride] ?? 0);
        const share = sum.reduce((part, value) => part + value, 0) / SIZE;
        t.true(Math.abs(share - (1 - ratio)) < (5 * spread) / Math.sqrt(SIZE), `${ratio}, line ${line}`);
      }
    }
  }
});

test('squares of two rows and two columns take all sixteen patterns as often as chance', (t) => {
  const kept = numbersOf(maskOf({ ...PLAIN, ratio: 0.5 }));
  const counts = Array.from({ length: 16 }, () => 0);
  const at = (row: number, column: number) => kept[row * SIZE + column] ?? 0;
  for (let row = 0; row < SIZE; row += 2) {
    for (let column = 0; column < SIZE; column += 2) {
      const pattern = 8 * at(row, column) + 4 * at(row, column + 1) + 2 * at(row + 1, column) + at(row + 1, column + 1);
      counts[pattern] = (counts[pattern] ?? 0) + 1;
    }
  }
  const expected = (SIZE / 2) ** 2 / 16;
  const square = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  // Fifteen degrees of freedom: more than 37.7 once in a thousand.
  t.true(square < 37.7, `${square}`);
});

const MODEL = {
  input: [value('x', [2, 3])],
  initializer: [tensor('half', [], [0.5]), tensor('none', [], [0]), tensor('on', [], [1], 'bool')],
};

async function drawnIn(nodes: Parameters<typeof node>[], opset = 17, outputs = ['y']): Promise<Graph> {
  const graph = {
    ...MODEL,
    node: nodes.map((given) => node(...given)),
    output: outputs.map((name) => value(name, [2, 3], name === 'mask' ? 'bool' : 'float32')),
  };
  const { graph: imported } = await importModel(await saved(model(graph, opset)), { forTraining: true });
  return drawDropout(imported, 3).graph;
}

function kinds(graph: Graph): readonly string[] {
  return graph.nodes.filter(({ name }) => !name.startsWith('dropout/')).map(({ op }) => op);
}

const DRAWN = ['Mul', 'Mul', 'GreaterOrEqual', 'Mul', 'Where'];

test('every form that files have: an attribute, an operand, the default, a mode that is on, a mask that is read', async (t) => {
  t.deepEqual(kinds(await drawnIn([['Dropout', ['x'], ['y'], { ratio: float(0.25) }]], 9)), DRAWN);
  t.deepEqual(kinds(await drawnIn([['Dropout', ['x', 'half'], ['y']]])), DRAWN);
  t.deepEqual(kinds(await drawnIn([['Dropout', ['x'], ['y']]])), DRAWN);
  t.deepEqual(kinds(await drawnIn([['Dropout', ['x', 'half', 'on'], ['y']]])), DRAWN);
  const masked = await drawnIn([['Dropout', ['x', 'half'], ['y', 'mask']]], 17, ['y', 'mask']);
  t.deepEqual(kinds(masked), [...DRAWN, 'Identity']);
  const results = await runGraph(masked, { x: constant('float32', [1, 1, 1, 1, 1, 1], [2, 3]) });
  const [y, mask] = [results['y'], results['mask']];
  if (!y || !mask) return t.fail('no results');
  t.deepEqual(
    numbersOf(y),
    numbersOf(mask).map((kept) => 2 * kept),
  );
});

test('a ratio of zero drops nothing, and a model that infers has none of it', async (t) => {
  t.deepEqual(
    kinds(
      await drawnIn([
        ['Dropout', ['x', 'none'], ['d']],
        ['Neg', ['d'], ['y']],
      ]),
    ),
    ['Neg'],
  );
  const file = await saved(
    model({
      ...MODEL,
      node: [node('Dropout', ['x', 'half'], ['d']), node('Neg', ['d'], ['y'])],
      output: [value('y', [2, 3])],
    }),
  );
  t.deepEqual(kinds((await importModel(file)).graph), ['Neg']);
});

test('Dropout whose mode the data says stays, and its gradient reads its mask', async (t) => {
  const file = await saved(
    model({
      node: [
        node('Mul', ['x', 'w'], ['h']),
        node('Dropout', ['h', 'half', 'mode'], ['d']),
        node('ReduceSum', ['d'], ['y'], { keepdims: 0 }),
      ],
      initializer: [tensor('w', [2, 3], [1, 2, 3, 4, 5, 6]), tensor('half', [], [0.5])],
      input: [value('x', [2, 3]), value('mode', [], 'bool')],
      output: [value('y', [])],
    }),
  );
  const { graph: imported } = await importModel(file, { forTraining: true });
  const { graph, drawn } = drawDropout(imported, 0);
  t.is(drawn, 0);
  t.throws(() => differentiate(graph, 'y', ['w']), { message: /reads out1/ });
  const { graph: both, gradients } = differentiate(keepMasks(graph), 'y', ['w']);
  const x = noise([2, 3]);
  const off = await runGraph(both, { x, mode: constant('bool', [0]) }, [gradients.get('w') ?? '']);
  t.deepEqual(off[gradients.get('w') ?? ''], x);
});
