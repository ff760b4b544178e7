import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { annotationsOf } from '../../src/api/requests/annotations.js';
import { runCompiled } from '../../src/api/run.js';
import { compareTensors } from '../../src/api/verification/compare.js';
import { makeTensor } from '../../src/api/verification/numbers.js';
import { verify } from '../../src/api/verify.js';
import { AutoparError } from '../../src/ir/error.js';
import { constant } from '../../src/ir/ops/constants.js';
import { writeNpz } from '../../src/program/arrays/npz.js';
import { slowTests } from '../selection.js';

const models = fileURLToPath(new URL('../../../models/', import.meta.url));

async function inFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(path.join(tmpdir(), 'autopar-verify-'));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const SHIPPED = ['llama-tiny', 'gpt-tiny', 'mlp', 'cnn-tiny'];
const DEGREES = [{ dp: 2 }, { tp: 2 }, { dp: 2, tp: 2 }];

for (const model of SHIPPED) {
  slowTests(test, !['mlp', 'gpt-tiny'].includes(model))(
    `${model} computes the same on two and four ranks, inside and out`,
    async (t) => {
      await inFolder(async (folder) => {
        for (const degrees of DEGREES) {
          const directory = path.join(folder, JSON.stringify(degrees).replace(/\W/g, ''));
          await compile({ model: path.join(models, `${model}.onnx`), output: directory, degrees, axes: 'roles' });
          const result = await verify({ directory, tensors: true });
          t.true(result.passed, JSON.stringify({ degrees, result }));
          t.is(result.reference, 'the model file in ONNX Runtime');
        }
      });
    },
  );
}

test('what stages pass on is a part of a micro-batch, not compared with a tensor of the whole batch', async (t) => {
  await inFolder(async (directory) => {
    const training = {
      loss: { kind: 'cross_entropy' },
      optimizer: { kind: 'sgd', learningRate: 1e-3 },
      microBatches: 2,
    } as const;
    await compile({ model: path.join(models, 'gpt-tiny.onnx'), output: directory, degrees: { pp: 2 }, training });
    const { passed, tensors = [] } = await verify({ directory, tensors: true });
    t.true(passed, JSON.stringify(tensors.filter((tensor) => !tensor.passed)));
  });
});

test('a weight shard that is wrong by a little is found', async (t) => {
  await inFolder(async (folder) => {
    const directory = path.join(folder, 'out');
    await compile({ model: path.join(models, 'mlp.onnx'), output: directory, degrees: { tp: 2 }, axes: 'roles' });
    const weights = path.join(directory, 'program', 'weights');
    const file = (await readdir(weights)).find((name) => name.endsWith('-1.safetensors'));
    t.truthy(file);
    const bytes = await readFile(path.join(weights, file as string));
    const position = bytes.byteLength - 64;
    bytes.writeFloatLE(bytes.readFloatLE(position) + 1, position);
    await writeFile(path.join(weights, file as string), bytes);
    const result = await verify({ directory });
    t.false(result.passed);
    const [worst] = result.outputs;
    t.true((worst?.outside ?? 0) > 0 && (worst?.where.length ?? 0) === 2);
  });
});

test('inputs that are no rows of the table that they index are refused by run and verify, whatever the plan', async (t) => {
  await inFolder(async (folder) => {
    const inputs = path.join(folder, 'ids.npz');
    const ids = (value: number) =>
      writeFile(
        inputs,
        writeNpz({ ids: constant('int64', [...Array(37).fill(5), value, ...Array(26).fill(0)], [4, 16]) }),
      );
    const byVocabulary = annotationsOf({
      version: 1,
      mesh: { tp: 2 },
      pins: [{ match: { node: '/wte/Gather' }, factors: { v: 'tp' } }],
    });
    for (const [name, plan] of [
      ['samples', { degrees: { dp: 2 } }],
      ['vocabulary', { annotations: byVocabulary }],
    ] as const) {
      const directory = path.join(folder, name);
      await compile({ model: path.join(models, 'gpt-tiny.onnx'), output: directory, devices: 2, ...plan });
      for (const value of [64, -65]) {
        await ids(value);
        for (const work of [runCompiled, verify]) {
          const error = await t.throwsAsync<AutoparError>(work({ directory, inputs }), { instanceOf: AutoparError });
          t.is(error?.code, 'token-out-of-range');
          t.is(error?.message, `ids[2, 5] is ${value}, and the table that it indexes has 64 rows`);
          t.deepEqual([error?.where, error?.hint], [{ tensor: 'ids', file: inputs }, 'its values are -64 to 63']);
        }
      }
      // ONNX counts rows from the end where they are negative.
      const last: unknown[] = [];
      for (const value of [63, -1]) {
        await ids(value);
        last.push((await runCompiled({ directory, inputs })).outputs['logits']?.data);
      }
      t.deepEqual(last[0], last[1]);
    }
  });
});

test('equal runs write equal bytes', async (t) => {
  await inFolder(async (folder) => {
    const [first, second] = [path.join(folder, 'a'), path.join(folder, 'b')];
    const model = path.join(models, 'llama-tiny.onnx');
    await compile({ model, output: first, degrees: { dp: 2, tp: 2 } });
    await compile({ model, output: second, degrees: { dp: 2, tp: 2 } });
    for (const file of ['plan.json', 'program/program.json']) {
      t.is(await readFile(path.join(first, file), 'utf8'), await readFile(path.join(second, file), 'utf8'));
    }
    t.deepEqual(
      (await readdir(path.join(first, 'program/segments'))).sort(),
      (await readdir(path.join(second, 'program/segments'))).sort(),
    );
  });
});

test('equal layers share their segments', async (t) => {
  await inFolder(async (folder) => {
    const directory = path.join(folder, 'out');
    await compile({ model: path.join(models, 'gpt-tiny.onnx'), output: directory, degrees: { dp: 2 } });
    const program = JSON.parse(await readFile(path.join(directory, 'program/program.json'), 'utf8'));
    const used = program.stages[0].phases.forward.filter((entry: { kind: string }) => entry.kind === 'compute');
    t.true(Object.keys(program.stages[0].segments).length < used.length);
  });
});

const tolerance = { relative: 1e-3, absolute: 1e-4 };
const floats = (...values: number[]) => makeTensor({ dtype: 'float32', shape: [values.length] }, (i) => values[i] ?? 0);

test('NaN equals NaN in the same place only; infinities must be equal', (t) => {
  const expected = floats(1, Number.NaN, Infinity);
  t.true(compareTensors('y', floats(1, Number.NaN, Infinity), expected, tolerance).passed);
  t.false(compareTensors('y', floats(Number.NaN, 1, Infinity), expected, tolerance).passed);
  t.false(compareTensors('y', floats(1, Number.NaN, -Infinity), expected, tolerance).passed);
  t.false(compareTensors('y', floats(1, Number.NaN, 3e38), expected, tolerance).passed);
});

test('the worst element is named by its position', (t) => {
  const expected = makeTensor({ dtype: 'float32', shape: [2, 3] }, () => 1);
  const actual = makeTensor({ dtype: 'float32', shape: [2, 3] }, (i) => (i === 4 ? 1.5 : 1.0005));
  const comparison = compareTensors('y', actual, expected, tolerance);
  t.deepEqual(comparison.where, [1, 1]);
  t.is(comparison.outside, 1);
  t.is(comparison.worstAbsolute, 0.5);
});

test('a tie is counted as such, not as a difference', (t) => {
  const [actual, expected] = [
    [0, 2],
    [1, 2],
  ].map((values) => makeTensor({ dtype: 'int64', shape: [2] }, (i) => values[i] ?? 0));
  if (!actual || !expected) return t.fail();
  const exact = { relative: 0, absolute: 0 };
  t.false(compareTensors('y', actual, expected, exact).passed);
  const tied = compareTensors('y', actual, expected, exact, (index) => index === 0);
  t.true(tied.passed);
  t.is(tied.ties, 1);
});
