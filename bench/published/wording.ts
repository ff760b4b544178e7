/**
 * @file What the columns of a published table say, in the words that its sources have: numbers, software, formats, what is sharded,
 * recomputed and overlapped. What a row leaves out is its system's default of the time.
 */
import { type ExpertSizes, GPT_STYLE, type LanguageModelStyle, LLAMA_STYLE } from '../../models/language-sizes.js';
import {
  type Precision,
  type Recompute,
  type StepConfiguration,
  usualGradientBytes,
} from '../../src/cost-model/step/configuration.js';
import type { SoftwareName } from '../../src/cost-model/step/constants.js';

export type Row = Readonly<Record<string, string>>;

/** Whether a run ended or ran out of memory; undefined where it did neither. */
export function statusOf(text: string): 'ok' | 'oom' | undefined {
  if (/oom|out.of.memory/i.test(text)) return 'oom';
  return UNSTATED.test(text) || YES.test(text) || /^(ok|done|pass(ed)?|completed?|success(ful)?)$/i.test(text.trim())
    ? 'ok'
    : undefined;
}

/** How tables say that they do not say. */
const UNSTATED = /^\s*(n\/?a|none|null|nan|unknown|-|–|\?)?\s*$/i;

/** Units that may follow a number, and what one of them is. */
const UNITS: readonly (readonly [pattern: RegExp, size: number])[] = [
  [/\s*(ms|milliseconds?)$/i, 1e-3],
  [/\s*(s|secs?|seconds?)$/i, 1],
  [/\s*GiB$/, 2 ** 30 / 1e9],
  [/\s*GB$/i, 1],
];

/**
 * Numbers may have commas or underscores between thousands, and a unit behind them; lengths of sequences may be in thousands of
 * 1,024 ("8k").
 */
export function number(row: Row, column: string): number | undefined {
  const stated = (row[column] ?? '').trim().replace(/(\d)[,_](?=\d{3})/g, '$1');
  const [unitPattern, size = 1] = UNITS.find(([pattern]) => /^[\d.]/.test(stated) && pattern.test(stated)) ?? [];
  const text = unitPattern ? stated.replace(unitPattern, '') : stated;
  const [, count, unit = ''] = /^(\d+)([km])$/i.exec(text) ?? [];
  if (column === 'seq' && count !== undefined) return Number(count) * 1024 ** (unit.toLowerCase() === 'k' ? 1 : 2);
  if (text === '' || Number.isNaN(Number(text))) return undefined;
  return Number(text) * size;
}

/**
 * Whose kernels, launches and collectives a run has. Megatron's model in DeepSpeed's engine runs as eager software does: BigScience's
 * runs, and those of Megatron-Turing NLG beside Megatron's own on the same machine, the same model and the same degrees.
 */
export function softwareOf(row: Row): SoftwareName {
  const source = `${row['source']} ${row['overlap']}`;
  if (/compile|JAX|XLA|PAX/i.test(source)) return 'compiled';
  if (IN_DEEPSPEED.test(source)) return 'eager';
  if (/llm-foundry|Hagemann|ml-engineering|AutoModel/i.test(source)) return 'eager';
  if (/NeMo|Bridge|MLPerf|MegaScale|H100|functional/i.test(source)) return 'megatron-core';
  if (/vTrain|SC21|SC'21|Korthikanti|BigScience|Megatron/i.test(source)) return 'megatron';
  return row['zero']?.startsWith('3') ? 'eager' : 'megatron-core';
}

/** Megatron's layers under DeepSpeed's engine: whole activations are sent, and gradients reduced after the backward. */
export const IN_DEEPSPEED = /BigScience|DeepSpeed/;

/** @param inTurns whether its layers are one part each, so that none has attention to run beside its experts' dispatch */
export function overlapOf(
  row: Row,
  software: SoftwareName,
  zero: number,
  inTurns: boolean,
): StepConfiguration['overlap'] {
  const text = row['overlap'] ?? '';
  const tensor =
    /tp_comm_overlap=True|asyncTP|tp-comm|MegaScale/.test(text) || (software === 'megatron-core' && text === '');
  return {
    tensor,
    // ZeRO 3 fetches the next parameters while it computes, in DeepSpeed too.
    data: (software !== 'megatron' && !IN_DEEPSPEED.test(row['source'] ?? '')) || zero === 3 || /grad/.test(text),
    pipeline: software === 'megatron-core',
    experts: release(row) >= 26.06 && !inTurns,
  };
}

/** The release that a source names, such as 26.06: experts' dispatch runs beside other work from that one on. */
function release(row: Row): number {
  return Number(/Bridge (\d\d\.\d\d)/.exec(row['source'] ?? '')?.[1] ?? 0);
}

/**
 * Chunks per stage. Where only a configuration file says how many ("see config"), each layer is one; where sends between stages
 * overlap, which Megatron has between chunks alone, there are two at least.
 */
export function chunksOf(row: Row, layers: number, pp: number): number {
  if (pp === 1) return 1;
  const most = Math.floor(layers / pp);
  const unstated = /config/.test(row['vpp'] ?? '') ? most : /p2p/.test(row['overlap'] ?? '') ? Math.min(2, most) : 1;
  return Math.max(1, number(row, 'vpp') ?? unstated);
}

/**
 * In what gradients are reduced, where it is not what the software usually does: NVIDIA's recipes for speed (NeMo, Megatron-Bridge,
 * MLPerf) reduce in bf16. FSDP reduces in fp32 unless told otherwise, as MosaicML's PURE does.
 */
export function gradientBytesOf(row: Row, software: SoftwareName, precision: Precision): number {
  const source = `${row['source']} ${row['notes']}`;
  if (precision !== 'fp32' && /NeMo|Bridge|MLPerf|mp_mode=PURE/.test(source)) return 2;
  if (/torchtitan|mp_mode=DEFAULT/.test(source)) return 4;
  return usualGradientBytes(precision, IN_DEEPSPEED.test(row['source'] ?? '') ? 'megatron' : software);
}

/** Yes and true, where a column asks whether. */
export const YES = /^\s*(1(\.0)?|true|yes|y|on)\s*$/i;

/** Levels of ZeRO by the names that other systems have for them. */
const ZERO_NAMES: readonly (readonly [pattern: RegExp, level: number])[] = [
  [/shard_grad_op/i, 2],
  [/fsdp|hsdp|full_shard/i, 3],
  [/distributed.optimizer|dist.adam/i, 1],
  [/none|no|ddp/i, 0],
];

export function zeroOf(
  text: string,
  software: SoftwareName,
): { readonly level: 0 | 1 | 2 | 3; readonly inNode: boolean } {
  const stated = /(?:^|zero\D{0,3}|stage\D{0,3})([0-3])/i.exec(text)?.[1];
  const named = ZERO_NAMES.find(([pattern]) => pattern.test(text))?.[1];
  const level = Number(stated ?? named ?? (software === 'megatron-core' ? 1 : 0));
  return { level: level as 0 | 1 | 2 | 3, inNode: /HSDP|hybrid/i.test(text) };
}

/** What torchtitan calls selective is by operator, unless it says otherwise, and saves attention. */
export function recomputeOf(row: Row): Recompute {
  const text = row['recompute'] ?? '';
  if (/^(full|uniform|block|(activation.)?checkpoint)/i.test(text) || YES.test(text)) return 'full';
  if (/selective\(op\)/i.test(text)) return 'operators';
  if (/^selective/i.test(text)) return /torchtitan/.test(row['source'] ?? '') ? 'operators' : 'selective';
  return 'none';
}

/**
 * XLA has no kernel of its own for attention: where a table names none, it runs in parts, unless Transformer Engine has the layers; flash
 * attention on GPUs is cuDNN's there.
 */
export function attentionOf(row: Row, software: SoftwareName): StepConfiguration['attention'] {
  const text = row['attn'] ?? '';
  // What Megatron's flag calls fused is cuDNN's kernel; a column may mean a fused softmax.
  if (flagsOf(row)['attention-backend'] === 'fused') return 'fused';
  // Megatron's own layers, without Transformer Engine's, have no kernel for attention.
  if (text === 'auto' && /mcore_(?!te)/.test(row['model'] ?? '')) return 'parts';
  if (/unfused/.test(text) || text === 'torch' || text === 'fused') return 'parts';
  // MPT's attention was FlashAttention 1 in Triton when its tables were made.
  if (/attention.?v1/i.test(text) || /llm-foundry/.test(row['source'] ?? '')) return 'early';
  const engine = /^te-/i.test(row['precision'] ?? '');
  if (/FA3|FA4|TE|cuDNN/.test(text) || engine || software === 'megatron-core') return 'fused';
  if (!/JAX|XLA|PAX/i.test(row['source'] ?? '')) return 'portable';
  return text.trim() === '' ? 'parts' : 'fused';
}

/** Megatron's fused softmax takes batch · heads in fours, and all else goes operator by operator, as "torch" does. */
export function plainSoftmax(row: Row, software: SoftwareName, rows: number): boolean {
  return row['attn'] === 'torch' || (software === 'megatron' && rows % 4 !== 0);
}

/** "fp4 or fp8 (see config)". */
export const AMBIGUOUS = /fp4 or fp8/;

/** MLPerf's configuration files say fp4 in their names; of the others most are of 8 bits. */
const FOUR_BITS = /fp4/;

export function precisionOf(row: Row): Precision {
  const text = row['precision'] ?? '';
  if (AMBIGUOUS.test(text)) return FOUR_BITS.test(`${row['source']} ${row['source_ref']}`) ? 'fp4' : 'fp8';
  return FORMATS.find(([pattern]) => pattern.test(text))?.[1] ?? 'bf16';
}

/** The first that matches counts: mixed recipes multiply in the narrowest that they name, bf16 where they leave it open. */
const FORMATS: readonly (readonly [pattern: RegExp, precision: Precision])[] = [
  [/fp4/i, 'fp4'],
  [/fp8|float8/i, 'fp8'],
  [/bf16|bfloat16/i, 'bf16'],
  [/fp16|float16|half/i, 'fp16'],
  [/fp32|float32/i, 'fp32'],
];

/** Settings of Megatron that a row's notes list as "flags {…}": what no column has, experts and how layers are made. */
export function flagsOf(row: Row): Readonly<Record<string, unknown>> {
  const [, text] = /flags (\{.*?\})/.exec(row['notes'] ?? '') ?? [];
  try {
    const flags: unknown = text === undefined ? {} : JSON.parse(text);
    return typeof flags === 'object' && flags !== null ? (flags as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {};
  }
}

/**
 * Ranks that experts are spread over. DeepEP sends tokens to experts on other ranks: where a row names it and states one rank, that is what
 * it leaves out, and all others of its source have as many as share the batch, up to 64.
 */
export function expertRanksOf(row: Row, ranks: number): number {
  const stated = Math.max(1, number(row, 'ep') ?? 1);
  return Math.min(stated === 1 && /DeepEP/.test(row['attn'] ?? '') ? 64 : stated, ranks);
}

/** Experts that flags describe: two of them take a token unless said otherwise. */
export function expertsOf(flags: Readonly<Record<string, unknown>>, feedForward: number): ExpertSizes | undefined {
  const count = Number(flags['num-experts'] ?? 0);
  if (!Number.isInteger(count) || count < 2) return undefined;
  const chosen = Number(flags['moe-router-topk'] ?? 2);
  return { count, chosen, feedForward: Number(flags['moe-ffn-hidden-size'] ?? feedForward), shared: 0, dense: 0 };
}

/**
 * Tokens beyond the next that a run predicts, where its model can: NeMo AutoModel counts 74 GFLOP a token of Nemotron 3 Super, which
 * has none, and Megatron-Bridge 85, which has two.
 */
export function predictionsOf(row: Row, most: number): number {
  return /AutoModel/.test(row['source'] ?? '') && /super/i.test(row['model'] ?? '') ? 0 : most;
}

export function styleOf(row: Row, stated: 'gpt' | 'llama' | undefined): LanguageModelStyle {
  if (stated) return stated === 'gpt' ? GPT_STYLE : LLAMA_STYLE;
  const name = row['model'] ?? '';
  if (/llama|qwen|deepseek|mixtral|kimi|oss/i.test(name)) return LLAMA_STYLE;
  // Nemotron 4: squared ReLU, rotary, no bias, untied.
  if (/nemotron/i.test(name)) return { ...LLAMA_STYLE, gated: false, norm: 'layer' };
  if (/mpt/i.test(name)) return { ...GPT_STYLE, bias: false };
  const flags = flagsOf(row);
  return { ...GPT_STYLE, gated: flags['swiglu'] === true, tied: flags['untie-embeddings-and-output-weights'] !== true };
}
