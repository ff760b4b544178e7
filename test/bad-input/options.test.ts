import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { placeOf, processGroups } from '../../src/api/groups.js';
import { constant } from '../../src/ir/ops/constants.js';
import { writeNpy } from '../../src/program/arrays/npy.js';
import { autopar } from '../cli/autopar.js';
import { type Refusal, refused, refusedCommand, workplace } from './refusal.js';

/** Lines that are understood, and ask for what cannot be. Those that are not understood: test/cli/usage.test.ts. */
const LINES: readonly (Refusal & { readonly line: string })[] = [
  { line: 'compile models/mlp.onnx --seed x', code: 'bad-option', exit: 'usage', says: /--seed x: .* at least 0/ },
  { line: 'compile models/mlp.onnx --global-batch 0', code: 'bad-option', exit: 'usage', says: /positive whole/ },
  { line: 'compile models/mlp.onnx --devices 0', code: 'bad-option', exit: 'usage', says: /--devices 0/ },
  { line: 'compile models/mlp.onnx --devices -4', code: 'bad-option', exit: 'usage', says: /--devices -4/ },
  { line: 'compile models/mlp.onnx --memory 0', code: 'bad-option', exit: 'usage', says: /80GB/ },
  { line: 'compile models/mlp.onnx --init zeros', code: 'bad-option', exit: 'usage', says: /available: random/ },
  { line: 'run d --threads-per-rank 100000000', code: 'bad-option', exit: 'usage', says: /at most 1024/ },
  {
    line: 'run d --steps 0',
    code: 'bad-option',
    exit: 'usage',
    says: /--steps 0: expected a whole number of at least 1/,
  },
  { line: 'run d --backend quantum', code: 'bad-option', exit: 'usage', says: /available: cpu/ },
  { line: 'run d --outputs o.txt', code: 'unknown-format', exit: 'usage', says: /\.npz/ },
  { line: 'verify d --rtol -1', code: 'bad-option', exit: 'usage', says: /--rtol -1: expected .* not negative/ },
  { line: 'help compiel', code: 'unknown-command', exit: 'usage', says: /did you mean compile\?/ },
  { line: 'groups --dp 9007199254740991', code: 'bad-devices', exit: 'usage', says: /at most 65536/ },
  {
    line: 'compile models/mlp.onnx --dp 2 --tp 3 --devices 4',
    code: 'degrees-do-not-match-devices',
    exit: 'usage',
    says: /dp 2 · tp 3 is 6.*4 devices/,
  },
  {
    // Another number of devices would contradict the cluster.
    line: 'compile models/mlp.onnx --cluster 1x4:l40s --dp 3',
    code: 'degrees-do-not-match-devices',
    exit: 'usage',
    says: /dp 3 does not divide the 4 devices[\s\S]*degrees that divide them, or --devices 6; with --cluster, a cluster of 6/,
  },
  {
    line: 'compile --model gpt:layers=4,hidden=64,heads=4,seq=16,vocab=64,batch=48 --cluster 1x8:l40s --pp 2 --dp 3',
    code: 'degrees-do-not-match-devices',
    exit: 'usage',
    says: /dp 3 does not divide the 4 devices of each of 2 stages[\s\S]*or --devices 12; with --cluster, a cluster of 12/,
  },
  {
    line: 'compile models/mlp.onnx --dp 3',
    code: 'dp-does-not-divide-batch',
    exit: 'noPlan',
    says: /batch of 8[\s\S]*--global-batch 9, or use --dp 2 on fewer devices/,
  },
  {
    line: 'compile models/mlp.onnx --dp 6 --devices 12 --global-batch 8',
    code: 'dp-does-not-divide-batch',
    exit: 'noPlan',
    says: /batch of 8[\s\S]*or use --dp 4$/m,
  },
  {
    line: 'compile models/mlp.onnx --dp 4 --tp 1 --devices 4 --global-batch 6',
    code: 'dp-does-not-divide-batch',
    exit: 'noPlan',
    says: /batch of 6[\s\S]*or use --dp 2 --tp 2/,
  },
  {
    line: 'compile models/mlp.onnx --devices 2 --memory 1kB',
    code: 'nothing-fits',
    exit: 'noPlan',
    says: /dp 2 tp 1: needs .* kB of 1\.00 kB[\s\S]*--cluster; --memory/,
  },
];

for (const { line, ...refusal } of LINES) {
  test.serial(`command: autopar ${line}`, async (t) => {
    await refusedCommand(t, workplace(t), line.split(' '), refusal);
  });
}

type Options = Omit<Parameters<typeof compile>[0], 'model' | 'output'>;

const OPTIONS: Readonly<Record<string, Refusal & { readonly options: Options }>> = {
  'more devices than there can be': {
    options: { devices: Number.MAX_SAFE_INTEGER },
    code: 'bad-devices',
    exit: 'usage',
    says: /9007199254740991 devices are more than the 1048576.*check --devices/,
  },
  'a degree beyond all devices': {
    options: { degrees: { tp: Number.MAX_SAFE_INTEGER } },
    code: 'bad-devices',
    exit: 'usage',
    says: /1048576/,
  },
  'a cluster beyond all devices': {
    options: { cluster: '999999999999x99999999999999:h100-sxm-80' },
    code: 'bad-devices',
    exit: 'usage',
    says: /1048576/,
  },
  'a negative degree': {
    options: { devices: 2, degrees: { dp: -2 } },
    code: 'bad-degree',
    exit: 'usage',
    says: /--dp -2 is not a positive whole number/,
  },
  'a degree of zero': { options: { degrees: { tp: 0 } }, code: 'bad-degree', exit: 'usage', says: /--tp 0/ },
  'an unknown device': {
    options: { cluster: '2x8:h100-smx-80' },
    code: 'unknown-device',
    exit: 'usage',
    says: /did you mean h100-sxm-80\?/,
  },
  'a cluster of nothing': {
    options: { cluster: '0x8:h100-sxm-80' },
    code: 'bad-cluster',
    exit: 'usage',
    says: /1x1:ID/,
  },
  'a cluster of another form': { options: { cluster: 'axb:h100' }, code: 'bad-cluster', exit: 'usage', says: /NxM:ID/ },
  'a cluster file that is not there': {
    options: { cluster: 'c.yaml' },
    code: 'file-missing',
    exit: 'input',
    says: /no such file/,
  },
  'an empty cluster': { options: { cluster: '' }, code: 'bad-cluster', exit: 'usage', says: /NxM:ID/ },
  'a cluster and another number of devices': {
    options: { cluster: '2x8:h100-sxm-80', devices: 4 },
    code: 'devices-do-not-match',
    exit: 'usage',
    says: /has 16 devices.*give one of the two/,
  },
  'a dimension that the model lacks': {
    options: { dims: { M: 3 } },
    code: 'unknown-dimension',
    exit: 'usage',
    says: /no dimension 'M'.*all its dimensions are fixed/,
  },
  'a batch that dp does not divide': {
    options: { globalBatch: 7, degrees: { dp: 2 } },
    code: 'dp-does-not-divide-batch',
    exit: 'noPlan',
    says: /batch of 7.*--global-batch 8/,
  },
  'a constant for no input': {
    options: { constants: { nope: constant('float32', [1]) } },
    code: 'unknown-input',
    exit: 'usage',
    says: /--const nope.*its inputs are x/,
  },
  'a number for an input of another type': {
    options: { constants: { x: true } },
    code: 'constant-mismatch',
    exit: 'input',
    says: /--const x=true.*float32 \[8, 32\].*a value of this type/,
  },
  'a constant of another shape': {
    options: { constants: { x: constant('float32', [1, 2], [2]) } },
    code: 'constant-mismatch',
    exit: 'input',
    says: /float32 \[2\].*float32 \[8, 32\].*this type and shape/,
  },
};

for (const [name, { options, ...refusal }] of Object.entries(OPTIONS)) {
  test.serial(`compile: ${name}`, async (t) => {
    const folder = workplace(t);
    const model = join(folder, 'models', 'mlp.onnx');
    await refused(t, folder, () => compile({ ...options, model, output: join(folder, 'd') }), refusal);
  });
}

test('--const takes a file that can be read', async (t) => {
  const folder = workplace(t);
  writeFileSync(join(folder, 'cut.npy'), writeNpy(constant('float32', [1, 2, 3], [3])).subarray(0, 130));
  const lines: readonly (Refusal & { readonly given: string })[] = [
    {
      given: 'x=gone.npy',
      code: 'missing-inputs',
      exit: 'input',
      says: /gone\.npy does not exist[\s\S]*Check the path/,
    },
    { given: 'x=models/mlp.onnx', code: 'unknown-format', exit: 'input', says: /\.npy or \.pb/ },
    {
      given: 'x=cut.npy',
      code: 'bad-array',
      exit: 'input',
      says: /is truncated: float32 \[3\] needs 12 bytes, 2 are there/,
    },
    { given: 'x', code: 'bad-option', exit: 'usage', says: /NAME=VALUE/ },
  ];
  for (const { given, ...refusal } of lines) {
    await refusedCommand(t, folder, ['compile', 'models/mlp.onnx', '--const', given], refusal);
  }
});

test('very many devices are planned for, and not run on one machine', async (t) => {
  const folder = workplace(t);
  const compiled = await autopar(['compile', 'models/mlp.onnx', '--devices', '1048576', '-o', 'd'], { cwd: folder });
  t.is(compiled.code, 0, compiled.stderr);
  const refusal = {
    code: 'machine-too-small',
    exit: 'backendAbsent',
    says: /1048576 ranks; one machine runs/,
  } as const;
  await refusedCommand(t, folder, ['run', 'd'], refusal);
});

test('a batch that no memory holds is planned, and not run', async (t) => {
  const folder = workplace(t);
  const words = ['compile', 'models/mlp.onnx', '--devices', '2', '--global-batch', '1000000000000', '-o', 'd'];
  t.is((await autopar(words, { cwd: folder })).code, 0);
  const refusal = { code: 'machine-too-small', exit: 'backendAbsent', says: /more than the memory/ } as const;
  await refusedCommand(t, folder, ['run', 'd'], refusal);
});

test('groups of degrees, and places of ranks, that there cannot be', (t) => {
  const degrees = { pp: 1, dp: 2, sp: 1, tp: 2, ep: 1 };
  // @ts-expect-error degrees that are missing
  t.throws(() => processGroups({ dp: 2, tp: 2 }), { code: 'bad-degree', message: /^pp undefined is not a positive/ });
  t.throws(() => processGroups({ ...degrees, tp: 0.5 }), { code: 'bad-degree', message: /^tp 0\.5 is not a positive/ });
  for (const rank of [-1, 1.5, 4, Number.NaN])
    t.throws(() => placeOf(degrees, rank), { code: 'bad-option', message: /: there are 4 ranks, counted from 0/ });
});

test('groups of more ranks than can be listed', (t) => {
  const degrees = { pp: 1, dp: 2 ** 17, sp: 1, tp: 1, ep: 1 };
  t.throws(() => processGroups(degrees), { message: /131072 ranks; groups are listed for at most 65536/ });
});
