/**
 * @file Inputs of emitted programs that are no rows of a table, or no classes: each rank ends before the first step.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../../src/api/index.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { writeNpz } from '../../../src/program/arrays/npz.js';
import { missing } from '../../missing.js';
import { torchAbsence } from '../../reference/torch.js';
import { python } from './emitted.js';

const absence = torchAbsence('numpy', 'safetensors');
const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const told = missing(absence !== null, `inputs of torch programs (${absence})`);
(told ? test.skip : test)(
  'a value out of range is named in one line, with its place and what is expected',
  async (t) => {
    const output = join(folder, 'gpt');
    const training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
    await compile({ model: 'models/gpt-tiny.onnx', output, devices: 1, training, target: 'torch' });
    const file = join(folder, 'inputs.npz');
    const run = (ids: number, labels: number) => {
      const array = (value: number) => constant('int64', [...Array(37).fill(5), value, ...Array(26).fill(0)], [4, 16]);
      writeFileSync(file, writeNpz({ ids: array(ids), labels: array(labels) }));
      return python([join(output, 'torch', 'main.py'), '--device', 'cpu', '--inputs', file]);
    };
    // A program of one rank needs no port: that of PyTorch's default may be another program's.
    const other = createServer();
    await new Promise<void>((resolve) => other.once('error', () => resolve()).listen(29500, '127.0.0.1', resolve));
    t.teardown(() => other.close());
    t.regex(run(63, -100), /^step 1 loss/m);
    for (const [ids, labels, says] of [
      [0, 500, 'labels[2, 5] is 500, and its values are 0 to 63, or -100'],
      [64, 0, 'ids[2, 5] is 64, and its values are 0 to 63'],
      [-1, 0, 'ids[2, 5] is -1, and its values are 0 to 63'],
    ] as const) {
      const message = t.throws(() => run(ids, labels))?.message ?? '';
      t.true(message.includes(`inputs.npz: ${says}\n`), message);
      t.notRegex(message, /Traceback/);
    }
  },
);
