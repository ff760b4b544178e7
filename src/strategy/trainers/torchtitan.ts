/**
 * @file A plan as a job configuration of torchtitan 0.2, in TOML.
 */
import type { OptimizerOptions } from '../../ir/autodiff/optimizer-options.js';
import type { TrainerChoices } from './choices.js';
import type { HandedOver } from './megatron.js';

/** A number that has a fraction in the configuration's type. */
interface Fraction {
  readonly fraction: number;
}

type TorchTitanValue = string | number | boolean | Fraction | readonly (readonly string[])[];
type TorchTitanSection = Readonly<Record<string, TorchTitanValue | null | undefined>>;

/** Sections of a job configuration. The model's own (flavor, sequence, data) are not among them. */
export function torchtitanJob(choices: TrainerChoices, title: string): HandedOver {
  const { degrees, zero, recompute, offload, own, microBatch, microBatches, optimizer } = choices;
  const isSharded = zero > 0;
  const schedule = degrees.pp > 1 ? SCHEDULES[choices.schedule] : undefined;
  const perRank = microBatch === null ? null : microBatch * (degrees.pp > 1 ? microBatches : 1);
  const { shape, total } = optimizer.schedule;
  const sections: Readonly<Record<string, TorchTitanSection>> = {
    training: {
      local_batch_size: perRank,
      global_batch_size: microBatch === null ? null : microBatch * microBatches * degrees.dp,
      max_norm: fraction(optimizer.clipNorm ?? Number.POSITIVE_INFINITY),
      steps: shape === 'constant' ? null : total,
      mixed_precision_param: PRECISIONS[choices.precision],
      enable_cpu_offload: offload === 'all',
    },
    parallelism: {
      data_parallel_replicate_degree: isSharded ? 1 : degrees.dp,
      data_parallel_shard_degree: isSharded ? degrees.dp : 1,
      fsdp_reshard_after_forward: zero === 3 ? 'always' : 'never',
      tensor_parallel_degree: degrees.tp,
      pipeline_parallel_degree: degrees.pp,
      pipeline_parallel_schedule: schedule,
      pipeline_parallel_microbatch_size: degrees.pp > 1 ? microBatch : null,
      module_fqns_per_model_part: degrees.pp > 1 ? moduleNames(choices.parts) : null,
      context_parallel_degree: degrees.sp,
      context_parallel_rotate_method: choices.spMethod === 'ring' ? 'alltoall' : degrees.sp > 1 ? 'allgather' : null,
      expert_parallel_degree: degrees.ep,
    },
    activation_checkpoint: { mode: RECOMPUTE[recompute.kind] ?? 'none' },
    optimizer: optimizerSection(choices),
    lr_scheduler: schedulerSection(choices),
  };
  const lost = [
    ...own,
    ...(degrees.pp > 1 && !schedule ? [`schedule ${choices.schedule}: the default, 1F1B, runs`] : []),
    ...(zero === 1 ? ['unsharded gradients: torchtitan shards them with the state'] : []),
    ...(RECOMPUTE[recompute.kind] ? [] : [`recompute ${recompute.kind}`]),
    ...(recompute.kind === 'full' && !recompute.isOfAllLayers ? ['the layers that recompute: all layers do'] : []),
    ...(recompute.kind === 'selective'
      ? ['stored activations of selective recompute: torchtitan chooses by operator']
      : []),
    ...(offload === 'none' || offload === 'all' ? [] : [`offload ${offload}`]),
    ...(choices.spMethod === 'auto' ? ['how sp shards attention: keys and values are gathered'] : []),
    ...(choices.spMethod === 'ulysses' ? ['Ulysses: keys and values are gathered'] : []),
    ...(degrees.tp > 1 && !choices.tpSequence
      ? ['norms replicated over tp: torchtitan shards them along the sequence']
      : []),
    ...(choices.bucketBytes === null ? [] : ['the size of buckets']),
    ...(PRECISIONS[choices.precision] ? [] : [`the precision ${choices.precision}`]),
    ...lostOfOptimizer(choices),
  ];
  const text = Object.entries(sections).map(([name, rows]) => {
    const lines = Object.entries(rows).flatMap(([key, value]) =>
      value === null || value === undefined ? [] : [`${key} = ${valueText(value)}`],
    );
    return lines.length === 0 ? '' : `\n[${name}]\n${lines.join('\n')}\n`;
  });
  return { text: `# ${title}\n${lost.map((line) => `# not transferred: ${line}\n`).join('')}${text.join('')}`, lost };
}

/** As get_schedule_class of torch.distributed.pipelining knows them. */
const SCHEDULES: Readonly<Record<string, string>> = {
  'f-then-b': 'GPipe',
  '1f1b': '1F1B',
  'interleaved-1f1b': 'Interleaved1F1B',
  'interleaved-zero-bubble': 'InterleavedZeroBubble',
  zbv: 'ZBVZeroBubble',
};

const PRECISIONS: Readonly<Record<string, string>> = { fp32: 'float32', bf16: 'bfloat16' };
const RECOMPUTE: Readonly<Record<string, string>> = { none: 'none', selective: 'selective', full: 'full' };
const OPTIMIZERS: Partial<Record<OptimizerOptions['kind'], string>> = { adam: 'Adam', adamw: 'AdamW' };

/** All that it has a key for: its defaults are not those of the plan. */
function optimizerSection({ optimizer }: TrainerChoices): TorchTitanSection {
  const { kind, learningRate, betas, epsilon, weightDecay } = optimizer;
  const name = OPTIMIZERS[kind];
  if (name === undefined) return {};
  return {
    ...{ name, lr: fraction(learningRate), beta1: fraction(betas[0]), beta2: fraction(betas[1]) },
    ...{ eps: fraction(epsilon), weight_decay: fraction(weightDecay) },
  };
}

/** Its decay ends at the last step of the training. */
function schedulerSection({ optimizer: { schedule } }: TrainerChoices): TorchTitanSection {
  const { warmup, shape, floor } = schedule;
  if (shape === 'constant') return { warmup_steps: warmup, decay_ratio: fraction(0) };
  return { warmup_steps: warmup, decay_type: shape, min_lr_factor: fraction(floor) };
}

function lostOfOptimizer({ optimizer: { kind, weightDecay } }: TrainerChoices): readonly string[] {
  if (!OPTIMIZERS[kind]) return [`the optimizer ${kind}, with its options and learning rate`];
  return weightDecay > 0 ? ['weight decay of matrices alone: torchtitan decays all parameters'] : [];
}

/** Modules of each part, by torchtitan's names. */
function moduleNames(parts: TrainerChoices['parts']): readonly (readonly string[])[] {
  let layer = 0;
  return parts.map((own, part) => [
    ...(part === 0 ? ['tok_embeddings'] : []),
    ...own.map(() => `layers.${layer++}`),
    ...(part === parts.length - 1 ? ['norm', 'output'] : []),
  ]);
}

function fraction(value: number): Fraction {
  return { fraction: value };
}

function valueText(value: TorchTitanValue): string {
  if (typeof value !== 'object' || !('fraction' in value)) return JSON.stringify(value);
  const { fraction: number } = value;
  if (!Number.isFinite(number)) return 'inf';
  return Number.isInteger(number) ? number.toFixed(1) : String(number);
}
