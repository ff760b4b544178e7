/**
 * @file Options that take whole numbers are given numbers beyond all use: each line is refused, or does its work, soon and
 * without an internal error. A process of its own runs the lines: one that hangs, or takes all memory, is ended and named.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { families } from '../../models/families.js';
import { compile } from '../../src/api/compile.js';
import { convertStrategy } from '../../src/api/strategy.js';
import type { Command } from '../../src/cli/command.js';
import { COMMANDS } from '../../src/cli/commands.js';
import type { Answer } from '../cli/warm.js';
import { EVERYTHING, selection } from '../selection.js';
import { workplace } from './refusal.js';

/** Milliseconds that no line takes, however busy the machine is. */
const HANG = 180_000;

const VALUES = ['1e15', '2147483648', '-1', '9007199254740993', '9007199254740991', '1.5', ''];

/** MiB of memory that no line needs. */
const HEAP = 1500;

const WARM = fileURLToPath(new URL('../cli/warm.js', import.meta.url));

const CLUSTER = '--cluster 1x2:a100-sxm-80';
const PLAN = 'compile models/mlp.onnx --plan-only --force -o o';
const TRAIN = `${PLAN} --train --loss mse ${CLUSTER}`;
const STEP = `simulate --model gpt ${CLUSTER} --train`;

/** Lines, by command and option ('' for its others): `$` stands for the option, `#` for the number. */
const LINES: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  compile: {
    '': [`${PLAN} --$ #`],
    dim: ['compile models/gpt-tiny.onnx --plan-only --force -o o --dim batch=#'],
    shape: [`${PLAN} --shape x=#,32`],
    cluster: [`${PLAN} --cluster #x#:a100-sxm-80`],
    devices: [`${PLAN} --devices #`],
    dp: [`${PLAN} --dp #`, `${TRAIN} --dp #`],
    pp: [`${PLAN} --pp #`, `${TRAIN} --pp #`],
    'global-batch': [`${PLAN} --global-batch #`, `${TRAIN} --pp 2 --global-batch #`],
    'micro-batches': [`${TRAIN} --micro-batches #`, `${TRAIN} --pp 2 --micro-batches #`],
    'micro-batch': [`${TRAIN} --micro-batch #`],
    zero: [`${TRAIN} --zero #`],
    'virtual-stages': [`${TRAIN} --pp 2 --virtual-stages #`],
    'ignore-index': [`${TRAIN} --ignore-index #`],
    warmup: [`${TRAIN} --warmup #`],
    'total-steps': [`${TRAIN} --total-steps #`],
    'dropout-seed': [`${TRAIN} --dropout-seed #`],
  },
  run: { '': ['run d --$ #'] },
  train: { '': ['train d --data d.npy --$ #'] },
  verify: { '': ['verify d --$ #'] },
  rehearse: { '': ['rehearse d --$ #'] },
  inspect: {
    '': ['inspect models/mlp.onnx --$ #', 'inspect models/mlp.onnx --train --loss mse --$ #'],
    dim: ['inspect models/gpt-tiny.onnx --dim batch=#'],
    shape: ['inspect models/mlp.onnx --shape x=#,32'],
  },
  simulate: {
    '': [`simulate models/mlp.onnx --$ #`, `${STEP} --$ #`],
    dim: ['simulate models/gpt-tiny.onnx --dim batch=#'],
    shape: ['simulate models/mlp.onnx --shape x=#,32'],
    cluster: ['simulate models/mlp.onnx --cluster #x#:a100-sxm-80'],
    'micro-batches': [`${STEP} --pp 2 --global-batch 9007199254740990 --micro-batches #`],
    'virtual-stages': [`${STEP} --pp 2 --global-batch 64 --micro-batches 32 --virtual-stages #`],
  },
  explain: { alternatives: ['explain d --alternatives #'], top: ['explain d --sensitivity --top #'] },
  'strategy export': { '': ['strategy export d --mindspore q.ckpt --$ #'] },
  'strategy import': {
    '': ['strategy import m.ckpt -o p.yaml --model models/mlp.onnx --$ #'],
    dim: ['strategy import m.ckpt -o p.yaml --model models/mlp.onnx --dim x=#'],
    shape: ['strategy import m.ckpt -o p.yaml --model models/mlp.onnx --shape x=#,32'],
  },
  'strategy convert': {
    '': ['strategy convert m.ckpt p.yaml --model models/mlp.onnx --$ #'],
    dim: ['strategy convert m.ckpt p.yaml --model models/mlp.onnx --dim x=#'],
    shape: ['strategy convert m.ckpt p.yaml --model models/mlp.onnx --shape x=#,32'],
    rank: ['strategy convert m.ckpt m.ckpt --weights --rank #'],
    stage: ['strategy convert d q.ckpt --to mindspore --stage #'],
  },
  groups: {
    '': ['groups --$ #'],
    rank: ['groups --tp 4 --rank #', 'groups d --rank #'],
    cluster: ['groups --cluster #x#:a100-sxm-80 --tp 2'],
  },
  calibrate: { cluster: ['calibrate none.csv --cluster #x#:a100-sxm-80'] },
};

/** Commands with options, by their whole name. */
function leaves(commands: readonly Command<never>[], before = ''): readonly (readonly [string, Command<never>])[] {
  return commands.flatMap((command) => {
    const name = `${before}${command.name}`;
    return [[name, command] as const, ...leaves(command.subcommands ?? [], `${name} `)];
  });
}

/** Options whose values are whole numbers, alone or in a shape, a size, a cluster. */
function numbered(command: Command<never>): readonly string[] {
  return command.options.flatMap(({ flags, parse }) => {
    const name = /--([\w-]+)/.exec(flags)?.[1] ?? '';
    if (['dim', 'shape', 'cluster'].includes(name)) return [name];
    if (!parse) return [];
    const read = (text: string) => {
      try {
        return parse(text, name, undefined);
      } catch {
        return null;
      }
    };
    return [1, 2].some((number) => read(`${number}`) === number) ? [name] : [];
  });
}

/** Values for a line: all of them, or one after the other in `npm test`. */
const values = ((): (() => readonly string[]) => {
  let turn = 0;
  return () => (EVERYTHING ? VALUES : [VALUES[turn++ % VALUES.length] ?? '']);
})();

/** The process that runs lines, made anew where one has died. */
let child: ChildProcess | null = null;
test.after.always(() => child?.disconnect());

/** Runs lines one after the other; fails for each that hangs, dies or ends in an internal error. */
async function runAll(t: ExecutionContext, cwd: string, lines: readonly string[]): Promise<void> {
  const ask = (line: string): Promise<Answer | string> =>
    new Promise((resolve) => {
      const asked =
        child ??
        fork(WARM, {
          execArgv: [...process.execArgv, `--max-old-space-size=${HEAP}`],
          stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
        });
      child = asked;
      const ended = () => {
        child = null;
        clearTimeout(timer);
        resolve('its process dies');
      };
      const timer = setTimeout(() => asked.kill('SIGKILL'), HANG);
      asked.once('exit', ended);
      asked.once('message', (answer: Answer) => {
        clearTimeout(timer);
        asked.off('exit', ended);
        resolve(answer);
      });
      asked.send({ words: line.split(' '), cwd, env: { AUTOPAR_DEBUG: '', XDG_CACHE_HOME: `${cwd}/cache` } });
    });
  for (const line of lines) {
    const answer = await ask(line);
    if (typeof answer === 'string') t.fail(`${line}: ${answer}`);
    else {
      t.true([0, 1, 2, 3, 4, 6].includes(answer.code), `${line}: exit ${answer.code}\n${answer.stderr}`);
      t.notRegex(answer.stderr, /\n\s+at |RangeError|NaN|Infinity/, line);
    }
  }
}

for (const [name, command] of leaves(COMMANDS)) {
  const options = numbered(command);
  if (options.length === 0) continue;
  test.serial(`${name}: ${options.join(', ')}`, async (t) => {
    const folder = workplace(t);
    await compile({ model: `${folder}/models/mlp.onnx`, degrees: { dp: 1, tp: 2 }, output: `${folder}/d` });
    await convertStrategy({ from: `${folder}/d`, output: `${folder}/m.ckpt` });
    const known = LINES[name] ?? {};
    const asked = options.flatMap((option) => {
      const lines = known[option] ?? known[''] ?? [];
      t.not(lines.length, 0, `${name} --${option} has a line here`);
      return lines.flatMap((line) => values().map((value) => line.replaceAll('$', option).replaceAll('#', value)));
    });
    await runAll(t, folder, asked);
  });
}

test.serial('sizes of generated models', async (t) => {
  // Those that make operators or constants; the others only make tensors larger.
  const risky = ['layers', 'levels', 'image', 'window', 'state_heads', 'seq'];
  const keys = families().flatMap(({ name, keys: all }) =>
    risky.filter((key) => all.includes(`${key}=`)).map((key) => `${name}:${key}`),
  );
  // One of each in `npm test`.
  const some = selection(keys, (key) => key.split(':')[1] ?? '', 1);
  const lines = some.map(([, key]) => `inspect --model ${key}=2147483648`);
  await runAll(t, workplace(t), [
    ...lines,
    'inspect --model swin:image=65536',
    'inspect --model hybrid:state_heads=4194304',
  ]);
});
