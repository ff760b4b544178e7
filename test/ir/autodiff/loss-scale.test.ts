/**
 * @file Scaled losses: gradients are what they are without a scale; a step whose gradients overflow changes nothing but the
 * scale.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import type { OptimizerOptions } from '../../../src/ir/autodiff/optimizer-options.js';
import { type TrainingOptions, trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import type { Graph, Weight } from '../../../src/ir/graph.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { takeSteps } from './take-steps.js';

const [ROWS, INNER, CLASSES] = [4, 3, 2];
const OPTIMIZER: OptimizerOptions = { kind: 'adam', learningRate: 0.1 };
const X = constant('float32', [1, 2, 3, -1, 0.5, 2, 0, 1, -2, 1, 1, 1], [ROWS, INNER]);
const LABELS = constant('int64', [0, 1, -100, 1], [ROWS]);

function made(options: Partial<TrainingOptions>): Graph {
  const build = new GraphBuilder('linear', 1);
  const x = build.input('x', 'float32', [ROWS, INNER]);
  build.output('y', build.operator('MatMul', [x, build.parameter('w', [INNER, CLASSES])]));
  return trainingGraph(build.build(), { loss: { kind: 'cross_entropy' }, optimizer: OPTIMIZER, ...options }).graph;
}

/** The graph with another value of a scalar before the first step. */
function startingAt(graph: Graph, name: string, value: number): Graph {
  const weight = graph.initial?.get(name);
  if (!weight) throw new Error(`no state ${name}`);
  const { data } = constant('float32', [value]);
  const initial = new Map<string, Weight>(graph.initial).set(name, { ...weight, source: { kind: 'inline', data } });
  return { ...graph, initial };
}

const feeds = [{ x: X, labels: LABELS }];
const numbers = (value: Parameters<typeof numbersOf>[0] | undefined) => (value ? numbersOf(value) : []);

test('a scale of the loss leaves weights as they become without one', async (t) => {
  for (const optimizer of [OPTIMIZER, { ...OPTIMIZER, clipNorm: 0.2 }]) {
    const plain = await takeSteps(made({ optimizer }), feeds, 3);
    for (const lossScale of [1024, 'dynamic'] as const) {
      const scaled = await takeSteps(made({ optimizer, lossScale }), feeds, 3);
      for (const [index, loss] of plain.losses.entries()) t.true(Math.abs((scaled.losses[index] ?? 9) - loss) < 1e-6);
      const [wanted, got] = [numbers(plain.state['w']), numbers(scaled.state['w'])];
      t.true(wanted.length > 0 && wanted.every((value, index) => Math.abs(value - (got[index] ?? 9)) < 1e-5));
    }
  }
});

test('a step whose gradients overflow is not taken, and the scale is halved', async (t) => {
  const graph = made({ precision: 'fp16', isHeldInFloat32: true });
  const first = initialOf(graph, 'w');
  t.deepEqual(initialOf(graph, 'optimizer/loss-scale'), [65536]);
  const { state, losses } = await takeSteps(startingAt(graph, 'optimizer/loss-scale', 2 ** 30), feeds, 1);
  t.true(Number.isFinite(losses[0]));
  t.deepEqual(numbers(state['w']), first);
  t.deepEqual(
    numbers(state['w/mean']),
    first.map(() => 0),
  );
  t.deepEqual(numbers(state['optimizer/step']), [0], 'it does not count');
  t.deepEqual(numbers(state['optimizer/loss-scale']), [2 ** 29]);
  t.deepEqual(numbers(state['optimizer/good-steps']), [0]);
});

test('a scale grows after two thousand good steps', async (t) => {
  const { state } = await takeSteps(
    startingAt(made({ precision: 'fp16', isHeldInFloat32: true }), 'optimizer/good-steps', 1998),
    feeds,
    1,
  );
  t.deepEqual(numbers(state['optimizer/loss-scale']), [65536]);
  t.deepEqual(numbers(state['optimizer/good-steps']), [1999]);
  const grown = await takeSteps(
    startingAt(made({ precision: 'fp16', isHeldInFloat32: true }), 'optimizer/good-steps', 1999),
    feeds,
    1,
  );
  t.deepEqual(numbers(grown.state['optimizer/loss-scale']), [131072]);
  t.deepEqual(numbers(grown.state['optimizer/good-steps']), [0]);
  t.deepEqual(numbers(grown.state['optimizer/step']), [1]);
});

function initialOf(graph: Graph, name: string): readonly number[] {
  const weight = graph.initial?.get(name);
  return weight?.source.kind === 'inline' ? numbersOf({ ...weight, data: weight.source.data }) : [];
}
