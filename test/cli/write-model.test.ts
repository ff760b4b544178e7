/**
 * @file `--write-model F.onnx`: the file that it writes is planned as the family is, by ONNX's rules it is a model, and where it
 * cannot be written the command says why, most often before the work.
 */
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { missing } from '../missing.js';
import { slowTests, thinned } from '../selection.js';
import { autopar } from './autopar.js';

const slow = slowTests(test.serial);

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const TINY = 'hidden=64,heads=4,seq=32,vocab=128';

const FAMILIES: Readonly<Record<string, string>> = {
  gpt: `layers=4,${TINY},batch=8`,
  llama: `layers=2,kv_heads=2,${TINY},batch=4`,
  moe: `layers=2,kv_heads=4,ffn=128,experts=4,${TINY},batch=8`,
  hybrid:
    'pattern=M-*E,hidden=64,heads=4,kv_heads=2,head_width=16,ffn=128,state=16,groups=2,chunk=16,experts=4,topk=2,expert_ffn=32,' +
    'shared=32,vocab=128,seq=32,batch=4',
  vit: 'layers=2,hidden=64,heads=4,image=32,patch=8,classes=16,batch=8',
  densenet: 'layers=40,growth=4,image=32,classes=16,batch=4',
};

/** Figures of a plan that the family and its file have in common. */
interface Planned {
  readonly degrees: Readonly<Record<string, number>>;
  readonly predicted: {
    readonly stepSeconds: number;
    readonly peakBytes: readonly number[];
    readonly communicatedBytes: number;
  };
  readonly writtenModel?: string;
}

interface Parameter {
  readonly shape: readonly number[];
  /** Whether the file holds its values. */
  readonly present: boolean;
}

async function planned(words: readonly string[]): Promise<Planned> {
  const { code, stdout, stderr } = await autopar(['plan', ...words, '--force', '--json'], { cwd: folder });
  if (code !== 0) throw new Error(`${code} ${stdout} ${stderr}`);
  return JSON.parse(stdout) as Planned;
}

function isNear(one: number, other: number): boolean {
  return Math.abs(one - other) <= 0.01 * Math.max(one, other);
}

/** @param family with its sizes, as `--model` takes it */
async function sameOfFile(
  family: string,
  options: readonly string[],
): Promise<{ readonly same: boolean; readonly says: string; readonly file: string }> {
  const [name = ''] = family.split(':');
  const file = `${name}.onnx`;
  const asked = ['--cluster', '1x2:a100-sxm-80', ...options];
  const own = await planned(['--model', family, ...asked, '--write-model', file, '-o', `${name}.family`]);
  const read = await planned([file, ...asked, '-o', `${name}.file`]);
  const same =
    own.writtenModel === file &&
    read.writtenModel === undefined &&
    JSON.stringify(own.degrees) === JSON.stringify(read.degrees) &&
    isNear(own.predicted.stepSeconds, read.predicted.stepSeconds) &&
    isNear(own.predicted.communicatedBytes, read.predicted.communicatedBytes) &&
    own.predicted.peakBytes.every((bytes, stage) => isNear(bytes, read.predicted.peakBytes[stage] ?? 0));
  const figures = ({ degrees, predicted }: Planned) => JSON.stringify([degrees, predicted]);
  return { same, says: `${figures(own)} ${figures(read)}`, file };
}

for (const [name, sizes] of Object.entries(FAMILIES)) {
  slowTests(test.serial, name === 'hybrid')(`the file of ${name} has the plan that the family has`, async (t) => {
    const { same, says, file } = await sameOfFile(`${name}:${sizes}`, []);
    t.true(same, says);
    const inspected = await autopar(['inspect', file, '--json'], { cwd: folder });
    const { batch, inputs, parameters } = JSON.parse(inspected.stdout) as {
      readonly batch: number;
      readonly inputs: readonly unknown[];
      readonly parameters: { readonly list: readonly Parameter[] };
    };
    t.is(batch, Number(/batch=(\d+)/.exec(sizes)?.[1]));
    t.is(inputs.length, 1, 'weights are no data');
    const matrices = parameters.list.filter(({ shape }) => shape.length > 1);
    t.true(matrices.length > 0 && matrices.every(({ present }) => !present));
  });
}

// Each takes a long search: every second family is trained, and one sample taken of the others.
for (const [name, sizes] of thinned(Object.entries(FAMILIES), 2))
  slow(`trained, the file of ${name} has the plan that the family has`, async (t) => {
    const { same, says } = await sameOfFile(`${name}:${sizes}`, ['--train']);
    t.true(same, says);
  });

for (const [name, sizes] of thinned(Object.entries(FAMILIES).toReversed(), 2))
  slow(`the file of one sample of ${name} has the plan that the family has`, async (t) => {
    for (const options of [[], ['--train']]) {
      const { same, says } = await sameOfFile(`${name}:${sizes.replace(/batch=\d+/, 'batch=1')}`, options);
      t.true(same, says);
    }
  });

slow('a step of training of one sample: the file has the plan that the family has', async (t) => {
  const { same, says } = await sameOfFile(`llama:layers=2,kv_heads=2,${TINY}`, ['--train', '--sp', '1']);
  t.true(same, says);
});

const PYTHON = [process.env['AUTOPAR_PYTHON'] ?? 'python3', '/usr/bin/python3'].find(
  (name) => spawnSync(name, ['-c', 'import onnx'], { timeout: 60_000 }).status === 0,
);
const withoutChecker = missing(
  PYTHON === undefined,
  "onnx.checker on the files of --write-model (Python's onnx is not installed)",
);
const CHECK = `
import onnx, sys
for file in sys.argv[1:]:
    onnx.checker.check_model(file, full_check=True)
    onnx.checker.check_model(onnx.load(file), full_check=True)
`;
(withoutChecker ? test.serial.skip : test.serial)('the official checker accepts the files', async (t) => {
  const files = await Promise.all(
    Object.entries(FAMILIES).map(async ([name, sizes]) => {
      const file = join(folder, `checked-${name}.onnx`);
      const { code, stderr } = await autopar(['inspect', '--model', `${name}:${sizes}`, '--write-model', file]);
      t.is(code, 0, stderr);
      return file;
    }),
  );
  const { status, stderr } = spawnSync(PYTHON ?? '', ['-c', CHECK, ...files], { encoding: 'utf8' });
  t.is(status, 0, stderr);
});

test.serial('--global-batch is the batch of the file; simulate writes it and reads it', async (t) => {
  const family = `gpt:layers=2,${TINY}`;
  const options = ['--cluster', '1x2:a100-sxm-80', '--train', '--tp', '2', '--global-batch', '8', '--json'];
  const words = ['--write-model', 'simulated.onnx'];
  const own = await autopar(['simulate', '--model', family, ...options, ...words], { cwd: folder });
  const read = await autopar(['simulate', 'simulated.onnx', ...options], { cwd: folder });
  const { model, writtenModel, ...figures } = JSON.parse(own.stdout) as Readonly<Record<string, unknown>>;
  t.deepEqual([model, writtenModel], [family, 'simulated.onnx']);
  t.deepEqual({ ...figures, model: 'simulated.onnx' }, JSON.parse(read.stdout));
  const { stdout } = await autopar(['inspect', 'simulated.onnx', '--json'], { cwd: folder });
  t.is((JSON.parse(stdout) as { readonly batch: number }).batch, 8);
});

test.serial('a model of 70 billion parameters is a small file', async (t) => {
  const family = 'llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,vocab=128256,seq=8192';
  const words = ['inspect', '--model', family, '--write-model', 'large.onnx'];
  const { code, stdout, stderr } = await autopar(words, { cwd: folder });
  t.is(code, 0, stderr);
  t.regex(
    stdout,
    /\n\nthe model is in large\.onnx, its weights as inputs without values\n$|\nthe model is in large\.onnx.*\n$/,
  );
  t.is(stdout.split('large.onnx').length, 2, 'it is said in one line');
  t.true(statSync(join(folder, 'large.onnx')).size < 1e6);
});

const FAMILY = `mlp:layers=2,hidden=16`;

const REFUSALS: Readonly<
  Record<string, { readonly words: readonly string[]; readonly exit: number; readonly says: RegExp }>
> = {
  'a model file': {
    words: ['plan', join('..', 'none.onnx'), '--write-model', 'new.onnx'],
    exit: 2,
    says: /bad-option.*--write-model new\.onnx.* the model is the file .*none\.onnx\n.*--model FAMILY/,
  },
  'a model file to inspect': {
    words: ['inspect', 'none.onnx', '--write-model', 'new.onnx'],
    exit: 2,
    says: /bad-option.*--write-model new\.onnx/,
  },
  'a model file to simulate': {
    words: ['simulate', 'none.onnx', '--write-model', 'new.onnx'],
    exit: 2,
    says: /bad-option.*--write-model new\.onnx/,
  },
  'a plan to simulate': {
    words: ['simulate', 'plan.json', '--write-model', 'new.onnx'],
    exit: 2,
    says: /--write-model contradicts the plan/,
  },
  'no ending': {
    words: ['plan', '--model', FAMILY, '--write-model', 'new'],
    exit: 2,
    says: /bad-option.*--write-model new: .*\.onnx/,
  },
  'another ending': {
    words: ['plan', '--model', FAMILY, '--write-model', 'new.onnx.json'],
    exit: 2,
    says: /bad-option.*--write-model new\.onnx\.json: .*\.onnx/,
  },
  'a file that exists': {
    words: ['inspect', '--model', FAMILY, '--write-model', 'old.onnx'],
    exit: 7,
    says: /file-exists.*old\.onnx exists.*\n.*\n.*--force/,
  },
  'a folder of that name': {
    words: ['inspect', '--model', FAMILY, '--write-model', 'folder.onnx', '--force'],
    exit: 7,
    says: /cannot-write.*folder\.onnx: it is a folder/,
  },
  'a folder that does not exist': {
    words: ['plan', '--model', FAMILY, '--write-model', 'nowhere/new.onnx'],
    exit: 7,
    says: /cannot-write.*nowhere\/new\.onnx: its folder does not exist\n.*\n.*create the folder/,
  },
  'a name that is too long, which the disk says behind the work': {
    words: ['inspect', '--model', FAMILY, '--write-model', `${'n'.repeat(300)}.onnx`],
    exit: 7,
    says: /cannot-write.*the name is too long\n.*\n.*a shorter one/,
  },
  '--force without a file to replace': {
    words: ['inspect', '--model', FAMILY, '--force'],
    exit: 2,
    says: /bad-option.*--force replaces the file of --write-model/,
  },
  'a plan that does not fit': {
    words: ['plan', '--model', FAMILY, '--memory', '1KB', '--write-model', 'new.onnx'],
    exit: 4,
    says: /error/,
  },
};

for (const [name, { words, exit, says }] of Object.entries(REFUSALS)) {
  test(`nothing is written beside ${name}`, async (t) => {
    const place = mkdtempSync(join(folder, 'refused-'));
    writeFileSync(join(place, 'old.onnx'), 'old');
    writeFileSync(join(place, 'plan.json'), '{}');
    mkdirSync(join(place, 'folder.onnx'));
    const { code, stdout, stderr } = await autopar(words, { cwd: place });
    t.is(code, exit, stderr);
    t.regex(stderr, says);
    t.is(stdout, '');
    t.deepEqual(readdirSync(place).sort(), ['folder.onnx', 'old.onnx', 'plan.json']);
    t.is(readFileSync(join(place, 'old.onnx'), 'utf8'), 'old');
  });
}

test('--force replaces a file', async (t) => {
  const place = mkdtempSync(join(folder, 'replaced-'));
  writeFileSync(join(place, 'old.onnx'), 'old');
  const words = ['inspect', '--model', FAMILY, '--write-model', 'old.onnx', '--force'];
  t.is((await autopar(words, { cwd: place })).code, 0);
  t.is((await autopar(['inspect', 'old.onnx'], { cwd: place })).code, 0);
  t.deepEqual(readdirSync(place), ['old.onnx']);
});

test('Ctrl-C while planning leaves neither a file nor a part of one', async (t) => {
  const place = mkdtempSync(join(folder, 'interrupted-'));
  const family = `llama:layers=64,kv_heads=2,${TINY},batch=64`;
  const words = ['plan', '--model', family, '--cluster', '8x8:a100-sxm-80', '--train', '--write-model', 'new.onnx'];
  const { code, stdout } = await autopar(words, {
    cwd: place,
    meanwhile: (kill) => {
      setTimeout(() => kill('SIGINT'), 1000);
    },
  });
  t.true(code === 130 || code === null, `${code}`);
  t.is(stdout, '');
  t.deepEqual(readdirSync(place), []);
  t.false(existsSync(join(place, 'new.onnx')));
});
