/**
 * @file The columns of a table of measured runs, each with its place in a run: one list for reading and for writing. Values are
 * written as in the options of `simulate`; columns that a row leaves out have their defaults.
 */

import { DEEPEST } from '../../../models/families.js';
import type { LayerKind, LayerPart } from '../../../models/language-sizes.js';
import { layersOfLetters } from '../../../models/layer-kinds.js';
import type { CsvRow } from './csv.js';

/** How a value is written in a field; `read` returns null for a text that is not a value of this kind. */
interface FieldKind {
  readonly says: string;
  readonly read: (text: string) => unknown;
  readonly write: (value: never) => string;
}

interface CanonicalColumn {
  readonly name: string;
  /** Path of keys in the run, from the outermost record. */
  readonly at: readonly string[];
  readonly kind: FieldKind;
}

const MOST = 1e12;
const plain = (value: string | number) => `${value}`;
const numberIn = (text: string) => (/^\d+(\.\d+)?(e[-+]?\d+)?$/i.test(text) ? Number(text) : Number.NaN);
const integerFrom = (least: number, most = MOST): FieldKind => ({
  says: `a whole number from ${least}${most === MOST ? '' : ` to ${most}`}`,
  read: (text) => {
    const value = numberIn(text);
    return Number.isInteger(value) && value >= least && value <= most ? value : null;
  },
  write: plain,
});
const COUNT = integerFrom(1);
const AMOUNT = integerFrom(0);
/** A measured quantity, or a data sheet figure. */
const FIGURE: FieldKind = {
  says: 'a number above 0',
  read: (text) => {
    const value = numberIn(text);
    return value > 0 && value < 1e18 ? value : null;
  },
  write: plain,
};
/** Bytes of a gradient's element. */
const WIDTH: FieldKind = {
  says: '2 or 4',
  read: (text) => ([2, 4].includes(numberIn(text)) ? numberIn(text) : null),
  write: plain,
};
const TEXT: FieldKind = { says: 'a name', read: (text) => text, write: plain };
const FLAG: FieldKind = {
  says: 'yes or no',
  read: (text) => (text === 'yes' ? true : text === 'no' ? false : null),
  write: (value: boolean) => (value ? 'yes' : 'no'),
};
const word = (...words: readonly string[]): FieldKind => ({
  says: `one of ${words.join(', ')}`,
  read: (text) => (words.includes(text) ? text : null),
  write: plain,
});
const COUNTS: FieldKind = {
  says: 'whole numbers, one for each stage',
  read: (text) => (/^\d+( \d+)*$/.test(text) ? text.split(' ').map(Number) : null),
  write: (value: readonly number[]) => value.join(' '),
};
const PARTS: readonly LayerPart[] = ['attention', 'windowed-attention', 'state-space', 'feed-forward', 'experts'];
/** Letters as in `--model hybrid`, or parts joined by + where layers have several. */
const PATTERN: FieldKind = {
  says: 'letters M, *, - and E, or layers such as attention+experts',
  read: (text) => {
    const layers = layersOfLetters(text);
    if (layers) return layers;
    const named = text.split(' ').map((layer) => layer.split('+'));
    return named.every((parts) => parts.every((part) => PARTS.includes(part as LayerPart))) ? named : null;
  },
  write: (value: readonly LayerKind[]) => value.map((parts) => parts.join('+')).join(' '),
};

const columns = (at: readonly string[], kinds: Readonly<Record<string, readonly [place: string, kind: FieldKind]>>) =>
  Object.entries(kinds).map(([name, [place, kind]]): CanonicalColumn => ({ name, at: [...at, place], kind }));

export const COLUMNS: readonly CanonicalColumn[] = [
  ...columns([], {
    model: ['model', TEXT],
    device: ['device', TEXT],
    devices: ['devices', COUNT],
    per_node: ['perNode', COUNT],
    network_gbit_s: ['network', FIGURE],
  }),
  // For devices that differ slightly from those of the catalogue.
  ...columns(['figures'], {
    device_memory_bytes: ['memoryBytes', FIGURE],
    device_memory_bytes_s: ['memoryBandwidth', FIGURE],
    links_bytes_s: ['bandwidth', FIGURE],
    links_seconds: ['latencySeconds', FIGURE],
    links_devices: ['domainSize', COUNT],
    links_topology: ['topology', TEXT],
  }),
  ...columns(['configuration', 'degrees'], {
    ...{ tp: ['tp', COUNT], pp: ['pp', COUNT], sp: ['sp', COUNT], dp: ['dp', COUNT], ep: ['ep', COUNT] },
  }),
  ...columns(['sizes'], {
    layers: ['layers', integerFrom(1, DEEPEST)],
    hidden: ['hidden', COUNT],
    heads: ['heads', COUNT],
    kv_heads: ['keyHeads', COUNT],
    head_width: ['headWidth', COUNT],
    ffn: ['feedForward', COUNT],
    vocab: ['vocabulary', COUNT],
    seq: ['sequence', COUNT],
  }),
  ...columns(['configuration'], {
    micro_batch: ['microBatch', COUNT],
    global_batch: ['globalBatch', COUNT],
    virtual_stages: ['virtualStages', COUNT],
    precision: ['precision', word('fp32', 'bf16', 'fp16', 'fp8', 'fp4')],
    software: ['software', word('megatron', 'megatron-core', 'eager', 'compiled')],
    attention: ['attention', word('fused', 'portable', 'early', 'parts')],
    zero: ['zero', integerFrom(0, 3)],
    recompute: ['recompute', word('none', 'selective', 'operators', 'full')],
    recomputed_layers: ['recomputedLayers', COUNTS],
    offload: ['offload', word('none', 'optimizer', 'activations', 'all')],
    tp_sequence: ['tpSequence', FLAG],
    gradients: ['gradientBytes', WIDTH],
    fused_norms: ['fusedNorms', FLAG],
    loss: ['loss', word('fused', 'parallel', 'plain')],
    scattered_sends: ['scatteredSends', FLAG],
    plain_softmax: ['plainSoftmax', FLAG],
  }),
  ...columns(['configuration', 'overlap'], {
    overlap_tp: ['tensor', FLAG],
    overlap_dp: ['data', FLAG],
    overlap_pp: ['pipeline', FLAG],
    overlap_ep: ['experts', FLAG],
  }),
  ...columns(['sizes'], {
    norm: ['norm', word('layer', 'rms')],
    positions: ['positions', word('learned', 'rotary', 'none')],
    gated: ['gated', FLAG],
    activation: ['activation', word('squared-relu')],
    bias: ['bias', FLAG],
    tied: ['tied', FLAG],
    window: ['window', COUNT],
    sinks: ['sinks', FLAG],
    pattern: ['pattern', PATTERN],
  }),
  ...columns(['sizes', 'experts'], {
    experts: ['count', COUNT],
    topk: ['chosen', COUNT],
    expert_ffn: ['feedForward', COUNT],
    shared: ['shared', AMOUNT],
    dense: ['dense', AMOUNT],
    expert_latent: ['latent', COUNT],
    expert_bias: ['bias', FLAG],
    clamp: ['clamp', FIGURE],
  }),
  ...columns(['sizes', 'latent'], {
    ...{ latent_query: ['query', COUNT], latent_kv: ['keyValue', COUNT], latent_value: ['valueWidth', COUNT] },
  }),
  ...columns(['sizes', 'stateSpace'], {
    state_heads: ['heads', COUNT],
    state_width: ['headWidth', COUNT],
    state: ['state', COUNT],
    groups: ['groups', COUNT],
    kernel: ['kernel', COUNT],
    chunk: ['chunk', COUNT],
  }),
  ...columns([], {
    predictions: ['predictions', AMOUNT],
    seconds: ['seconds', FIGURE],
    memory_bytes: ['memoryBytes', FIGURE],
    memory_of_last: ['memoryOfLast', FLAG],
    fits: ['fits', FLAG],
    why: ['why', TEXT],
  }),
];

/** Columns that every row needs. */
export const NEEDED: readonly string[] = [
  ...['device', 'devices', 'model', 'layers', 'hidden', 'heads', 'ffn', 'vocab', 'seq', 'micro_batch', 'global_batch'],
];

/** Columns of a part that only some models have: where one of the part's is stated, these are needed. */
const NEEDED_OF_PARTS: Readonly<Record<string, readonly string[]>> = {
  experts: ['experts', 'topk', 'expert_ffn'],
  latent: ['latent_query', 'latent_kv', 'latent_value'],
  stateSpace: ['state_heads', 'state_width', 'state', 'groups', 'kernel', 'chunk'],
};

type Nested = { readonly [key: string]: unknown };

/** The values of a row's fields, by their places; or an error text that names the first missing or invalid field. */
export function recordOfRow(row: CsvRow): Nested | string {
  const record: Record<string, unknown> = {};
  for (const { name, at, kind } of COLUMNS) {
    const text = row[name] ?? '';
    if (text === '') {
      if (NEEDED.includes(name)) return `${name} is not stated`;
      continue;
    }
    const value = kind.read(text);
    if (value === null) return `${name} is ${text}, where ${kind.says} is expected`;
    let into = record;
    for (const key of at.slice(0, -1)) {
      into[key] ??= {};
      into = into[key] as Record<string, unknown>;
    }
    into[at.at(-1) as string] = value;
  }
  for (const part of Object.keys((record['sizes'] ?? {}) as Nested)) {
    const lacking = NEEDED_OF_PARTS[part]?.find((name) => (row[name] ?? '') === '');
    if (lacking !== undefined) return `${lacking} is not stated`;
  }
  return record;
}

/** The row that describes a record. */
export function rowOf(record: Nested): CsvRow {
  const row: Record<string, string> = {};
  for (const { name, at, kind } of COLUMNS) {
    let value: unknown = record;
    for (const key of at) value = (value as Nested | undefined)?.[key];
    if (value !== undefined && value !== null) row[name] = kind.write(value as never);
  }
  return row;
}
