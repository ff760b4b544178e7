import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { runCompiled } from '../../src/api/run.js';
import { verify } from '../../src/api/verify.js';
import { missing, runsAsRoot } from '../missing.js';
import { type Refusal, refused, refusedCommand, workplace } from './refusal.js';

const mlp = (folder: string): string => join(folder, 'models', 'mlp.onnx');

/** Where compile is to write; `{}` is the workplace. */
const TARGETS: Readonly<
  Record<string, Refusal & { output: string; force?: boolean; prepare?: (folder: string) => void }>
> = {
  'a folder without a name': { output: '', code: 'bad-option', exit: 'usage', says: /--output/ },
  'a file': {
    output: '{}/f',
    prepare: (folder) => writeFileSync(join(folder, 'f'), 'mine'),
    force: true,
    code: 'folder-is-file',
    exit: 'cannotWrite',
    says: /is a file, not a folder.*-o/,
  },
  'a folder below a file': {
    output: '{}/f/g/h',
    prepare: (folder) => writeFileSync(join(folder, 'f'), 'mine'),
    code: 'cannot-write',
    exit: 'cannotWrite',
    says: /a part of the path is a file/,
  },
  'a folder that is not ours': {
    output: '{}/mine',
    prepare: (folder) => {
      mkdirSync(join(folder, 'mine'));
      writeFileSync(join(folder, 'mine', 'notes'), 'keep');
    },
    code: 'folder-not-empty',
    exit: 'cannotWrite',
    says: /not written by autopar.*--force/,
  },
  'the folder of the model, by force': {
    output: '{}/models',
    force: true,
    code: 'folder-in-use',
    exit: 'cannotWrite',
    says: /it holds the model.*-o/,
  },
  'the current folder, by force': {
    output: '.',
    force: true,
    code: 'folder-in-use',
    exit: 'cannotWrite',
    says: /current folder/,
  },
  'the root, by force': {
    output: '/',
    force: true,
    code: 'folder-in-use',
    exit: 'cannotWrite',
    says: /current folder/,
  },
  'a place where no folder can be': {
    output: process.platform === 'linux' ? '/proc/autopar/d' : '/dev/null/d',
    code: 'cannot-write',
    exit: 'cannotWrite',
    says: /cannot write \/(proc|dev)/,
  },
  'a name that is too long': {
    output: `{}/${'n'.repeat(300)}`,
    code: 'cannot-write',
    exit: 'cannotWrite',
    says: /the name is too long.*shorter/,
  },
  'a link to nowhere': {
    output: '{}/link',
    prepare: (folder) => symlinkSync('nowhere', join(folder, 'link')),
    code: 'cannot-write',
    exit: 'cannotWrite',
    says: /cannot write/,
  },
};

for (const [title, { output, force = false, prepare, ...refusal }] of Object.entries(TARGETS)) {
  test.serial(`compile into ${title}`, async (t) => {
    const folder = workplace(t);
    prepare?.(folder);
    const work = () => compile({ model: mlp(folder), devices: 2, output: output.replace('{}', folder), force });
    await refused(t, folder, work, refusal);
  });
}

test('command: an output that cannot be written exits with 7', async (t) => {
  const folder = workplace(t);
  writeFileSync(join(folder, 'f'), 'mine');
  await refusedCommand(t, folder, ['compile', 'models/mlp.onnx', '--devices', '2', '-o', 'f/g'], {
    code: 'cannot-write',
    exit: 'cannotWrite',
    says: /cannot write f\/g: a part of the path is a file[\s\S]*another path/,
  });
});

const root = missing(runsAsRoot(), 'a folder that may not be written (root may write everywhere)');
(root ? test.skip : test)('a folder that may not be written', async (t) => {
  const folder = workplace(t);
  mkdirSync(join(folder, 'locked'));
  chmodSync(join(folder, 'locked'), 0o500);
  const work = () => compile({ model: mlp(folder), devices: 2, output: join(folder, 'locked', 'd') });
  await refused(t, folder, work, { code: 'cannot-write', exit: 'cannotWrite', says: /permission denied.*-o/ });
});

test('folders above the output go again when nothing can be written in them', async (t) => {
  const folder = workplace(t);
  const work = () => compile({ model: mlp(folder), devices: 2, output: join(folder, 'a', 'b', 'n'.repeat(300)) });
  await refused(t, folder, work, { code: 'cannot-write', exit: 'cannotWrite', says: /too long/ });
});

test('a name as long as a name can be, blanks, other scripts', async (t) => {
  const folder = workplace(t);
  for (const name of ['n'.repeat(250), join('ü ö', '日本')]) {
    const output = join(folder, name);
    const { verification } = await compile({ model: mlp(folder), devices: 2, output, verify: true });
    t.true(verification?.passed);
  }
});

const file = (name: string) => (folder: string) => join(folder, 'd', name);
const plan = file('plan.json');
const source = file('source.json');
const program = file('program/program.json');
const first = (kind: string) => (folder: string) => {
  const inside = join(folder, 'd', 'program', kind);
  return join(inside, readdirSync(inside).sort()[0] ?? '');
};
const cut = (of: (folder: string) => string) => (folder: string) =>
  writeFileSync(of(folder), readFileSync(of(folder)).subarray(0, readFileSync(of(folder)).length >> 1));
const emptied = (of: (folder: string) => string) => (folder: string) => truncateSync(of(folder), 0);
/** The file or folder is moved out of the folder, and a link is put in its place. */
const linked = (of: (folder: string) => string) => (folder: string) => {
  const place = of(folder);
  renameSync(place, join(folder, 'moved'));
  symlinkSync(join(folder, 'moved'), place);
};
const OUTSIDE = { code: 'file-outside', exit: 'input', says: /moved.*outside the folder.*copy/ } as const;
/** A file's neighbour stands in for it, inside of the folder. */
const standingIn = (kind: string) => (folder: string) => {
  const inside = join(folder, 'd', 'program', kind);
  const [one = '', other = ''] = readdirSync(inside).sort();
  rmSync(join(inside, one));
  symlinkSync(other, join(inside, one));
};
const LINK = { code: 'file-outside', exit: 'input', says: /is a link to .*replace the link by the file/ } as const;
const removed = (of: (folder: string) => string) => (folder: string) => rmSync(of(folder), { recursive: true });
// biome-ignore lint/suspicious/noExplicitAny: what is edited is whatever the file holds
type Edit = (value: any) => void;
const edited = (of: (folder: string) => string, edit: Edit) => (folder: string) => {
  const value: unknown = JSON.parse(readFileSync(of(folder), 'utf8'));
  edit(value);
  writeFileSync(of(folder), JSON.stringify(value));
};
const written = (of: (folder: string) => string, content: string) => (folder: string) =>
  writeFileSync(of(folder), content);
const elsewhere = async (folder: string, model: string, part: string): Promise<void> => {
  await compile({ model: join(folder, 'models', model), degrees: { dp: 2 }, axes: 'roles', output: join(folder, 'e') });
  rmSync(join(folder, 'd', part), { recursive: true });
  renameSync(join(folder, 'e', part), join(folder, 'd', part));
};

type Damage = Refusal & { readonly harm: (folder: string) => void | Promise<void>; readonly by?: 'run' | 'verify' };

const ANOTHER = { code: 'program-of-another-plan', exit: 'input', says: /plan\.json was edited.*compile/ } as const;

/** Damage that a compiled folder (mlp, tp 2) may have had since. */
const DAMAGES: Readonly<Record<string, Damage>> = {
  'it is gone': { harm: removed(file('')), code: 'not-compiled', exit: 'input', says: /source\.json.*autopar compile/ },
  'source.json is cut': {
    harm: cut(source),
    code: 'bad-source',
    exit: 'input',
    says: /truncated or was edited.*Compile/,
  },
  'source.json is null': { harm: written(source, 'null'), code: 'bad-source', exit: 'input', says: /edited/ },
  'source.json lacks something': {
    harm: edited(source, (value) => delete value.dims),
    code: 'bad-source',
    exit: 'input',
    says: /edited/,
  },
  'source.json has another type': {
    harm: edited(source, (value) => (value.globalBatch = 'x')),
    code: 'bad-source',
    exit: 'input',
    says: /edited/,
  },
  'source.json trains with no known loss': {
    harm: edited(source, (value) => (value.training = { loss: {}, optimizer: { kind: 'sgd' } })),
    code: 'bad-source',
    exit: 'input',
    says: /edited/,
  },
  'source.json states a search that there is not': {
    harm: edited(source, (value) => (value.decisions = { proposals: { precision: ['dp'] } })),
    code: 'bad-source',
    exit: 'input',
    says: /edited: decisions\.proposals\.precision: expected one of "fp32".*found \["dp"\]/,
  },
  'plan.json is gone': {
    harm: removed(plan),
    code: 'plan-missing',
    exit: 'input',
    says: /does not exist.*autopar compile/,
  },
  'plan.json is cut': { harm: cut(plan), code: 'plan-not-json', exit: 'input', says: /compile the model again/ },
  'plan.json is empty': { harm: emptied(plan), code: 'plan-not-json', exit: 'input', says: /the file is empty/ },
  'plan.json is null': { harm: written(plan, 'null'), code: 'plan-invalid', exit: 'input', says: /not a plan/ },
  'plan.json has a wrong type': {
    harm: edited(plan, (value) => (value.mesh = 'x')),
    code: 'plan-invalid',
    exit: 'input',
    says: /mesh is "x", must be array/,
  },
  'plan.json has something more': {
    harm: edited(plan, (value) => (value.foo = 1)),
    code: 'plan-invalid',
    exit: 'input',
    says: /foo/,
  },
  'plan.json is newer': {
    harm: edited(plan, (value) => (value.version = 9)),
    code: 'plan-newer',
    exit: 'input',
    says: /version 9.*update autopar/,
  },
  'plan.json has another degree': {
    harm: edited(plan, (value) => (value.degrees.tp = 4)),
    code: 'plan-invalid',
    exit: 'input',
    says: /mesh\.1\.size \(tp\) is 2, degrees\.tp is 4/,
  },
  'plan.json has another strategy': {
    harm: edited(plan, (value) => {
      for (const operator of Object.values(value.operators) as { strategy: object }[]) operator.strategy = {};
    }),
    ...ANOTHER,
  },
  'plan.json has another fingerprint': {
    harm: edited(plan, (value) => (value.model.fingerprint = '0'.repeat(64))),
    ...ANOTHER,
  },
  'plan.json of another plan': { harm: (folder) => elsewhere(folder, 'mlp.onnx', 'plan.json'), ...ANOTHER },
  'program/ of another plan': { harm: (folder) => elsewhere(folder, 'mlp.onnx', 'program'), ...ANOTHER },
  'program/ of another model': { harm: (folder) => elsewhere(folder, 'gpt-tiny.onnx', 'program'), ...ANOTHER },
  'program/ is gone': {
    harm: removed(file('program')),
    code: 'no-program',
    exit: 'input',
    says: /holds a plan but no program/,
  },
  'program.json is cut': {
    harm: cut(program),
    code: 'bad-program',
    exit: 'input',
    says: /not JSON or is truncated.*again/,
  },
  'program.json is empty': {
    harm: emptied(program),
    code: 'bad-program',
    exit: 'input',
    says: /not JSON or is truncated/,
  },
  'program.json has another mesh': {
    harm: edited(program, (value) => (value.mesh[0].size = 3)),
    code: 'bad-program',
    exit: 'input',
    says: /multiply to 1, not to 3/,
  },
  'program.json reads files elsewhere': {
    harm: edited(program, (value) => {
      const [segment] = Object.values(value.stages[0].segments) as { file: string }[];
      if (segment) segment.file = '../../../etc/passwd';
    }),
    code: 'bad-program',
    exit: 'input',
    says: /outside the program's folder/,
  },
  'program.json names a segment as every object has it': {
    harm: edited(program, (value) => {
      const [first] = value.stages[0].phases.forward.filter(({ kind }: { kind: string }) => kind === 'compute');
      first.segment = '__proto__';
    }),
    code: 'bad-program',
    exit: 'input',
    says: /segment __proto__ is not declared/,
  },
  'program.json says less of a segment than it makes': {
    harm: edited(program, (value) => {
      for (const segment of Object.values(value.stages[0].segments) as { types: { outputs: string[] } }[])
        segment.types.outputs = [];
    }),
    code: 'bad-program',
    exit: 'input',
    says: /makes nothing, but .* is float32/,
  },
  'a segment is a link to another place': {
    harm: linked(first('segments')),
    ...OUTSIDE,
  },
  'a shard is a link to another place': { harm: linked(first('weights')), ...OUTSIDE },
  'a segment is a link to another': { harm: standingIn('segments'), ...LINK },
  'a shard is a link to another': { harm: standingIn('weights'), ...LINK },
  'the weights are a link to another place': { harm: linked(file('program/weights')), ...OUTSIDE },
  'program.json is a link to another place': { harm: linked(program), ...OUTSIDE },
  'program/ is a link to another place': { harm: linked(file('program')), ...OUTSIDE },
  'plan.json is a link to another place': { harm: linked(plan), ...OUTSIDE },
  'source.json is a link to another place': { harm: linked(file('source.json')), ...OUTSIDE },
  'a shard is a pipe': {
    harm: (folder) => {
      const shard = first('weights')(folder);
      rmSync(shard);
      execFileSync('mkfifo', [shard]);
    },
    code: 'file-unreadable',
    exit: 'input',
    says: /not a regular file/,
  },
  'a segment is gone': {
    harm: removed(first('segments')),
    code: 'missing-segment',
    exit: 'input',
    says: /does not exist.*compile the model again/,
  },
  'a segment is cut': {
    harm: (folder) => truncateSync(first('segments')(folder), 60),
    code: 'bad-segment',
    exit: 'input',
    says: /has SHA-256 .* as in program\.json.*compile/,
  },
  'a segment is empty': {
    harm: emptied(first('segments')),
    code: 'bad-segment',
    exit: 'input',
    says: /has SHA-256 .* as in program\.json/,
  },
  'a shard is gone': {
    harm: removed(first('weights')),
    code: 'missing-weights',
    exit: 'input',
    says: /does not exist/,
  },
  'a shard is cut': {
    harm: (folder) => truncateSync(first('weights')(folder), 700),
    code: 'bad-weights',
    exit: 'input',
    says: /is truncated.*compile the model again/,
  },
  'a shard is empty': { harm: emptied(first('weights')), code: 'bad-weights', exit: 'input', says: /only 0 bytes/ },
  'a shard is too long': {
    harm: (folder) => appendFileSync(first('weights')(folder), 'xxxx'),
    code: 'bad-weights',
    exit: 'input',
    says: /but its header states/,
  },
  'a shard is of other degrees': {
    harm: async (folder) => {
      await compile({ model: mlp(folder), degrees: { tp: 4 }, axes: 'roles', output: join(folder, 'e') });
      const shard = readdirSync(join(folder, 'e', 'program', 'weights')).find((name) => name.includes('-0')) ?? '';
      cpSync(join(folder, 'e', 'program', 'weights', shard), first('weights')(folder));
    },
    code: 'bad-weights',
    exit: 'input',
    says: /but the program expects|holds no tensor/,
  },
  'the model is gone': {
    harm: (folder) => rmSync(mlp(folder)),
    code: 'file-missing',
    exit: 'input',
    says: /no such file/,
  },
  'the model is another': {
    harm: (folder) => cpSync(join(folder, 'models', 'gpt-tiny.onnx'), mlp(folder)),
    by: 'verify',
    code: 'model-changed',
    exit: 'input',
    says: /the plan was made for another model.*compile the model again/,
  },
  'the model is another, and no inputs are given': {
    harm: (folder) => cpSync(join(folder, 'models', 'gpt-tiny.onnx'), mlp(folder)),
    code: 'model-changed',
    exit: 'input',
    says: /made for another/,
  },
};

for (const [title, { harm, by = 'run', ...refusal }] of Object.entries(DAMAGES)) {
  test.serial(`a compiled folder: ${title}`, async (t) => {
    const folder = workplace(t);
    const directory = join(folder, 'd');
    await compile({ model: mlp(folder), degrees: { tp: 2 }, axes: 'roles', output: directory });
    await harm(folder);
    await refused(t, folder, () => (by === 'run' ? runCompiled({ directory }) : verify({ directory })), refusal);
  });
}

test('command: an edited plan, a missing shard, a changed model exit with 3', async (t) => {
  const folder = workplace(t);
  const directory = join(folder, 'd');
  const fresh = () => compile({ model: mlp(folder), degrees: { tp: 2 }, axes: 'roles', output: directory });
  await fresh();
  await refusedCommand(t, folder, ['verify', 'd', '--model', 'models/gpt-tiny.onnx'], {
    code: 'model-changed',
    exit: 'input',
    says: /its name is gpt-tiny, not mlp/,
  });
  removed(first('weights'))(folder);
  await refusedCommand(t, folder, ['run', 'd'], {
    code: 'missing-weights',
    exit: 'input',
    says: /weights[\s\S]*does not exist[\s\S]*compile the model again/,
  });
  await fresh();
  edited(plan, (value) => (value.model.globalBatch = 4))(folder);
  await refusedCommand(t, folder, ['verify', 'd'], {
    ...ANOTHER,
    says: /plan\.json was edited[\s\S]*in d\/plan\.json/,
  });
  edited(plan, (value) => (value.degrees.tp = 4))(folder);
  await refusedCommand(t, folder, ['verify', 'd'], {
    code: 'plan-invalid',
    exit: 'input',
    says: /degrees\.tp is 4[\s\S]*in d\/plan\.json/,
  });
});

test('command: a folder that compile did not write', async (t) => {
  const folder = workplace(t);
  const refusal = {
    code: 'not-compiled',
    exit: 'input',
    says: /holds no compiled program[\s\S]*autopar compile/,
  } as const;
  await refusedCommand(t, folder, ['run', 'models'], refusal);
  await refusedCommand(t, folder, ['verify', 'models/mlp.onnx'], refusal);
});
