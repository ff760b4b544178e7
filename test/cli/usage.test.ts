import test from 'ava';
import { families } from '../../models/families.js';
import { COMMANDS } from '../../src/cli/commands.js';
import { autopar } from './autopar.js';

test('without words, help; --version, the version', async (t) => {
  const help = await autopar([]);
  t.is(help.code, 0);
  for (const { name } of COMMANDS) t.true(help.stdout.includes(`  ${name}`), name);
  const version = await autopar(['--version']);
  t.is(version.code, 0);
  t.regex(version.stdout, /^\d+\.\d+\.\d+\n$/);
});

test('help names every family that --model generates', async (t) => {
  for (const name of ['compile', 'simulate', 'inspect']) {
    const { stdout } = await autopar([name, '--help']);
    const said = /--model <family:key=value,\.\.\.>([^-]*?)\n {2}--/.exec(stdout)?.[1] ?? '';
    const words = said.split(/[\s,]+/);
    for (const family of families()) t.true(words.includes(family.name), `${name}: ${family.name} in ${said}`);
  }
});

test('help of every command lists its options, the global ones and two examples', async (t) => {
  for (const command of COMMANDS) {
    const { code, stdout } = await autopar([command.name, '--help']);
    t.is(code, 0);
    for (const { flags } of command.options) t.true(stdout.includes(flags), `${command.name} ${flags}`);
    t.true(stdout.includes('--json') && stdout.includes('--quiet'));
    if (command.examples.length === 0) continue;
    t.is(command.examples.length, 2, command.name);
    for (const { line } of command.examples) t.true(stdout.includes(line), line);
  }
});

test('help of a command with many options has them in groups, those of the model first', async (t) => {
  const { stdout } = await autopar(['compile', '--help']);
  const headings = [...stdout.matchAll(/^([A-Z][\w ]*):$/gm)].map(([, heading]) => heading);
  const groups = ['Model', 'Cluster', 'Parallelism', 'Memory of a step', 'Training', 'Search', 'Output'];
  t.deepEqual(
    headings.filter((heading) => groups.includes(heading ?? '')),
    groups,
  );
  const [, parallelism = ''] = /^Parallelism:\n([\s\S]*?)\n\n/m.exec(stdout) ?? [];
  t.regex(parallelism, /^ {2}--dp /);
  t.notRegex((await autopar(['run', '--help'])).stdout, /^Model:$/m);
});

test('every option of a long help is in a group', async (t) => {
  for (const { name } of COMMANDS) t.notRegex((await autopar([name, '--help'])).stdout, /^Others:$/m, name);
});

test('plan and diff are short for longer lines', async (t) => {
  const help = await autopar([]);
  t.regex(help.stdout, /autopar plan +autopar compile --plan-only\n +autopar diff +autopar strategy diff/);
  t.is((await autopar(['plan', '--help'])).stdout, (await autopar(['compile', '--help'])).stdout);
  t.is((await autopar(['--json', 'diff', '--help'])).stdout, (await autopar(['strategy', 'diff', '--help'])).stdout);
  const planned = await autopar(['plan', 'no.onnx']);
  t.regex(planned.stderr, /no\.onnx/);
});

const REFUSALS: readonly { readonly line: string; readonly code: string; readonly says: RegExp }[] = [
  { line: 'complie x.onnx', code: 'unknown-command', says: /complie.*\n.*did you mean compile\?/ },
  { line: 'compile x.onnx --devcies 2', code: 'unknown-option', says: /--devcies.*\n.*did you mean --devices\?/ },
  {
    line: 'compile x.onnx --dtype float32',
    code: 'not-there-yet',
    says: /^error\[not-there-yet\]: compile has no --dtype: it is an option of simulate\n.*autopar simulate --help/,
  },
  {
    line: 'groups --recompute full',
    code: 'not-there-yet',
    says: /groups has no --recompute: it is an option of compile, simulate\n/,
  },
  {
    line: 'train x --data y --steps 0',
    code: 'bad-option',
    says: /^error\[bad-option\]: --steps 0: expected a whole number of at least 1 .*\n {2}hint: leave it out/,
  },
  { line: 'inspect x.onnx --optimizer sgd', code: 'bad-option', says: /--optimizer applies to training only/ },
  { line: 'compile x.onnx --tie a=b', code: 'bad-option', says: /--tie applies to training only\n.*add --train/ },
  {
    line: 'compile x.onnx --freeze-batch-statistics',
    code: 'bad-option',
    says: /--freeze-batch-statistics applies to training only/,
  },
  { line: 'compile x.onnx --train --train-mode trainin', code: 'bad-option', says: /did you mean training\?/ },
  { line: 'compile x.onnx --train --dropout-seed -1', code: 'bad-option', says: /--dropout-seed -1/ },
  { line: 'compile', code: 'missing-argument', says: /model.*\n.*autopar compile --help/ },
  { line: 'compile a.onnx b.onnx', code: 'excess-arguments', says: /too many arguments/ },
  { line: 'compile x.onnx --devices', code: 'missing-argument', says: /--devices/ },
  { line: 'compile x.onnx --dp 0', code: 'bad-option', says: /--dp 0: expected a positive whole number/ },
  { line: 'compile x.onnx --tp -2', code: 'bad-option', says: /--tp -2: expected a positive whole number/ },
  { line: 'compile x.onnx --dp 1.5', code: 'bad-option', says: /--dp 1.5: expected a positive whole number/ },
  { line: 'compile x.onnx --dp two', code: 'bad-option', says: /--dp two: expected a positive whole number/ },
  {
    line: 'compile x.onnx --dp 2 --tp 2 --devices 8',
    code: 'degrees-do-not-match-devices',
    says: /dp 2 · tp 2 is 4, .* 8 devices/,
  },
  {
    line: 'compile x.onnx --tp 3 --devices 8',
    code: 'degrees-do-not-match-devices',
    says: /tp 3 does not divide the 8 devices/,
  },
  {
    line: 'compile x.onnx --sp 4 --devices 6',
    code: 'degrees-do-not-match-devices',
    says: /sp 4 does not divide the 6 devices/,
  },
  { line: 'compile x.onnx --axes fre', code: 'bad-option', says: /--axes fre.*\n.*did you mean free\?/ },
  {
    line: 'compile x.onnx --search-mode dynamic',
    code: 'bad-option',
    says: /--search-mode dynamic is not a valid choice/,
  },
  { line: 'compile x.onnx --solver cplex', code: 'bad-option', says: /--solver cplex is not a valid choice/ },
  { line: 'compile x.onnx --time-limit soon', code: 'bad-option', says: /--time-limit soon: expected a number/ },
  { line: 'compile x.onnx --top 0', code: 'bad-option', says: /--top 0: expected a positive whole number/ },
  { line: 'compile x.onnx --memory lots', code: 'bad-option', says: /80GB/ },
  { line: 'compile x.onnx --dim batch', code: 'bad-option', says: /NAME=VALUE/ },
  { line: 'compile x.onnx --dim batch=0', code: 'bad-option', says: /positive whole number/ },
  { line: 'compile x.onnx --dim b=1 --dim b=2', code: 'bad-option', says: /gives b twice/ },
  {
    line: 'compile x.onnx --betas 0.9,0.95',
    code: 'bad-option',
    says: /--betas applies to training only.*\n.*--train/,
  },
  { line: 'compile x.onnx --train --loss bce', code: 'bad-option', says: /--loss bce is not a valid choice/ },
  {
    line: 'compile x.onnx --train --momentum 0.9',
    code: 'bad-option',
    says: /--momentum applies to sgd only, and the optimizer is adamw/,
  },
  {
    line: 'compile x.onnx --train --clip-norm 0',
    code: 'bad-option',
    says: /--clip-norm 0 would set all gradients to zero/,
  },
  { line: 'compile x.onnx --train --precision fp8', code: 'bad-option', says: /--precision fp8 is not a valid/ },
  { line: 'hardware no-such-device', code: 'unknown-device', says: /no-such-device/ },
  { line: 'groups --tp 2 --rank 2', code: 'bad-option', says: /there are 2 ranks/ },
  { line: 'groups --dp 2 --ep 3', code: 'degrees-do-not-match-devices', says: /ep 3 does not divide/ },
];

for (const { line, code, says } of REFUSALS) {
  test(`usage: autopar ${line}`, async (t) => {
    const words = line.split(' ');
    const plain = await autopar(words);
    t.is(plain.code, 2);
    t.is(plain.stdout, '');
    t.regex(plain.stderr, says);
    t.true(plain.stderr.startsWith(`error[${code}]: `), plain.stderr);
    t.notRegex(plain.stderr, /\n\s+at /, 'no stack trace');
    const json = await autopar([...words, '--json']);
    t.is(json.code, 2);
    t.is((JSON.parse(json.stdout) as { error: { code: string } }).error.code, code);
    t.is(json.stderr, '');
  });
}

test('colours on request only', async (t) => {
  const colored = async (env: Readonly<Record<string, string>>): Promise<boolean> => {
    const { stdout } = await autopar(['groups', '--tp', '2'], { env });
    return stdout.includes('\u001b');
  };
  t.false(await colored({}));
  t.false(await colored({ CI: 'true' }));
  t.false(await colored({ NO_COLOR: '1', FORCE_COLOR: '1' }));
});
