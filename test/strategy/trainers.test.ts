/**
 * @file Plans as flags of Megatron-LM and job configurations of torchtitan: carried settings are the plan's, and others are
 * reported.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { type CompileOptions, compile } from '../../src/api/index.js';
import { generatedFile } from '../../src/api/models/generated.js';
import { convertStrategy } from '../../src/api/strategy.js';
import { learningRateAt, type OptimizerOptions } from '../../src/ir/autodiff/optimizer-options.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Plan } from '../../src/strategy/plan.js';
import { readPlan } from '../../src/strategy/plan-json.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const folder = mkdtempSync(path.join(tmpdir(), 'autopar-trainers-'));
const ADAMW = { kind: 'adamw', learningRate: 1e-3 } as const;
let count = 0;

async function handedOver(
  from: string,
): Promise<{ readonly flags: string; readonly job: string; readonly notes: string }> {
  const written = await Promise.all(
    (['megatron', 'torchtitan'] as const).map((to) =>
      convertStrategy({ from, to, output: path.join(folder, `${path.basename(from)}.${to}`) }),
    ),
  );
  const [flags = '', job = ''] = written.map(({ output }) => readFileSync(output, 'utf8'));
  return { flags, job, notes: written.flatMap(({ notes }) => notes).join('\n') };
}

async function planned(options: Partial<CompileOptions>): Promise<string> {
  const output = path.join(folder, `plan-${count++}`);
  await compile({ model: 'models/gpt-tiny.onnx', planOnly: true, output, axes: 'roles', ...options });
  return output;
}

/** Megatron-LM's grammar of layouts, read: layers of each part. */
function layersIn(text: string, t: ExecutionContext): readonly number[] {
  const layout = /--pipeline-model-parallel-layout "(.*)"/.exec(text)?.[1] ?? '';
  const parts = layout
    .split('|')
    .map((part) => part.replaceAll(/(\w)\*(\d+)/g, (_, letter, n) => letter.repeat(Number(n))));
  t.true(parts[0]?.startsWith('E'));
  t.true(parts.at(-1)?.endsWith('L'));
  t.regex(parts.join(''), /^Et+L$/);
  return parts.map((part) => part.replaceAll(/[EL]/g, '').length);
}

/** Options of Megatron-LM (megatron/training/arguments.py and the fields of its configurations that become flags; core 0.13). */
const MEGATRON = new Set(
  (
    'tensor-model-parallel-size sequence-parallel pipeline-model-parallel-size pipeline-model-parallel-layout ' +
    'context-parallel-size cp-comm-type expert-model-parallel-size use-tp-pp-dp-mapping micro-batch-size global-batch-size ' +
    'use-distributed-optimizer use-megatron-fsdp data-parallel-sharding-strategy no-gradient-accumulation-fusion ckpt-format ' +
    'ddp-bucket-size overlap-grad-reduce recompute-granularity recompute-modules recompute-method recompute-num-layers ' +
    'optimizer-cpu-offload use-precision-aware-optimizer bf16 fp16 optimizer lr adam-beta1 adam-beta2 adam-eps sgd-momentum ' +
    'weight-decay clip-grad lr-decay-style lr-warmup-iters lr-decay-iters min-lr'
  ).split(' '),
);

/** The flags as bash gives them to Megatron-LM. */
function parsed(flags: string, t: ExecutionContext): Readonly<Record<string, string>> {
  const script = `${flags}\nprintf '%s\\n' "\${MEGATRON_ARGS[@]}"`;
  const { stdout, status } = spawnSync('bash', ['-c', script], { encoding: 'utf8' });
  t.is(status, 0);
  const found: Record<string, string> = {};
  let name = '';
  for (const word of stdout.trimEnd().split('\n')) {
    const [, flag] = /^--(.+)$/.exec(word) ?? [];
    if (flag === undefined) found[name] = word;
    else {
      name = flag;
      found[name] = '';
    }
  }
  t.deepEqual(
    Object.keys(found).filter((flag) => !MEGATRON.has(flag)),
    [],
  );
  return found;
}

/** Degrees by each trainer's own rule: the ranks that are left are data-parallel, or the product of all is the world. */
function checkDegrees(flags: string, job: string, degrees: Plan['degrees'], t: ExecutionContext): void {
  const { dp, tp, pp, sp, ep } = degrees;
  const given = parsed(flags, t);
  const degree = (name: string) => Number(given[name]);
  const layout = ['tensor-model-parallel-size', 'pipeline-model-parallel-size', 'context-parallel-size'].map(degree);
  t.deepEqual([...layout, degree('expert-model-parallel-size')], [tp, pp, sp, ep]);
  const samples = degree('micro-batch-size') * dp;
  t.is(degree('global-batch-size') % samples, 0);
  const ofJob = (name: string) => Number(new RegExp(`^${name} = (\\d+)$`, 'm').exec(job)?.[1]);
  const names = [
    'data_parallel_replicate',
    'data_parallel_shard',
    'context_parallel',
    'tensor_parallel',
    'pipeline_parallel',
  ];
  t.is(
    names.reduce((product, name) => product * ofJob(`${name}_degree`), 1),
    dp * sp * tp * pp,
  );
  t.is(ofJob('tensor_parallel_degree'), tp);
  t.is(ofJob('pipeline_parallel_degree'), pp);
  t.is(ofJob('expert_parallel_degree'), ep);
  t.is(ofJob('global_batch_size') % (ofJob('local_batch_size') * dp), 0);
}

test('a lowered pipeline of dp · tp with ZeRO, buckets and recompute', async (t) => {
  const from = await planned({
    dp: 2,
    tp: 2,
    pp: 2,
    devices: 8,
    zero: 1,
    recompute: 'selective',
    bucket: 1e6,
    training: {
      loss: { kind: 'cross_entropy' },
      microBatches: 2,
      optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.5 },
    },
  });
  const { flags, job } = await handedOver(from);
  checkDegrees(flags, job, { dp: 2, tp: 2, pp: 2, sp: 1, ep: 1 }, t);
  t.deepEqual(layersIn(flags, t), [1, 1]);
  for (const flag of [
    ...['tensor-model-parallel-size 2', 'pipeline-model-parallel-size 2', 'micro-batch-size 1', 'global-batch-size 4'],
    ...[
      'use-distributed-optimizer',
      'ddp-bucket-size 250000',
      'recompute-modules core_attn',
      'sgd-momentum 0.9',
      'lr 0.5',
    ],
  ])
    t.true(flags.includes(`\n  --${flag}\n`), flag);
  for (const line of [
    ...['data_parallel_shard_degree = 2', 'tensor_parallel_degree = 2', 'pipeline_parallel_schedule = "1F1B"'],
    ...[
      'module_fqns_per_model_part = [["tok_embeddings","layers.0"],["layers.1","norm","output"]]',
      'mode = "selective"',
    ],
    ...[
      '# not transferred: the optimizer sgd, with its options and learning rate',
      'global_batch_size = 4',
      'local_batch_size = 2',
    ],
  ])
    t.true(job.includes(`\n${line}\n`), line);
});

/** Keys of a section of a job configuration. */
function section(job: string, name: string): Readonly<Record<string, string>> {
  const [, lines = ''] = new RegExp(`^\\[${name}\\]\\n((?:.+\\n)+)`, 'm').exec(job) ?? [];
  return Object.fromEntries([...lines.matchAll(/^(\w+) = (.*)$/gm)].map(([, key = '', value = '']) => [key, value]));
}

function trainedWith(optimizer: OptimizerOptions): Promise<string> {
  const training = { loss: { kind: 'cross_entropy' }, optimizer } as const;
  return planned({ dp: 2, devices: 2, training });
}

test('optimizer, clipping and learning rate are written where the trainer has other defaults', async (t) => {
  const { flags, job, notes } = await handedOver(await trainedWith(ADAMW));
  t.like(section(job, 'optimizer'), {
    ...{ name: '"AdamW"', lr: '0.001', beta1: '0.9', beta2: '0.999', eps: '1e-8', weight_decay: '0.01' },
  });
  t.is(section(job, 'training')['max_norm'], 'inf');
  t.deepEqual(section(job, 'lr_scheduler'), { warmup_steps: '0', decay_ratio: '0.0' });
  t.like(parsed(flags, t), {
    ...{ optimizer: 'adam', lr: '0.001', 'adam-beta1': '0.9', 'adam-beta2': '0.999', 'adam-eps': '1e-8' },
    ...{ 'weight-decay': '0.01', 'clip-grad': '0', 'lr-decay-style': 'constant', 'lr-warmup-iters': '0' },
  });
  t.regex(notes, /not transferred: weight decay of matrices alone: torchtitan decays all parameters/);
  t.notRegex(notes, /warm-up/);
});

test('a schedule of the learning rate is that of the plan in every step', async (t) => {
  const schedule = { shape: 'cosine', warmup: 5, total: 100, floor: 0.1 } as const;
  const optimizer = { ...ADAMW, clipNorm: 1, schedule };
  const { flags, job, notes } = await handedOver(await trainedWith(optimizer));
  const { max_norm: clip, steps } = section(job, 'training');
  t.is(clip, '1.0');
  const { warmup_steps: warmup, decay_type: shape, min_lr_factor: floor } = section(job, 'lr_scheduler');
  t.is(shape, '"cosine"');
  // torchtitan's rule without decay_ratio, its steps counted from 0.
  const rate = (step: number) => {
    if (step < Number(warmup)) return (step + 1) / Number(warmup);
    const progress = (step - Number(warmup)) / (Number(steps) - Number(warmup));
    return Number(floor) + (1 - Number(floor)) * 0.5 * (1 + Math.cos(Math.PI * progress));
  };
  for (let step = 1; step <= 100; step++) {
    const own = learningRateAt(optimizer, step) / optimizer.learningRate;
    t.true(Math.abs(rate(step - 1) - own) < 1e-9, `step ${step}`);
  }
  t.like(parsed(flags, t), {
    ...{ 'lr-decay-style': 'cosine', 'lr-warmup-iters': '5', 'lr-decay-iters': '100', 'min-lr': '0.0001' },
    'clip-grad': '1',
  });
  t.regex(notes, /not transferred: the first step of the warm-up: Megatron-LM warms up from rate 0, a step later/);
});

test('the batch of a step in one micro-batch is that of the model', async (t) => {
  const { flags, job } = await handedOver(await trainedWith(ADAMW));
  t.like(parsed(flags, t), { 'micro-batch-size': '2', 'global-batch-size': '4' });
  t.like(section(job, 'training'), { local_batch_size: '2', global_batch_size: '4' });
});

slowTests(test)('a plan without a program on a named cluster', async (t) => {
  const output = path.join(folder, 'step');
  await compile({
    model: await generatedFile('llama:layers=12,hidden=1024,heads=8,seq=1024', 64),
    cluster: '2x8:h100-sxm-80',
    planOnly: true,
    ...{ pp: 4, dp: 2, tp: 2 },
    training: { loss: { kind: 'cross_entropy' }, optimizer: ADAMW, precision: 'bf16' },
    output,
  });
  const plan = await readPlan(path.join(output, 'plan.json'));
  const { flags, job } = await handedOver(output);
  checkDegrees(flags, job, plan.degrees, t);
  const parts = layersIn(flags, t);
  t.is(parts.length, 4 * (plan.schedule.virtualStages ?? 1));
  t.is(
    parts.reduce((sum, layers) => sum + layers, 0),
    12,
  );
  t.regex(flags, /--bf16/);
  t.is(flags.includes('--sequence-parallel'), (plan.predicted.parts['reduce-scatter(tp)'] ?? 0) > 0);
  const [, modules = '[]'] = /^module_fqns_per_model_part = (.*)$/m.exec(job) ?? [];
  t.deepEqual(
    (JSON.parse(modules) as string[][]).map((names) => names.filter((name) => name.startsWith('layers.')).length),
    parts,
  );
});

slow('what a trainer has no words for is said, or refused where nothing would be left', async (t) => {
  const training = { loss: { kind: 'cross_entropy' }, microBatches: 2, optimizer: ADAMW } as const;
  const from = await planned({ pp: 2, devices: 2, schedule: 'zero-bubble', training });
  const { flags, notes } = await handedOver(from);
  t.regex(notes, /not transferred: schedule zero-bubble: Megatron-LM runs 1F1B/);
  t.regex(flags, /^# not transferred: schedule zero-bubble/m);
  const refused = async (options: Partial<CompileOptions>, says: RegExp) => {
    const error = await t.throwsAsync(handedOver(await planned(options)), { instanceOf: AutoparError });
    t.is(error.code, 'cannot-convert');
    t.regex(error.message, says);
  };
  await refused({ dp: 2 }, /the plan is for inference/);
  await refused({ devices: 4, meshes: 'tp2 | dp2', training }, /different meshes/);
});
