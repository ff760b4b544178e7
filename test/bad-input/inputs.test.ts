import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { runCompiled } from '../../src/api/run.js';
import { verify } from '../../src/api/verify.js';
import type { DType } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { constant } from '../../src/ir/ops/constants.js';
import { writeNpy } from '../../src/program/arrays/npy.js';
import { writeNpz } from '../../src/program/arrays/npz.js';
import { type Refusal, refused, refusedCommand, workplace } from './refusal.js';

const ones = (shape: readonly number[], dtype: DType = 'float32'): ConstantTensor =>
  constant(dtype, new Array<number>(shape.reduce((product, size) => product * size, 1)).fill(1), shape);

/** A file, or the files of a folder that is called by the key. */
type Content = Uint8Array | string | Readonly<Record<string, Uint8Array | string>>;

interface Case extends Refusal {
  readonly name: string;
  /** None: the file is not there. */
  readonly content?: Content;
}

const listed = (inputs: unknown, files: Readonly<Record<string, string>> = {}): Content => ({
  'io.json': JSON.stringify(inputs),
  ...files,
});
const raw = (shape: unknown, file = 'x.bin'): unknown => ({ inputs: [{ name: 'x', dtype: 'float32', shape, file }] });
const whole = writeNpz({ x: ones([8, 32]) });

/** Inputs that may be given to a model with the one input x: float32 [8, 32]. */
const CASES: Readonly<Record<string, Case>> = {
  'no file': { name: 'gone.npz', code: 'missing-inputs', exit: 'input', says: /gone\.npz does not exist.*path/ },
  'another format': {
    name: 'a.txt',
    content: '1 2 3',
    code: 'unknown-format',
    exit: 'input',
    says: /ends in none of .*\.npy or \.pb/,
  },
  'another shape': {
    name: 'a.npy',
    content: writeNpy(ones([2])),
    code: 'wrong-input',
    exit: 'input',
    says: /input x must be float32 \[8, 32\], the array given is float32 \[2\].*--global-batch/,
  },
  'another type': {
    name: 'a.npy',
    content: writeNpy(ones([8, 32], 'int64')),
    code: 'wrong-input',
    exit: 'input',
    says: /is int64 \[8, 32\].*Convert the array to float32/,
  },
  'another name': {
    name: 'a.npz',
    content: writeNpz({ q: ones([8, 32]) }),
    code: 'unknown-input',
    exit: 'input',
    says: /an array q, .* its inputs are x/,
  },
  'no array': {
    name: 'a.npz',
    content: writeNpz({}),
    code: 'missing-input',
    exit: 'input',
    says: /no array for input x \(float32 \[8, 32\]\).*under this name/,
  },
  'a cut archive': {
    name: 'a.npz',
    content: whole.subarray(0, whole.length - 100),
    code: 'bad-array',
    exit: 'input',
    says: /not a readable \.npz.*numpy\.savez/,
  },
  'an empty archive': { name: 'a.npz', content: '', code: 'bad-array', exit: 'input', says: /not a readable/ },
  'a cut array': {
    name: 'a.npy',
    content: writeNpy(ones([8, 32])).subarray(0, 500),
    code: 'bad-array',
    exit: 'input',
    says: /is truncated: float32 \[8, 32\] needs 1024 bytes/,
  },
  'an empty array file': { name: 'a.npy', content: '', code: 'bad-array', exit: 'input', says: /is not a \.npy file/ },
  'no tensor': {
    name: 'a.pb',
    content: 'hello',
    code: 'bad-tensor-file',
    exit: 'input',
    says: /not an ONNX TensorProto/,
  },
  'an empty folder': { name: 'in', content: {}, code: 'missing-input', exit: 'input', says: /folder as x\.npy/ },
  'a cut io.json': {
    name: 'in',
    content: { 'io.json': '{"inputs":[{"name":"x"' },
    code: 'bad-inputs',
    exit: 'input',
    says: /io\.json is not JSON.*"inputs"/,
  },
  'io.json of null': { name: 'in', content: listed(null), code: 'bad-inputs', exit: 'input', says: /no list "inputs"/ },
  'io.json with null': {
    name: 'in',
    content: listed({ inputs: [null] }),
    code: 'bad-inputs',
    exit: 'input',
    says: /without name, dtype or shape/,
  },
  'io.json with a shape of words': {
    name: 'in',
    content: listed(raw(['a', null]), { 'x.bin': '' }),
    code: 'bad-inputs',
    exit: 'input',
    says: /without name, dtype or shape/,
  },
  'io.json with a file that is missing': {
    name: 'in',
    content: listed(raw([8, 32])),
    code: 'bad-inputs',
    exit: 'input',
    says: /names x\.bin, which cannot be read/,
  },
  'io.json with a file of another folder': {
    name: 'in',
    content: listed(raw([8, 32], '../x.bin')),
    code: 'file-outside',
    exit: 'input',
    says: /outside the folder/,
  },
  'io.json with a file that is too short': {
    name: 'in',
    content: listed(raw([8, 32]), { 'x.bin': 'abc' }),
    code: 'bad-inputs',
    exit: 'input',
    says: /x\.bin is float32 \[8, 32\], 1024 bytes, but it has 3/,
  },
};

for (const [title, { name, content, ...refusal }] of Object.entries(CASES)) {
  test.serial(`run and verify: ${title}`, async (t) => {
    const folder = workplace(t);
    const directory = join(folder, 'd');
    const model = join(folder, 'models', 'mlp.onnx');
    await compile({ model, devices: 2, output: directory });
    const inputs = join(folder, name);
    if (typeof content === 'string' || content instanceof Uint8Array) writeFileSync(inputs, content);
    else if (content) {
      mkdirSync(inputs);
      for (const [file, data] of Object.entries(content)) writeFileSync(join(inputs, file), data);
    }
    await refused(t, folder, () => runCompiled({ directory, inputs }), refusal);
    await refused(t, folder, () => verify({ directory, inputs }), refusal);
  });
}

test('command: wrong arrays exit with 3, an output that cannot be written with 7', async (t) => {
  const folder = workplace(t);
  await compile({ model: join(folder, 'models', 'mlp.onnx'), devices: 2, output: join(folder, 'd') });
  writeFileSync(join(folder, 'a.npy'), writeNpy(ones([2])));
  mkdirSync(join(folder, 'o.npz'));
  await refusedCommand(t, folder, ['run', 'd', '--inputs', 'a.npy'], {
    code: 'wrong-input',
    exit: 'input',
    says: /float32 \[8, 32\][\s\S]*in a\.npy, tensor x/,
  });
  await refusedCommand(t, folder, ['run', 'd', '--outputs', 'no/where.npz'], {
    code: 'cannot-write',
    exit: 'cannotWrite',
    says: /cannot write no\/where\.npz: its folder does not exist/,
  });
  await refusedCommand(t, folder, ['run', 'd', '--outputs', 'o.npz'], {
    code: 'cannot-write',
    exit: 'cannotWrite',
    says: /it is a folder/,
  });
});
