/**
 * @file Gradients that ranks add up: those of each rank's samples alone, in a graph of its own, added up.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import type { LossOptions } from '../../../src/ir/autodiff/append-loss.js';
import { type TrainingOptions, trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import { AutoparError } from '../../../src/ir/error.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { takeSteps } from './take-steps.js';

const [INNER, CLASSES] = [3, 2];
const VALUES = [1, 2, 3, -1, 0.5, 2, 0, 1, -2, 1, 1, 1];
const LABELS = [0, 1, 1, 0];
const RATE = 0.1;

function made(rows: number, loss: LossOptions, options: Partial<TrainingOptions> = {}) {
  const build = new GraphBuilder('linear', 1);
  const x = build.input('x', 'float32', [rows, INNER]);
  const y = build.operator('MatMul', [x, build.parameter('w', [INNER, CLASSES])]);
  const isOwn = loss.kind === 'model-output';
  build.output('y', isOwn ? build.operator('ReduceSum', [build.operator('Mul', [y, y])], { keepdims: 0 }) : y);
  return trainingGraph(build.build(), { loss, optimizer: { kind: 'sgd', learningRate: RATE }, ...options });
}

/** The samples of a rank. */
const fed = (loss: LossOptions['kind'], from: number, rows: number) => ({
  x: constant('float32', VALUES.slice(from * INNER, (from + rows) * INNER), [rows, INNER]),
  ...(loss === 'mse'
    ? {
        target: constant('float32', VALUES.slice(0, 4 * CLASSES).slice(from * CLASSES, (from + rows) * CLASSES), [
          rows,
          CLASSES,
        ]),
      }
    : { labels: constant('int64', LABELS.slice(from, from + rows), [rows]) }),
});

for (const kind of ['cross_entropy', 'mse'] as const)
  for (const scaled of [{}, { lossScale: 256, inSums: true }] as const)
    test(`gradients are the sum of the ranks', the loss is the mean: ${kind} ${JSON.stringify(scaled)}`, async (t) => {
      const ranks = await Promise.all(
        [0, 2].map(async (from) => {
          const { graph, gradients, loss, divisor } = made(2, { kind });
          const name = gradients.get('w') ?? '';
          const inputs = named(graph.inputs, fed(kind, from, 2));
          const results = await runGraph(graph, inputs, [name, ...(divisor === null ? [] : [divisor])]);
          const numbers = (tensor: string) => numbersOf(results[tensor] as never);
          const [by = 1] = divisor === null ? [1] : numbers(divisor);
          return { gradient: numbers(name).map((own) => own / by), loss: numbers(loss)[0] ?? 0 };
        }),
      );
      const { graph } = made(4, { kind }, { summedOver: 2, ...scaled });
      const first = initialOf(graph);
      const { losses, state } = await takeSteps(graph, [named(graph.inputs, fed(kind, 0, 4))], 1);
      t.true(Math.abs((losses[0] ?? 9) - ranks.reduce((sum, own) => sum + own.loss, 0) / 2) < 1e-6);
      const after = numbersOf(state['w'] as never);
      for (const [index, value] of first.entries()) {
        const sum = ranks.reduce((all, { gradient }) => all + (gradient[index] ?? Number.NaN), 0);
        t.true(Math.abs((after[index] ?? 9) - (value - RATE * sum)) < 1e-5, `${index}`);
        t.true(Math.abs(sum) > 1e-3);
      }
    });

test('a loss that is no mean is refused, but on one rank', (t) => {
  const error = t.throws(() => made(4, { kind: 'model-output' }, { summedOver: 2 }), { instanceOf: AutoparError });
  t.is(error?.code, 'bad-option');
  t.regex(error?.message ?? '', /--gradient-reduction sum .* the loss 'y' is a sum/);
  t.notThrows(() => made(4, { kind: 'model-output' }, { summedOver: 1 }));
});

/** Inputs by the names that the graph has for them. */
function named(inputs: readonly string[], { x, ...others }: Readonly<Record<string, ReturnType<typeof constant>>>) {
  const label = inputs.find((name) => /label|target/.test(name)) ?? '';
  return { x: x as ReturnType<typeof constant>, [label]: Object.values(others)[0] as ReturnType<typeof constant> };
}

function initialOf({ initial }: ReturnType<typeof made>['graph']): readonly number[] {
  const weight = initial?.get('w');
  if (weight?.source.kind !== 'inline') throw new Error('no value of w');
  return numbersOf({ dtype: weight.dtype, shape: weight.shape, data: weight.source.data });
}
