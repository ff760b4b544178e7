/**
 * @file Parameters of names that have a meaning in a torch module or in Python, and of stages that share a path.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { compile } from '../../../src/api/index.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { readNpz, writeNpz } from '../../../src/program/arrays/npz.js';
import { missing } from '../../missing.js';
import { torchAbsence } from '../../reference/torch.js';
import { python } from './emitted.js';

const absence = torchAbsence('numpy', 'safetensors');
const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

/** Attributes and methods, numbers with a zero ahead, and parameters that are a module of other ones too. */
const NAMES = [
  ...'to_empty get_buffer register_module.w load_state_dict T_destination run_forward forward_1 class'.split(' '),
  ...'w.00 w.0 a a.b a_.b c.d.e c.d c'.split(' '),
];

const told = missing(absence !== null, `names in torch programs (${absence})`);
const tested = told ? test.skip : test;

tested('parameters may have any names', async (t) => {
  const builder = new GraphBuilder('names', 1);
  let sum = builder.input('x', 'float32', [2, 4]);
  for (const [index, name] of NAMES.entries())
    sum = builder.operator('Add', [sum, builder.constant(name, constant('float32', Array(4).fill(2 ** index), [4]))]);
  builder.output('y', sum);
  const model = join(folder, 'names.onnx');
  writeFileSync(model, writeOnnx(builder.build()));
  const output = join(folder, 'names');
  await compile({ model, output, devices: 1, target: 'torch' });
  const [inputs, outputs] = [join(folder, 'inputs.npz'), join(folder, 'outputs.npz')];
  writeFileSync(inputs, writeNpz({ x: constant('float32', Array(8).fill(0), [2, 4]) }));
  python([join(output, 'torch', 'main.py'), '--device', 'cpu', '--inputs', inputs, '--outputs', outputs]);
  const { y } = readNpz(readFileSync(outputs), outputs);
  t.deepEqual(y && numbersOf(y), Array(8).fill(2 ** NAMES.length - 1));
});

tested('the state has every weight, where two stages have parts of one layer', async (t) => {
  const builder = new GraphBuilder('apart', 1);
  let y = builder.input('x', 'float32', [2, 4]);
  const weights = ['a', 'b', 'c', 'd'].map((name, index) => [name, Array(16).fill(index + 1)] as const);
  const constants = weights.map(([name, values]) => builder.constant(name, constant('float32', values, [4, 4])));
  for (const [index, weight] of constants.entries())
    builder.within('layers', () =>
      builder.within(`${Math.floor(index / 2)}`, () => {
        y = builder.operator('Relu', [builder.operator('MatMul', [y, weight])]);
      }),
    );
  builder.output('y', y);
  const model = join(folder, 'apart.onnx');
  writeFileSync(model, writeOnnx(builder.build()));
  const output = join(folder, 'apart');
  await compile({ model, output, devices: 4, pp: 4, target: 'torch' });
  const state = join(folder, 'state.npz');
  const launch = ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '4'];
  python([...launch, join(output, 'torch', 'main.py'), '--device', 'cpu', '--state', state]);
  const found = Object.entries(readNpz(readFileSync(state), state));
  t.deepEqual(new Map(found.map(([name, value]) => [name, numbersOf(value)])), new Map(weights));
});

for (const named of ['weight', 'output'] as const)
  tested(`the ${named} of a model may have the name of a step's number`, async (t) => {
    const builder = new GraphBuilder('step', 1);
    const x = builder.input('x', 'float32', [2, 4]);
    const ones = constant('float32', Array(16).fill(1), [4, 4]);
    const y = builder.operator('MatMul', [x, builder.constant(named === 'weight' ? 'step' : 'w', ones)]);
    builder.output('loss', builder.operator('ReduceMean', [y], { keepdims: 0 }));
    if (named === 'output') builder.output('step', builder.operator('ReduceMax', [y], { keepdims: 0 }));
    const model = join(folder, `step-${named}.onnx`);
    writeFileSync(model, writeOnnx(builder.build()));
    const output = join(folder, named);
    const loss = { kind: 'model-output', output: 'loss' } as const;
    const training = { loss, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
    await compile({ model, output, devices: 1, target: 'torch', training });
    const [inputs, metrics, saved] = [join(output, 'x.npz'), join(output, 'metrics.csv'), join(output, 'saved')];
    writeFileSync(inputs, writeNpz({ x: constant('float32', Array(8).fill(1), [2, 4]) }));
    const main = [join(output, 'torch', 'main.py'), '--device', 'cpu', '--inputs', inputs, '--metrics', metrics];
    python([...main, '--steps', '2', '--save', saved]);
    const rows = readFileSync(metrics, 'utf8').trim().split(/\r?\n/);
    t.deepEqual(
      rows.map((row) => row.split(',')[0]),
      ['step', '1', '2'],
    );
    t.regex(python([...main, '--resume', saved]), /^step 3 /m);
  });
