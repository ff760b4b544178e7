/**
 * @file A plan as command-line flags of Megatron-LM (core 0.13 and later; megatron/training/arguments.py).
 */
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
    ...(OPTIMIZERS[String(choices.optimizer['kind'])] ? [] : [`the optimizer ${choices.optimizer['kind']}`]),
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
const OPTIMIZERS: Readonly<Record<string, string>> = { adam: 'adam', adamw: 'adam', sgd: 'sgd' };

function optimizerFlags({ optimizer }: TrainerChoices): readonly Flag[] {
  const name = OPTIMIZERS[String(optimizer['kind'])];
  if (name === undefined) return [];
  const [first, second] = Array.isArray(optimizer['betas']) ? (optimizer['betas'] as readonly number[]) : [];
  const values: Readonly<Record<string, unknown>> = {
    lr: optimizer['learningRate'],
    'adam-beta1': first,
    'adam-beta2': second,
    'adam-eps': optimizer['epsilon'],
    'sgd-momentum': optimizer['momentum'],
    'weight-decay': optimizer['weightDecay'],
    'clip-grad': optimizer['clipNorm'] ?? 0,
  };
  const given = Object.entries(values).flatMap(([flag, value]): readonly Flag[] =>
    typeof value === 'number' ? [[flag, value]] : [],
  );
  return [['optimizer', name], ...given];
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
