/**
 * @file A plan as command-line flags of Megatron-LM (core 0.13 and later; megatron/training/arguments.py).
 */
import type { OptimizerOptions } from '../../ir/autodiff/optimizer-options.js';
import type { TrainerChoices } from './choices.js';

/** A text for another trainer, and the features that it cannot express, a line each. */
export interface HandedOver {
  readonly text: string;
  readonly lost: readonly string[];
}

type Flag = readonly [name: string, value?: string | number];

/** A bash array of flags. The model's own flags (layers, widths, data) are not among them. */
export function megatronFlags(choices: TrainerChoices, title: string): HandedOver {
  const { degrees, schedule, zero, recompute, offload, own } = choices;
  const { flags: placed, lost: order } = meshOrder(choices);
  const flags: readonly Flag[] = [
    ['tensor-model-parallel-size', degrees.tp],
    ...flagIf(choices.tpSequence && degrees.tp > 1, 'sequence-parallel'),
    ['pipeline-model-parallel-size', degrees.pp],
    ...flagIf(degrees.pp > 1, 'pipeline-model-parallel-layout', `"${layoutText(choices.parts)}"`),
    ['context-parallel-size', degrees.sp],
    ...(choices.spMethod === null ? [] : flagsOf(CP[choices.spMethod])),
    ['expert-model-parallel-size', degrees.ep],
    ...placed,
    ...(choices.microBatch === null
      ? []
      : ([
          ['micro-batch-size', choices.microBatch],
          ['global-batch-size', choices.microBatch * choices.microBatches * degrees.dp],
        ] as const)),
    ...flagsOf(ZERO[zero]),
    ...flagIf(choices.bucketBytes !== null, 'ddp-bucket-size', Math.round((choices.bucketBytes ?? 0) / FLOAT_BYTES)),
    ...flagIf(choices.bucketBytes !== null, 'overlap-grad-reduce'),
    ...flagsOf(RECOMPUTE[recompute.kind]),
    ...flagIf(offload === 'optimizer', 'optimizer-cpu-offload'),
    ...flagIf(offload === 'optimizer', 'use-precision-aware-optimizer'),
    ...flagIf(choices.precision !== 'fp32', choices.precision),
    ...optimizerFlags(choices),
    ...scheduleFlags(choices),
  ];
  const isRun = schedule === 'single' || schedule === '1f1b' || schedule === 'interleaved-1f1b';
  const lost = [
    ...own,
    ...order,
    ...(isRun ? [] : [`schedule ${schedule}: Megatron-LM runs 1F1B, interleaved where stages have several chunks`]),
    ...(RECOMPUTE[recompute.kind] ? [] : [`recompute ${recompute.kind}`]),
    ...(recompute.kind === 'full' && !recompute.isOfAllLayers ? ['the layers that recompute: all layers do'] : []),
    ...(offload === 'none' || offload === 'optimizer' ? [] : [`offload ${offload}`]),
    ...(choices.spMethod !== null && !CP[choices.spMethod] ? ['how sp shards attention'] : []),
    ...lostOfOptimizer(choices),
  ];
  const lines = flags.map(([name, value]) => `  --${name}${value === undefined ? '' : ` ${value}`}`);
  const notes = lost.map((line) => `# not transferred: ${line}\n`).join('');
  const text = `# ${title}\n${notes}MEGATRON_ARGS=(\n${lines.join('\n')}\n)\n`;
  return { text, lost };
}

const FLOAT_BYTES = 4;

const ZERO: Readonly<Record<number, readonly Flag[]>> = {
  1: [['use-distributed-optimizer']],
  2: fullySharded('optim_grads'),
  3: fullySharded('optim_grads_params'),
};

function fullySharded(strategy: string): readonly Flag[] {
  return [
    ['use-distributed-optimizer'],
    ['use-megatron-fsdp'],
    ['data-parallel-sharding-strategy', strategy],
    ['no-gradient-accumulation-fusion'],
    ['ckpt-format', 'fsdp_dtensor'],
  ];
}

const RECOMPUTE: Readonly<Record<string, readonly Flag[]>> = {
  none: [],
  selective: [
    ['recompute-granularity', 'selective'],
    ['recompute-modules', 'core_attn'],
  ],
  full: [
    ['recompute-granularity', 'full'],
    ['recompute-method', 'uniform'],
    ['recompute-num-layers', 1],
  ],
};

/** Communication of keys and values in context parallelism. */
const CP: Readonly<Record<string, readonly Flag[]>> = {
  gather: [['cp-comm-type', 'all_gather']],
  ulysses: [['cp-comm-type', 'a2a']],
  ring: [['cp-comm-type', 'p2p']],
};

/** AdamW is its Adam, whose weight decay is decoupled. */
const OPTIMIZERS: Partial<Record<OptimizerOptions['kind'], string>> = { adam: 'adam', adamw: 'adam', sgd: 'sgd' };

/** All that it has a flag for: its defaults are not those of the plan. */
function optimizerFlags({ optimizer }: TrainerChoices): readonly Flag[] {
  const { kind, learningRate, betas, epsilon, momentum, weightDecay, clipNorm = 0 } = optimizer;
  const name = OPTIMIZERS[kind];
  const own: readonly Flag[] =
    kind === 'sgd'
      ? [['sgd-momentum', momentum]]
      : [
          ['adam-beta1', betas[0]],
          ['adam-beta2', betas[1]],
          ['adam-eps', epsilon],
        ];
  return [
    ...(name === undefined
      ? []
      : ([['optimizer', name], ['lr', learningRate], ...own, ['weight-decay', weightDecay]] as const)),
    ['clip-grad', clipNorm],
  ];
}

/** The learning rate over the steps; how many steps run is the user's. */
function scheduleFlags({ optimizer: { kind, learningRate, schedule } }: TrainerChoices): readonly Flag[] {
  const { warmup, shape, total, floor } = schedule;
  const isFalling = shape !== 'constant';
  return [
    ['lr-decay-style', shape],
    ['lr-warmup-iters', warmup],
    ...flagIf(isFalling, 'lr-decay-iters', total),
    ...flagIf(isFalling && OPTIMIZERS[kind] !== undefined, 'min-lr', Number((floor * learningRate).toPrecision(12))),
  ];
}

function lostOfOptimizer({ optimizer }: TrainerChoices): readonly string[] {
  const { kind, nesterov, weightDecay, schedule } = optimizer;
  const isCoupled = kind === 'adam' && weightDecay > 0;
  return [
    ...(OPTIMIZERS[kind] ? [] : [`the optimizer ${kind}, with its options and learning rate`]),
    ...(nesterov ? ["Nesterov's momentum"] : []),
    ...(isCoupled ? ["Adam's weight decay in the gradient: Megatron-LM decays weights apart, as AdamW"] : []),
    ...(schedule.warmup > 0 ? ['the first step of the warm-up: Megatron-LM warms up from rate 0, a step later'] : []),
  ];
}

/** `Et*3|t*3|t*2L`: the embedding, layers and the loss of each part of the pipeline. */
function layoutText(parts: TrainerChoices['parts']): string {
  return parts
    .map(({ length }, part) => {
      const layers = length > 1 ? `t*${length}` : 't'.repeat(length);
      return `${part === 0 ? 'E' : ''}${layers}${part === parts.length - 1 ? 'L' : ''}`;
    })
    .join('|');
}

/** Megatron-LM has tp on neighbouring devices, then cp, dp, pp; or pp before dp. */
function meshOrder({ order }: TrainerChoices): { readonly flags: readonly Flag[]; readonly lost: readonly string[] } {
  const isOrder = (axes: readonly string[]) => String(order) === String(axes.filter((axis) => order.includes(axis)));
  if (isOrder(['tp', 'sp', 'dp', 'pp'])) return { flags: [], lost: [] };
  if (isOrder(['tp', 'sp', 'pp', 'dp'])) return { flags: [['use-tp-pp-dp-mapping']], lost: [] };
  return { flags: [], lost: [`the mesh order ${[...order].reverse().join(', ')}: Megatron-LM has pp, dp, cp, tp`] };
}

function flagsOf(flags: readonly Flag[] | undefined): readonly Flag[] {
  return flags ?? [];
}

function flagIf(wanted: boolean, name: string, value?: string | number): readonly Flag[] {
  if (!wanted) return [];
  return [value === undefined ? [name] : [name, value]];
}
