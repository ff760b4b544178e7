import test from 'ava';
import type { Command } from '../../src/cli/command.js';
import { COMMANDS } from '../../src/cli/commands.js';
import { autopar } from './autopar.js';

/** An option that does something whatever else is given, and whatever the model is. */
const ALWAYS = 'always';

/** Where an option would do nothing: lines of the command line that are refused and name it. */
type Uses = Readonly<Record<string, typeof ALWAYS | readonly string[]>>;

const always = (...names: readonly string[]): Uses => Object.fromEntries(names.map((name) => [name, ALWAYS]));

const STEP = 'compile --model gpt --plan-only --cluster 1x2:a100-sxm-80';
const OF_TRAINING = [
  'loss',
  'loss-output',
  'ignore-index',
  'class-weights',
  'label-smoothing',
  'moe-balance',
  'optimizer',
  'learning-rate',
  'momentum',
  'nesterov',
  'betas',
  'epsilon',
  'weight-decay',
  'decayed',
  'undecayed',
  'clip-norm',
  'schedule-lr',
  'warmup',
  'total-steps',
  'min-lr-ratio',
  'precision',
  'loss-scale',
  'gradient-reduction',
  'train-mode',
  'batch-statistics',
  'freeze-batch-statistics',
  'dropout-seed',
] as const;

/** A value that every option of training takes. */
const VALUES: Readonly<Record<string, string>> = {
  loss: 'mse',
  optimizer: 'sgd',
  betas: '0.9,0.95',
  'schedule-lr': 'cosine',
  precision: 'bf16',
  'gradient-reduction': 'sum',
  'train-mode': 'training',
  nesterov: '',
  'batch-statistics': 'micro-batch',
  'moe-balance': '0.01',
  'freeze-batch-statistics': '',
  'class-weights': 'w.npy',
};

/** Without --train. */
const ofTraining = (command: string): Uses =>
  Object.fromEntries(OF_TRAINING.map((name) => [name, [`${command} x.onnx --${name} ${VALUES[name] ?? '1'}`.trim()]]));

const importing = always('model', 'dim', 'shape', 'const', 'global-batch', 'weights');
const parameters = (command: string): Uses =>
  Object.fromEntries(
    ['tie', 'untie', 'trainable', 'frozen'].map((name) => [name, [`${command} x.onnx --${name} a=b`]]),
  );
/** Uses in commands that write no folder. */
const writing = (command: string): Uses => ({
  'write-model': [`${command} x.onnx --write-model new.onnx`],
  force: [`${command} --model mlp --force`],
});
const machine = always('devices', 'cluster', 'memory', 'dp', 'tp', 'pp', 'sp', 'ep');

const USES: Readonly<Record<string, Uses>> = {
  compile: {
    ...importing,
    ...machine,
    ...always(
      'output',
      'report',
      'force',
      'target',
      'plan-only',
      'mode',
      'annotations',
      'config',
      'search-mode',
      'time-limit',
      'top',
      'train',
    ),
    stages: ['compile models/mlp.onnx --stages t|t'],
    meshes: ['compile x.onnx --meshes tp2|dp2 --complete propagate', 'compile x.onnx --meshes tp2|dp2 --mode data'],
    dispatch: ALWAYS,
    'capacity-factor': ['compile x.onnx --capacity-factor 1'],
    'sp-order': ['compile models/gpt-tiny.onnx --sp 2 --sp-order zigzag'],
    'sp-method': [
      'compile models/gpt-tiny.onnx --sp 1 --sp-method gather',
      'compile models/mlp.onnx --sp-method gather',
    ],
    'tp-sequence': [
      'compile models/gpt-tiny.onnx --tp 1 --tp-sequence on',
      'compile models/mlp.onnx --tp-sequence on',
      'compile x.onnx --axes free --tp-sequence on',
      'compile x.onnx --complete propagate --tp-sequence off',
    ],
    ...ofTraining('compile'),
    ...parameters('compile'),
    precision: ALWAYS,
    'micro-batch': ['compile x.onnx --micro-batch 2'],
    'micro-batches': ['compile x.onnx --micro-batches 1'],
    'dropout-seed': [
      'compile x.onnx --dropout-seed 1',
      'compile x.onnx --train --train-mode as-exported --dropout-seed 1',
    ],
    verify: ['compile x.onnx --verify --plan-only'],
    init: ['compile x.onnx --init random --plan-only'],
    seed: ['compile x.onnx --seed 1'],
    solver: [
      'compile x.onnx --solver glpk --complete propagate',
      'compile x.onnx --solver highs --search-mode dynamic_programming',
    ],
    complete: ['compile x.onnx --complete search --search-mode sharding_propagation'],
    axes: ['compile x.onnx --axes free --complete propagate', `${STEP} --objective cost --axes free`],
    objective: ['compile models/mlp.onnx --train --objective memory --mode hybrid'],
    within: [`${STEP} --train --within 2`],
    prefer: [`${STEP} --train --objective memory --prefer fastest`],
    headroom: [`${STEP} --train --objective memory --headroom 0.2`],
    zero: ['compile models/mlp.onnx --zero 1 --complete propagate'],
    bucket: [`${STEP} --zero 1 --bucket 1MB`],
    interleave: ['compile x.onnx --interleave 2', `${STEP} --zero 1 --interleave 2`],
    'gradient-sync': [
      'compile models/mlp.onnx --gradient-sync parameter-server',
      'compile models/mlp.onnx --train --dp 2 --gradient-sync parameter-server --zero 1',
    ],
    recompute: ['compile x.onnx --recompute full'],
    offload: ['compile models/mlp.onnx --offload optimizer'],
    schedule: ['compile models/mlp.onnx --schedule 1f1b'],
    'virtual-stages': ['compile models/mlp.onnx --virtual-stages 2'],
    'write-model': ['compile x.onnx --write-model new.onnx'],
  },
  run: {
    ...always('steps', 'backend', 'memory', 'report', 'trace'),
    inputs: ['run d --inputs x.npz --backend emulated'],
    outputs: ['run d --outputs x.npz --backend emulated'],
    'offload-dir': ['run d --offload-dir x --backend emulated'],
    'threads-per-rank': [
      'run d --threads-per-rank 2 --backend emulated',
      'run d --threads-per-rank 2 --backend webgpu',
    ],
    seed: ['run d --seed 1 --inputs x.npz', 'run d --seed 1 --backend emulated'],
    link: ['run d --link 10GB/s,20us', 'run d --link 10GB/s,20us --backend cpu'],
  },
  verify: {
    ...always('model', 'inputs', 'tensors', 'rtol', 'atol', 'backend', 'memory', 'offload-dir'),
    seed: ['verify d --seed 1 --inputs x.npz'],
  },
  rehearse: always('model', 'ranks', 'time-limit', 'memory', 'seed'),
  train: {
    ...always('data', 'steps', 'token-type', 'last-batch', 'in-order', 'model', 'checkpoint-every', 'keep', 'resume'),
    ...always('backend', 'memory', 'offload-dir', 'trace', 'eval-data'),
    'eval-every': ['train d --data x.npz --eval-every 2'],
    epochs: ['train d --data x.npz --epochs 2 --steps 3'],
    seed: ['train d --data x.npz --seed 1 --in-order'],
    'threads-per-rank': ['train d --data x.npz --threads-per-rank 2 --backend webgpu'],
  },
  export: always('output', 'checkpoint', 'model'),
  inspect: {
    ...writing('inspect'),
    ...importing,
    ...always('parameters', 'train', 'tie', 'untie', 'trainable', 'frozen'),
    ...ofTraining('inspect'),
  },
  simulate: {
    ...writing('simulate'),
    ...importing,
    ...machine,
    ...always('mesh', 'train', 'micro-batch', 'micro-batches', 'mesh-order', 'tp-sequence', 'software', 'attention'),
    ...always('dtype', 'report', 'trace'),
    loss: ['simulate x.onnx --loss mse'],
    'loss-output': ['simulate x.onnx --loss-output y'],
    gradients: ['simulate x.onnx --gradients bfloat16'],
    zero: ['simulate x.onnx --zero 1'],
    recompute: ['simulate x.onnx --recompute full'],
    offload: ['simulate --model gpt --cluster 1x1:a100-sxm-80 --offload all'],
    schedule: ['simulate x.onnx --schedule 1f1b', 'simulate x.onnx --pp 1 --schedule zero-bubble'],
    'virtual-stages': ['simulate x.onnx --virtual-stages 2'],
    stages: ['simulate --model gpt --cluster 1x1:a100-sxm-80 --stages E'],
  },
  explain: {
    model: ALWAYS,
    tensor: ['explain d --tensor x --rejected'],
    op: ['explain d --op x --pins'],
    memory: ['explain d --memory --sensitivity'],
    mesh: ['explain d --mesh --memory'],
    schedule: ['explain d --schedule --memory'],
    pins: ['explain d --pins --rejected'],
    rejected: ['explain d --pins --rejected'],
    sensitivity: ['explain d --pins --sensitivity'],
    alternatives: ['explain d --memory --alternatives 2'],
    top: ['explain d --sensitivity --top 2'],
    report: ['explain d --mesh --report x.html'],
  },
  'strategy export': always('mindspore', 'onnx', 'pins', 'tp-plan', 'megatron', 'torchtitan', 'model', 'stage'),
  'strategy import': always(
    'output',
    'devices',
    'dp',
    'tp',
    'sp',
    'pins-only',
    'model',
    'dim',
    'shape',
    'global-batch',
    'configuration',
  ),
  'strategy merge': always('output'),
  'strategy diff': always('exit-code', 'all', 'model'),
  'strategy show': always('all', 'configuration'),
  'strategy convert': {
    ...always('weights', 'model', 'dim', 'shape', 'global-batch', 'stage', 'configuration'),
    to: ['strategy convert a b --weights --to plan', 'strategy convert a b --rank 1 --to plan'],
    output: ['strategy convert a b --rank 1 -o c'],
    rank: ['strategy convert a b --weights --rank 1'],
    force: ['strategy convert a b --force'],
  },
  groups: {
    ...always('rank', 'cluster'),
    ...Object.fromEntries(['devices', 'pp', 'dp', 'sp', 'tp', 'ep'].map((name) => [name, [`groups d --${name} 2`]])),
  },
  plot: always('output'),
  profile: always('output', 'quick'),
  calibrate: always('cluster', 'output'),
};

/** Commands with options, by their whole name. */
function leaves(commands: readonly Command<never>[], before = ''): readonly (readonly [string, Command<never>])[] {
  return commands.flatMap((command) => {
    const name = `${before}${command.name}`;
    return [[name, command] as const, ...leaves(command.subcommands ?? [], `${name} `)];
  });
}

test('every option of every command either does something or has lines that refuse it', (t) => {
  const missing: string[] = [];
  for (const [name, { options }] of leaves(COMMANDS)) {
    const own = options.map(({ flags }) => /--([\w-]+)/.exec(flags)?.[1] ?? '').sort();
    const known = Object.keys(USES[name] ?? {}).sort();
    if (known.join() !== own.join()) missing.push(`${name}: ${known.join()} instead of ${own.join()}`);
  }
  t.deepEqual(missing, []);
});

for (const [name, uses] of Object.entries(USES)) {
  test(`${name}: options that would do nothing are refused by name, with what to do`, async (t) => {
    for (const [option, lines] of Object.entries(uses)) {
      for (const line of lines === ALWAYS ? [] : lines) {
        const { code, stdout, stderr } = await autopar(line.split(' '));
        t.is(code, 2, `${line}\n${stdout}${stderr}`);
        t.true(stderr.includes(`--${option}`), `${line}\n${stderr}`);
        t.regex(stderr, /\n {2}hint: /, line);
      }
    }
    t.pass();
  });
}

test('an option of one value that is given twice is refused with both, on every command; lists and flags are not', async (t) => {
  for (const [name, { options }] of leaves(COMMANDS)) {
    const one = options.find(({ flags, repeats, parse }) => /[<[]/.test(flags) && !repeats && !parse);
    const flag = /--[\w-]+/.exec(one?.flags ?? '')?.[0];
    if (flag === undefined) continue;
    const { code, stderr } = await autopar([...name.split(' '), flag, 'a', flag, 'b']);
    t.is(code, 2, name);
    t.true(stderr.startsWith(`error[bad-option]: ${flag} is given twice: a and b\n`), `${name}: ${stderr}`);
  }
  const tp = await autopar('compile x.onnx --tp 2 --tp 4'.split(' '));
  t.regex(tp.stderr, /^error\[bad-option\]: --tp is given twice: 2 and 4\n/);
  const several = await autopar('inspect models/mlp.onnx --weights a --weights b --json --json'.split(' '));
  t.notRegex(several.stderr, /given twice/);
});
