/**
 * @file Models in evaluation form are trained as PyTorch trains what their authors wrote: batch statistics, dropout with our
 * masks, parameters by place. The reference gets the author's model; autopar gets what an exporter makes of it, with equal
 * initial values stored once and a tied head as a transposed copy.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { gpt } from '../../models/gpt.js';
import { normalisedCnn } from '../../models/normalised-cnn.js';
import { sharedLayers } from '../../models/shared-layers.js';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import type { Training } from '../../src/api/models/training.js';
import { runGraph } from '../../src/api/verification/reference.js';
import { openCompiled } from '../../src/api/verify.js';
import type { ConstantTensor, Graph } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { maskOf } from '../ir/autodiff/dropout-masks.js';
import { missing } from '../missing.js';
import { relativeError } from './norms.js';
import { type Arrays, startTorch, type Torch, torchAbsence } from './torch.js';

const STEPS = 10;
const SEED = 5;

/** A model as its author wrote it and as an exporter does. */
interface Form {
  readonly name: string;
  readonly build: (exported: boolean) => Graph;
  /** Parameters with parts that the loss does not depend on: Adam makes steps of full length of their rounding. */
  readonly loose?: RegExp;
}

/** Results of training on a mesh. */
interface Run {
  readonly graph: Graph;
  readonly arrays: Arrays;
  readonly tensors: Arrays;
  readonly losses: readonly number[];
}

const image = { batch: 8, channels: 3, size: 8, widths: [4, 8], classes: 6, dropout: 0.25 };
const FORMS: readonly Form[] = [
  { name: 'cnn-fresh', build: (exported) => normalisedCnn('cnn', { ...image, fresh: true, exported }, 1) },
  { name: 'cnn-trained', build: () => normalisedCnn('cnn', image, 2) },
  {
    name: 'shared-layers',
    build: (exported) =>
      sharedLayers('shared', { batch: 4, sequence: 6, width: 8, vocabulary: 16, calls: 3, dropout: 0.2, exported }, 3),
  },
  {
    name: 'gpt',
    // A number that is added to all keys alike moves no score.
    loose: /attn\.c_attn\.bias$/,
    build: () => gpt('gpt', { batch: 4, sequence: 8, layers: 2, width: 16, heads: 2, vocabulary: 32, dropout: 0.1 }, 4),
  },
];

const OPTIMIZERS: readonly Training['optimizer'][] = [
  { kind: 'sgd', learningRate: 0.05, momentum: 0.9 },
  { kind: 'adamw', learningRate: 2e-3 },
];

const DEGREES = [
  { dp: 1, tp: 1 },
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 2, tp: 2 },
];

const absence = torchAbsence();
if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always(() => {
    torch.close();
    rmSync(folder, { recursive: true, force: true });
  });

  for (const { name, build, loose } of FORMS) {
    const file = join(folder, `${name}.onnx`);
    writeFileSync(file, writeOnnx(build(true)));
    const written = build(false);
    const author = writeOnnx(written);

    test.serial(`${name}: gradients of all parameters`, async (t) => {
      // At rate 1 a step of gradient descent moves a weight by its gradient.
      const training: Training = {
        loss: { kind: 'cross_entropy' },
        optimizer: { kind: 'sgd', learningRate: 1 },
        dropoutSeed: SEED,
      };
      const output = join(folder, `${name}-gradients`);
      await compile({ model: file, output, force: true, training, devices: 1 });
      const { graph } = (await openCompiled(output)).imported;
      const arrays = randomInputs(graph, 3);
      const after = await runGraph(graph, arrays);
      const trained = trainedIn(graph);
      const expected = await torch.evaluate({
        model: author,
        parameters: trained,
        training: true,
        arrays: { ...arrays, ...masksOf(written, 0) },
        loss: { kind: 'cross_entropy', output: 'logits', labels: 'labels' },
      });
      t.deepEqual([...trained].sort(), [...parametersIn(written)].sort(), 'the parameters are those of the author');
      const worst = trained.map((weight) => {
        const next = after[pairOf(graph, weight)];
        const [own, gradient] = [next && moved(graph, weight, next), expected.gradients[weight]];
        return own && gradient ? relativeError(own, gradient) : Number.NaN;
      });
      t.true(Math.max(...worst) < 1e-3, `${trained[worst.indexOf(Math.max(...worst))]}: ${Math.max(...worst)}`);
      t.log(`worst of ${trained.length} gradients: ${Math.max(...worst).toExponential(1)}`);
    });

    for (const optimizer of OPTIMIZERS) {
      test.serial(`${name}: ${STEPS} steps of ${optimizer.kind} on every mesh`, async (t) => {
        const training: Training = { loss: { kind: 'cross_entropy' }, optimizer, dropoutSeed: SEED };
        const runs: Run[] = [];
        for (const degrees of DEGREES) {
          const output = join(folder, `${name}-${degrees.dp}-${degrees.tp}`);
          await compile({
            ...{ model: file, output, force: true, training, devices: degrees.dp * degrees.tp, degrees, axes: 'roles' },
          });
          const { graph } = (await openCompiled(output)).imported;
          const arrays = randomInputs(graph, 3);
          const collect = graph.state.map((pair) => pair.output);
          const { history, tensors } = await runProgram(output, arrays, { steps: STEPS, collect });
          runs.push({ graph, arrays, tensors, losses: history['loss'] ?? [] });
        }
        const [alone, ...shared] = runs;
        if (!alone) return t.fail('no run');
        const trained = trainedIn(alone.graph);
        const expected = await torch.train({
          model: author,
          parameters: trained,
          training: true,
          batches: Array.from({ length: STEPS }, (_, step) => ({ ...alone.arrays, ...masksOf(written, step) })),
          steps: STEPS,
          loss: { kind: 'cross_entropy', output: 'logits', labels: 'labels' },
          optimizer: {
            name: optimizer.kind,
            learningRate: optimizer.learningRate,
            ...(optimizer.momentum === undefined ? {} : { momentum: optimizer.momentum }),
            ...(optimizer.kind === 'adamw' ? { weightDecay: 0.01 } : {}),
            undecayed: trained.filter((weight) => (alone.graph.tensors.get(weight)?.shape.length ?? 0) < 2),
          },
        });
        t.is(alone.losses.length, STEPS);
        const off = (got: readonly number[], wanted: readonly number[]) =>
          Math.max(...wanted.map((loss, step) => Math.abs((got[step] ?? Number.NaN) - loss) / Math.abs(loss)));
        const fromTorch = off(alone.losses, expected.losses);
        const fromAlone = Math.max(...shared.map(({ losses }) => off(losses, alone.losses)));
        t.true(fromTorch < 1e-3, `losses differ by ${fromTorch}`);
        t.true(fromAlone < 1e-5, `losses of meshes differ by ${fromAlone}`);
        const worst = { parameters: 0, statistics: 0 };
        for (const { graph, tensors } of runs) {
          for (const [kind, wanted] of Object.entries({
            parameters: expected.parameters,
            statistics: expected.statistics,
          }) as ['parameters' | 'statistics', Arrays][]) {
            for (const [weight, value] of Object.entries(wanted)) {
              if (optimizer.kind === 'adamw' && loose?.test(weight)) continue;
              const own = tensors[pairOf(graph, weight)];
              const error = own ? relativeError(own, value) : Number.NaN;
              t.true(error < 1e-3, `${weight}: ${error}`);
              worst[kind] = Math.max(worst[kind], error);
            }
          }
        }
        t.is(Object.keys(expected.statistics).length, statisticsIn(alone.graph).length);
        t.log(
          `losses ${fromTorch.toExponential(1)} from PyTorch, ${fromAlone.toExponential(1)} between meshes; ` +
            `parameters ${worst.parameters.toExponential(1)}, statistics ${worst.statistics.toExponential(1)}`,
        );
      });
    }
  }
}

/** The name that state has after a step. */
function pairOf(graph: Graph, input: string): string {
  const pair = graph.state.find((item) => item.input === input);
  if (!pair) throw new Error(`${input} is no state`);
  return pair.output;
}

function trainedIn(graph: Graph): readonly string[] {
  return [...(graph.initial ?? [])].flatMap(([name, { role }]) => (role === 'parameter' ? [name] : []));
}

function statisticsIn(graph: Graph): readonly string[] {
  return graph.state.flatMap(({ input }) => (/running_(mean|var)/.test(input) ? [input] : []));
}

/** Parameters of the author's model: all weights but statistics and constants. */
function parametersIn(graph: Graph): readonly string[] {
  return [...graph.weights].flatMap(([name, { role }]) =>
    role === 'parameter' && !/running_(mean|var)/.test(name) ? [name] : [],
  );
}

/** Elements that every dropout of the author's model keeps in a step, as the reference takes them. */
function masksOf(graph: Graph, step: number): Arrays {
  const dropouts = graph.nodes.filter(({ op }) => op === 'Dropout');
  return Object.fromEntries(
    dropouts.map((node, index) => {
      const [result, ratio] = [node.outputs[0] ?? '', graph.weights.get(node.inputs[1] ?? '')];
      if (ratio?.source.kind !== 'inline') throw new Error('a ratio is a constant');
      const shape = graph.tensors.get(result)?.shape ?? [];
      const [share = 0] = numbersOf({ ...ratio, data: ratio.source.data });
      return [`mask ${result}`, maskOf({ shape, ratio: share, ordinal: index + 1, step, seed: SEED })] as const;
    }),
  );
}

/** The change of a weight by a step: before minus after. */
function moved(graph: Graph, weight: string, after: ConstantTensor): ConstantTensor {
  const before = graph.initial?.get(weight);
  if (before?.source.kind !== 'inline') throw new Error(`${weight} has no first value`);
  const [first, last] = [numbersOf({ ...before, data: before.source.data }), numbersOf(after)];
  return constant(
    'float32',
    first.map((value, index) => value - (last[index] ?? Number.NaN)),
    after.shape,
  );
}
