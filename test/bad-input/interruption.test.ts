import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { llama } from '../../models/llama.js';
import { compile } from '../../src/api/compile.js';
import { inspect } from '../../src/api/inspect.js';
import { type ImportedModel, importModel } from '../../src/api/models/import.js';
import { withRandomWeights } from '../../src/api/models/random-weights.js';
import { runCompiled } from '../../src/api/run.js';
import { simulate } from '../../src/api/simulate.js';
import { makeTensorInTurns } from '../../src/api/verification/numbers.js';
import { verify } from '../../src/api/verify.js';
import { failureOf } from '../../src/cli/failure.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { writeFolderAtomic } from '../../src/program/atomic.js';
import { temporaryName } from '../../src/program/leftovers.js';
import { autopar } from '../cli/autopar.js';
import { canMount, missing } from '../missing.js';
import { slowTests } from '../selection.js';
import { listing, workplace } from './refusal.js';

const slow = slowTests(test.serial);

const MAIN = fileURLToPath(new URL('../../bundle/cli/main.js', import.meta.url));
const mlp = (folder: string): string => join(folder, 'models', 'mlp.onnx');

/** Work that is interrupted must end as the command line's exit 130, leaving `folder` as it was. */
async function interrupted(t: ExecutionContext, folder: string, work: () => Promise<unknown>): Promise<void> {
  const before = listing(folder);
  const thrown = await work().then(
    () => new Error('it was not interrupted'),
    (error: unknown) => error,
  );
  const { exit, message } = failureOf(thrown, { version: '', line: [], interrupted: false });
  t.is(exit, 'interrupted', message);
  t.deepEqual(listing(folder), before, 'nothing is left behind');
}

for (const phase of ['importing', 'planning', 'writing']) {
  test.serial(`Ctrl-C while ${phase}`, async (t) => {
    const folder = workplace(t);
    const control = new AbortController();
    const onProgress = (text: string) => {
      if (text === phase) control.abort();
    };
    const options = { model: mlp(folder), degrees: { tp: 2 }, signal: control.signal, onProgress };
    await interrupted(t, folder, () => compile({ ...options, output: join(folder, 'new', 'd') }));
  });
}

test.serial('Ctrl-C while replacing leaves the old folder', async (t) => {
  const folder = workplace(t);
  const output = join(folder, 'd');
  await compile({ model: mlp(folder), degrees: { tp: 2 }, output });
  const plan = readFileSync(join(output, 'plan.json'), 'utf8');
  const control = new AbortController();
  const onProgress = (text: string) => {
    if (text === 'writing') control.abort();
  };
  const options = { model: mlp(folder), degrees: { dp: 2 }, signal: control.signal, onProgress };
  await interrupted(t, folder, () => compile({ ...options, output }));
  t.is(readFileSync(join(output, 'plan.json'), 'utf8'), plan);
});

test.serial('Ctrl-C while ranks load, while they run, while a program is verified', async (t) => {
  const folder = workplace(t);
  const directory = join(folder, 'd');
  await compile({ model: mlp(folder), degrees: { tp: 2 }, output: directory });
  for (const phase of [/is ready/, /^step 5 /]) {
    const control = new AbortController();
    const onProgress = (text: string) => {
      if (phase.test(text)) control.abort();
    };
    await interrupted(t, folder, () =>
      runCompiled({ directory, steps: 1_000_000, signal: control.signal, onProgress }),
    );
  }
  const control = new AbortController();
  const onProgress = () => control.abort();
  await interrupted(t, folder, () => verify({ directory, signal: control.signal, onProgress }));
});

test.serial('command: SIGINT while planning and while running', async (t) => {
  const folder = workplace(t);
  const sizes = { batch: 4, sequence: 16, width: 64, heads: 8, keyHeads: 4, feedForward: 128, vocabulary: 64 };
  writeFileSync(join(folder, 'deep.onnx'), writeOnnx(llama('deep', { ...sizes, layers: 24 }, 1)));
  await compile({ model: mlp(folder), degrees: { tp: 2 }, output: join(folder, 'd') });
  const before = listing(folder);
  const lines = [
    ['compile', 'deep.onnx', '--devices', '8'],
    ['run', 'd', '--steps', '1000000', '--outputs', 'o.npz'],
  ];
  for (const words of lines) {
    const { code, stdout, stderr } = await autopar(words, {
      cwd: folder,
      meanwhile: (kill) => {
        setTimeout(() => kill('SIGINT'), 600);
      },
    });
    // Where nothing is to be tidied up, the process ends by the signal itself.
    t.true(code === 130 || code === null, `${code} ${stderr}`);
    t.is(stdout, '');
    t.is(stderr, code === null ? '' : 'error[interrupted]: interrupted; no unfinished files remain\n');
    t.deepEqual(listing(folder), before);
  }
});

test.serial('command: SIGINT while a program of its own runs in a temporary folder', async (t) => {
  const folder = workplace(t);
  const temporary = join(folder, 'temporary');
  mkdirSync(temporary);
  await compile({ model: mlp(folder), degrees: { tp: 2 }, output: join(folder, 'd') });
  const before = listing(folder);
  for (const words of [
    ['rehearse', 'd'],
    ['profile', '--quick', '-o', 'p.json'],
  ]) {
    const { code, stderr } = await autopar(words, {
      cwd: folder,
      env: { TMPDIR: temporary },
      meanwhile: (kill) => {
        const timer = setInterval(() => {
          if (readdirSync(temporary).length === 0) return;
          clearInterval(timer);
          kill('SIGINT');
        }, 5);
      },
    });
    t.is(code, 130, stderr);
    t.deepEqual(listing(folder), before, words.join(' '));
  }
});

test.serial('Ctrl-C is seen between pieces of work that never wait', async (t) => {
  const folder = workplace(t);
  const generate = 'gpt:layers=2,hidden=32,heads=2,seq=16,vocab=64';
  const soon = () => {
    const control = new AbortController();
    setImmediate(() => control.abort());
    return control.signal;
  };
  const loss = { kind: 'cross_entropy' as const };
  await interrupted(t, folder, () => simulate({ generate, loss, signal: soon() }));
  await interrupted(t, folder, () => inspect({ model: mlp(folder), signal: soon() }));
  const training = { loss, optimizer: { kind: 'sgd' as const, learningRate: 0.1 } };
  const step = {
    model: mlp(folder),
    cluster: '1x4:a100-sxm-80',
    training,
    planOnly: true,
    output: join(folder, 'step'),
  };
  await interrupted(t, folder, () => compile({ ...step, signal: soon() }));
  const weightless = { ...(await importModel(mlp(folder))) };
  const { graph } = weightless;
  const absent = [...graph.weights].map(([name, weight]) => [name, { ...weight, source: { kind: 'absent' } }] as const);
  const imported = { ...weightless, graph: { ...graph, weights: new Map(absent) } };
  await interrupted(t, folder, () => withRandomWeights(imported as ImportedModel, 0, soon()));
});

test.serial('random values of one large weight give way to an interruption', async (t) => {
  let turns = 0;
  const value = () => 0;
  const turn = async () => {
    if (++turns === 3) throw new Error('interrupted');
  };
  const made = () => makeTensorInTurns({ dtype: 'float32', shape: [2 ** 12, 2 ** 12] }, value, turn);
  await t.throwsAsync(made, { message: 'interrupted' });
  t.is(turns, 3, 'it ends at the turn in which it was interrupted');
});

test.serial('command: SIGTERM ends work that never waits', async (t) => {
  const folder = workplace(t);
  const before = listing(folder);
  const model = 'llama:layers=96,hidden=8192,heads=64,seq=4096,vocab=32000';
  const step = ['--train', '--plan-only', '--cluster', '64x8:h100-sxm-80', '--global-batch', '2048', '-o', 'd'];
  const { code, stdout } = await autopar(['compile', '--model', model, ...step], {
    cwd: folder,
    meanwhile: (kill) => {
      setTimeout(() => kill('SIGTERM'), 1500);
    },
  });
  t.true(code === 130 || code === null, `${code}`);
  t.is(stdout, '');
  t.deepEqual(listing(folder), before);
});

test.serial('what a killed process left is removed by the next one, and nothing else', async (t) => {
  const folder = workplace(t);
  const output = join(folder, 'd');
  const { pid } = spawnSync(process.execPath, ['-e', '']);
  const ours = basename(temporaryName(output));
  const dead = ours.replace(`-${process.pid}-`, `-${pid}-`);
  const elsewhere = dead.replace(/autopar-./, (text) => `autopar-${text.endsWith('0') ? '1' : '0'}`);
  const other = dead.replace('.d.', '.e.');
  const strangers = ['.d.tmp', elsewhere, other, ours];
  for (const name of [dead, ...strangers]) mkdirSync(join(folder, name, 'program'), { recursive: true });
  await compile({ model: mlp(folder), degrees: { tp: 2 }, output });
  t.deepEqual(
    readdirSync(folder).filter((name) => name.startsWith('.')),
    [...strangers].sort(),
  );
  // Killed between moving the old folder aside and putting the new one in its place: the old one returns, and stays where writing
  // fails.
  renameSync(output, join(folder, dead.replace('.new.', '.old.')));
  await t.throwsAsync(
    writeFolderAtomic(output, () => {
      throw new Error('no');
    }),
  );
  t.true(existsSync(join(output, 'plan.json')));
});

/** A line of shell with $AUTOPAR for the command. */
function shell(
  line: string,
  cwd: string,
): { readonly status: number | null; readonly stdout: string; readonly stderr: string } {
  const env = { ...process.env, AUTOPAR: `"${process.execPath}" "${MAIN}"` };
  return spawnSync('bash', ['-c', line.replaceAll('$AUTOPAR', env.AUTOPAR)], { cwd, env, encoding: 'utf8' });
}

slow('a reader that goes away changes no exit code', (t) => {
  const folder = workplace(t);
  for (const [words, code] of [
    ['hardware', 0],
    ['hardware nope --json', 2],
    ['compile models/mlp.onnx --devices 2', 0],
  ] as const) {
    const { stderr } = shell(`{ $AUTOPAR ${words}; echo "exit $?" >&2; } | true`, folder);
    t.is(stderr, `exit ${code}\n`);
  }
  t.true(existsSync(join(folder, 'mlp.autopar', 'plan.json')));
});

const noFull = missing(!existsSync('/dev/full'), 'a full disk behind stdout (there is no /dev/full here)');
(noFull ? test.serial.skip : test.serial)('a full disk behind stdout', (t) => {
  const folder = workplace(t);
  const printed = shell('$AUTOPAR hardware > /dev/full', folder);
  t.is(printed.status, 7);
  t.regex(printed.stderr, /^error\[cannot-write\]: cannot write to the output: ENOSPC/);
  t.is(shell('$AUTOPAR hardware nope --json > /dev/full', folder).status, 2, 'a failure keeps its own code');
});

const noMount = missing(!canMount(), 'a full disk (no file system may be mounted here)');
(noMount ? test.serial.skip : test.serial)('a full disk: what was there stays, nothing is added', async (t) => {
  const folder = workplace(t);
  const disk = join(folder, 'disk');
  mkdirSync(disk);
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=96k', 'none', disk]);
  t.is(status, 0);
  try {
    const fits = await autopar(['compile', 'models/mlp.onnx', '--devices', '2', '-o', 'disk/d'], { cwd: folder });
    t.is(fits.code, 0, fits.stderr);
    const before = listing(disk);
    const lines = [
      ['compile', 'models/gpt-tiny.onnx', '--devices', '2', '-o', 'disk/d'],
      ['compile', 'models/gpt-tiny.onnx', '--devices', '2', '-o', 'disk/new/deep/d'],
    ];
    for (const words of lines) {
      const { code, stderr } = await autopar(words, { cwd: folder });
      t.is(code, 7, stderr);
      t.regex(
        stderr,
        /^error\[disk-full\]: cannot write disk\/[\w/]*[\w.-]+.*: the disk is full\n\s+in disk[\s\S]*hint: free some space/,
      );
      t.false(stderr.includes('.tmp'), "temporary names are nobody's business");
      t.deepEqual(listing(disk), before);
    }
    t.is((await autopar(['run', 'disk/d'], { cwd: folder })).code, 0, 'the old program still runs');
  } finally {
    spawnSync('umount', [disk]);
  }
  t.deepEqual(readdirSync(disk), []);
});
