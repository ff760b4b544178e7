/**
 * @file The ONNX target without Python: models of ranks in ONNX Runtime, where none communicates; ranks share equal models; and
 * what is refused.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { AutoparError, type CompileOptions, compile, type Training } from '../../../src/api/index.js';
import { openCompiled } from '../../../src/api/verify.js';
import { decodeModel } from '../../../src/ir/onnx/schema.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { cutShard } from '../../../src/program/shards.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { difference } from '../../pipelines/difference.js';

const TRAINING: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } };

interface Index {
  readonly ranks: readonly {
    readonly file: string;
    readonly outputs: readonly { readonly boxes: readonly { readonly offset: readonly number[] }[] }[];
  }[];
}

const folder = () => join(mkdtempSync(join(tmpdir(), 'autopar-onnx-')), 'out');

test('the model of a rank that talks to no other runs in ONNX Runtime, its weights beside it', async (t) => {
  const output = folder();
  await compile({ model: 'models/mlp.onnx', output, target: 'onnx', devices: 2, dp: 2, tp: 1, axes: 'roles' });
  const { imported, program } = await openCompiled(output);
  const inputs = randomInputs(imported.graph, 1, {});
  const [whole = []] = Object.values(await runOnnx('models/mlp.onnx', inputs)).map((value) => [value]);
  const index = JSON.parse(readFileSync(join(output, 'onnx', 'index.json'), 'utf8')) as Index;
  t.deepEqual(
    index.ranks.map(({ file }) => file),
    ['rank-0.onnx', 'rank-0.onnx'],
  );
  for (const [rank, { file, outputs }] of index.ranks.entries()) {
    const feeds = Object.fromEntries(
      program.inputs.map(({ name, tensor }) => {
        const value = inputs[name];
        const local = program.stages[0]?.tensors[tensor];
        if (!value || !local) throw new Error(name);
        const data = cutShard(value.data, value.shape, value.dtype, local.layout, program.mesh, rank);
        return [tensor, { dtype: value.dtype, shape: local.localShape, data }];
      }),
    );
    const [made] = Object.values(await runOnnx(join(output, 'onnx', file), feeds));
    if (!made || !whole[0]) return t.fail();
    const got = numbersOf(made).map(Number);
    const [from = 0] = outputs[0]?.boxes[0]?.offset ?? [];
    t.is(from, (rank * (whole[0].shape[0] ?? 0)) / 2);
    t.true(
      difference(
        numbersOf(whole[0])
          .map(Number)
          .slice(rank * got.length, (rank + 1) * got.length),
        got,
      ) < 1e-6,
    );
  }
});

test('the annotated model and the models of ranks name their devices, groups and versions', async (t) => {
  const output = folder();
  await compile({ model: 'models/gpt-tiny.onnx', output, target: 'onnx', devices: 4, dp: 2, tp: 2, axes: 'roles' });
  const read = (name: string) => decodeModel(readFileSync(join(output, 'onnx', name)));
  t.deepEqual(
    readdirSync(join(output, 'onnx')).filter((name) => name.startsWith('rank')),
    ['rank-0.onnx', 'rank-1.onnx'],
  );
  const reduce = read('rank-1.onnx').graph?.node?.find(({ domain }) => domain === 'autopar');
  const groups = reduce?.attribute?.find(({ name }) => name === 'groups')?.ints?.map(Number);
  t.deepEqual([reduce?.op_type, groups], ['AllReduce', [0, 1, 2, 3]]);
  const annotated = read('model.onnx');
  t.deepEqual([annotated.ir_version, annotated.configuration?.[0]?.num_devices].map(Number), [11, 4]);
});

const REFUSED: readonly (readonly [RegExp, Partial<CompileOptions>])[] = [
  [/micro-batches/, { devices: 1, training: { ...TRAINING, microBatches: 2 } }],
  [/transfers from a later stage/, { pp: 2, training: { ...TRAINING, microBatches: 1 } }],
  // Of several stages none can be trained, in however many micro-batches.
  [/training over several stages/, { pp: 2, training: { ...TRAINING, microBatches: 2 } }],
  [/parameter server/, { dp: 2, training: TRAINING, gradientSync: 'parameter-server' }],
];

for (const [says, options] of REFUSED)
  test(`refused by name, and nothing is written: ${says.source}`, async (t) => {
    const output = folder();
    const error = await t.throwsAsync(compile({ model: 'models/gpt-tiny.onnx', output, target: 'onnx', ...options }), {
      instanceOf: AutoparError,
    });
    t.is(error?.code, 'target-lacks-plan');
    t.regex(error?.message ?? '', says);
    t.false(existsSync(output));
  });
