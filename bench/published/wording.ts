/**
 * @file Reads the columns of a published table in the words of its sources: numbers, software, formats, and what is sharded,
 * recomputed and overlapped. A value that a row leaves out is its system's default of the time.
 */
import { type ExpertSizes, GPT_STYLE, type LanguageModelStyle, LLAMA_STYLE } from '../../models/language-sizes.js';
import type { CsvRow } from '../../src/api/calibration/csv.js';
import {
  type MatmulPrecision,
  type StepConfiguration,
  type StepRecompute,
  usualGradientBytes,
} from '../../src/cost-model/step/configuration.js';
import type { SoftwareName } from '../../src/cost-model/step/constants.js';
import { number, UNSTATED } from './numbers.js';
import { IN_DEEPSPEED } from './software.js';

/** Whether a run ended or ran out of memory; undefined where it did neither. */
export function statusOf(text: string): 'ok' | 'oom' | undefined {
  if (/oom|out.of.memory/i.test(text)) return 'oom';
  return UNSTATED.test(text) ||
    YES.test(text) ||
    /^(ok(ay)?|done|ran|fits?|pass(ed)?|completed?|finished|succe(ss(ful)?|eded))$/i.test(text.trim())
    ? 'ok'
    : undefined;
}

/** @param inTurns whether its layers are one part each, so that none has attention to run beside its experts' dispatch */
export function overlapOf(
  row: CsvRow,
  software: SoftwareName,
  zero: number,
  inTurns: boolean,
): StepConfiguration['overlap'] {
  const text = row['overlap'] ?? '';
  // ZeRO 3 always prefetches parameters; a run may overlap nothing else.
  if (NO.test(text)) return { tensor: false, data: zero === 3, pipeline: false, experts: false };
  const tensor =
    /tp_comm_overlap=True|async.?TP|tp-comm|MegaScale/i.test(text) ||
    (software === 'megatron-core' && UNSTATED.test(text));
  return {
    tensor,
    // ZeRO 3 prefetches the next parameters while it computes, in DeepSpeed too.
    data: (software !== 'megatron' && !IN_DEEPSPEED.test(row['source'] ?? '')) || zero === 3 || /grad/.test(text),
    pipeline: software === 'megatron-core',
    experts: release(row) >= 26.06 && !inTurns,
  };
}

/** The release that a source names, such as 26.06: from that one on, expert dispatch overlaps with other work. */
function release(row: CsvRow): number {
  return Number(/Bridge (\d\d\.\d\d)/.exec(row['source'] ?? '')?.[1] ?? 0);
}

/**
 * Chunks per stage. If only a configuration file states their number ("see config"), each layer is one; if sends between stages
 * overlap, which Megatron supports only between chunks, there are at least two.
 */
export function chunksOf(row: CsvRow, layers: number, pp: number): number {
  if (pp === 1) return 1;
  const most = Math.floor(layers / pp);
  const unstated = /config/.test(row['vpp'] ?? '') ? most : /p2p/.test(row['overlap'] ?? '') ? Math.min(2, most) : 1;
  return Math.max(1, number(row, 'vpp') ?? unstated);
}

/**
 * Bytes per element in which gradients are reduced, the software's usual ones but for some sources: NVIDIA's recipes for speed
 * (NeMo, Megatron-Bridge, MLPerf) reduce in bf16, as MosaicML's PURE does. FSDP reduces in fp32 by default.
 */
export function gradientBytesOf(row: CsvRow, software: SoftwareName, precision: MatmulPrecision): number {
  const source = `${row['source']} ${row['notes']}`;
  if (precision !== 'fp32' && /NeMo|Bridge|MLPerf|mp_mode=PURE/.test(source)) return 2;
  if (/torchtitan|mp_mode=DEFAULT/.test(source)) return 4;
  return usualGradientBytes(precision, IN_DEEPSPEED.test(row['source'] ?? '') ? 'megatron' : software);
}

/** No and false, where a column asks whether. */
const NO = /^\s*(0(\.0)?|no(ne|thing)?|false|off|without)\s*$/i;

/** Yes and true, where a column asks whether. */
const YES = /^\s*(1(\.0)?|true|yes|y|on)\s*$/i;

/** Megatron's sequence parallelism, which torchtitan's tensor parallelism always has. */
export function tpSequenceOf(row: CsvRow, software: SoftwareName, tp: number): boolean {
  const text = row['sp'] ?? '';
  if (!UNSTATED.test(text)) return YES.test(text);
  return tp > 1 && (software === 'megatron-core' || /torchtitan/i.test(row['source'] ?? ''));
}

/** The kind of recomputation, and the share of the layers that it is for. */
export interface Recomputed {
  readonly recompute: StepRecompute;
  readonly share: number;
}

/** Recomputation of norms and activation functions alone: fewer stored activations, which the memory model does not count. */
const ELEMENT_WISE =
  /^selective\W+((layer)?norms?|(moe_)?act(ivation)?s?|swiglu|gelu|rope)([\s,+/&]+((layer)?norms?|(moe_)?act(ivation)?s?))*\W*$/i;

/** Systems' words for recomputation; the first match counts. */
const RECOMPUTED: readonly (readonly [pattern: RegExp, recompute: StepRecompute, share?: number])[] = [
  [/^(0|none|no|false|off|without)\b|^minimal/i, 'none'],
  // Full recomputation of every second layer (torchtitan).
  [/^selective.layer|(every|each) (2nd|second|other)\b/i, 'full', 0.5],
  [/^(selective\W*)?op(erator)?s?\b/i, 'operators'],
  // Costs next to nothing, and is not priced.
  [ELEMENT_WISE, 'none'],
  [/^selective\W+(fraction of|attn|attention|core)/i, 'selective'],
  [/^selective$/i, 'selective'],
  [/^(full|uniform|block|all|every|whole|nothing.saveable)/i, 'full'],
  [/^(with )?((activation|gradient)s?.)?(re-?)?(checkpoint|comput)\w*$/i, 'full'],
];

/** Whether a table states what is recomputed, so that memory can be predicted: "none" is stated too. */
export function statesRecompute(row: CsvRow): boolean {
  const text = (row['recompute'] ?? '').trim();
  return recomputeOf(row) !== undefined && !ELEMENT_WISE.test(text) && (!UNSTATED.test(text) || /^none$/i.test(text));
}

/** torchtitan's "selective" is by operator, unless it says otherwise, and stores attention. Undefined: unknown words. */
export function recomputeOf(row: CsvRow): Recomputed | undefined {
  const text = row['recompute'] ?? '';
  if (UNSTATED.test(text)) return { recompute: 'none', share: 1 };
  if (YES.test(text)) return { recompute: 'full', share: 1 };
  const [, recompute, share = 1] = RECOMPUTED.find(([pattern]) => pattern.test(text.trim())) ?? [];
  if (recompute === undefined) return undefined;
  const byOperator = recompute === 'selective' && /torchtitan/.test(row['source'] ?? '');
  return { recompute: byOperator ? 'operators' : recompute, share };
}

/**
 * XLA has no kernel of its own for attention: if a table names none, attention runs in parts, unless Transformer Engine has the
 * layers; flash attention on GPUs is cuDNN's there.
 */
export function attentionOf(row: CsvRow, software: SoftwareName): StepConfiguration['attention'] {
  const text = row['attn'] ?? '';
  // "fused" in Megatron's flag is cuDNN's kernel; in a column it may mean a fused softmax.
  if (flagsOf(row)['attention-backend'] === 'fused') return 'fused';
  // Megatron's own layers, without Transformer Engine's, have no kernel for attention.
  if (text === 'auto' && /mcore_(?!te)/.test(row['model'] ?? '')) return 'parts';
  if (/unfused|\b(naive|vanilla|eager|math)\b|^(torch|fused)$/i.test(text)) return 'parts';
  // MPT's attention was FlashAttention 1 in Triton when its tables were made.
  if (/attention.?v?1(?!\d)|\bFA-?1\b/i.test(text) || /llm-foundry/.test(row['source'] ?? '')) return 'early';
  const engine = /^te-/i.test(row['precision'] ?? '');
  if (/\bFA-?[34]|attention.?v?[34]|\bTE\b|Transformer.?Engine|cuDNN/i.test(text) || engine) return 'fused';
  if (/\bFA-?2\b|attention.?v?2/i.test(text)) return 'portable';
  if (software === 'megatron-core') return 'fused';
  if (!/JAX|XLA|PAX/i.test(row['source'] ?? '')) return 'portable';
  return text.trim() === '' ? 'parts' : 'fused';
}

/** Megatron's fused softmax needs a multiple of 4 for batch · heads; anything else runs operator by operator, like "torch". */
export function plainSoftmax(row: CsvRow, software: SoftwareName, rows: number): boolean {
  return /^torch$/i.test(row['attn'] ?? '') || (software === 'megatron' && rows % 4 !== 0);
}

/** "fp4 or fp8 (see config)". */
export const AMBIGUOUS = /fp4 or fp8/;

/** MLPerf's configuration files have fp4 in their names; most others are of 8 bits. */
const FOUR_BITS = /fp4/;

/** The format of matmuls; undefined if the table names an unknown one. */
export function precisionOf(row: CsvRow): MatmulPrecision | undefined {
  const text = row['precision'] ?? '';
  if (UNSTATED.test(text)) return 'bf16';
  if (AMBIGUOUS.test(text)) return FOUR_BITS.test(`${row['source']} ${row['source_ref']}`) ? 'fp4' : 'fp8';
  return FORMATS.find(([pattern]) => pattern.test(text))?.[1];
}

/** The first match counts: mixed recipes multiply in the narrowest format that they name, in bf16 if they leave it open. */
const FORMATS: readonly (readonly [pattern: RegExp, precision: MatmulPrecision])[] = [
  [/fp4|float4/i, 'fp4'],
  [/fp8|float8|e4m3|e5m2/i, 'fp8'],
  [/bf-?16|bfloat-?16/i, 'bf16'],
  [/fp-?16|float-?16|half/i, 'fp16'],
  [/fp-?32|float-?32|single/i, 'fp32'],
  // The row states 16 bits without naming the format, or only that two formats are mixed.
  [/16|mixed|amp/i, 'bf16'],
];

/** Settings of Megatron that a row's notes list as "flags {…}": experts and the style of layers, which have no columns. */
export function flagsOf(row: CsvRow): Readonly<Record<string, unknown>> {
  const [, text] = /flags (\{.*?\})/.exec(row['notes'] ?? '') ?? [];
  try {
    const flags: unknown = text === undefined ? {} : JSON.parse(text);
    return typeof flags === 'object' && flags !== null ? (flags as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {};
  }
}

/**
 * Degree of expert parallelism. DeepEP dispatches tokens to experts on other ranks: if a row names it and states one rank, the
 * row leaves the degree out; all other rows of its source have as many ranks as share the batch, up to 64.
 */
export function expertRanksOf(row: CsvRow, ranks: number): number {
  const stated = Math.max(1, number(row, 'ep') ?? 1);
  return Math.min(stated === 1 && /DeepEP/.test(row['attn'] ?? '') ? 64 : stated, ranks);
}

/** Experts that flags describe: top-2 routing unless stated otherwise. */
export function expertsOf(flags: Readonly<Record<string, unknown>>, feedForward: number): ExpertSizes | undefined {
  const count = Number(flags['num-experts'] ?? 0);
  if (!Number.isInteger(count) || count < 2) return undefined;
  const chosen = Number(flags['moe-router-topk'] ?? 2);
  return { count, chosen, feedForward: Number(flags['moe-ffn-hidden-size'] ?? feedForward), shared: 0, dense: 0 };
}

/**
 * Tokens beyond the next that a run predicts, where its model can: NeMo AutoModel counts 74 GFLOP a token of Nemotron 3 Super,
 * which has none, and Megatron-Bridge 85, which has two.
 */
export function predictionsOf(row: CsvRow, most: number): number {
  return /AutoModel/.test(row['source'] ?? '') && /super/i.test(row['model'] ?? '') ? 0 : most;
}

export function styleOf(row: CsvRow, stated: 'gpt' | 'llama' | undefined): LanguageModelStyle {
  if (stated) return stated === 'gpt' ? GPT_STYLE : LLAMA_STYLE;
  const name = row['model'] ?? '';
  if (/llama|qwen|deepseek|mi[sx]tral|kimi|oss|\byi\b|internlm|baichuan|olmo-?2|grok|gemma/i.test(name))
    return LLAMA_STYLE;
  // Nemotron 4: squared ReLU, rotary, no bias, untied.
  if (/nemotron/i.test(name)) return { ...LLAMA_STYLE, gated: false, norm: 'layer' };
  if (/mpt/i.test(name)) return { ...GPT_STYLE, bias: false };
  const flags = flagsOf(row);
  return { ...GPT_STYLE, gated: flags['swiglu'] === true, tied: flags['untie-embeddings-and-output-weights'] !== true };
}
