/**
 * @file ONNX Runtime's GroupQueryAttention in plain operators: causal, with the rotation of queries and keys inside. It is
 * trained over whole sequences; one that continues a cache is the same with keys and values that were written into the cache,
 * each sequence's after its last token (continued-cache.ts).
 */
import { AutoparError } from '../error.js';
import { constant } from './constants.js';
import { continuedCache } from './continued-cache.js';
import { numberOf, operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import { type DimensionAxes, dimensionSizes } from './rearrange.js';
import { type AttentionAxes, addMask, type ScoreStep, writeAttention } from './scores.js';

/** Sizes as grouped-attention.ts reads them off the operands. */
export interface GroupedSizes {
  readonly batch: number;
  readonly query: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly head: number;
  /** Positions in the cache that is returned. */
  readonly cached: number;
}

/** Indices of the operands. */
const [QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, COSINE, SINE, POSITIONS, BIAS, SINK] = [0, 1, 2, 3, 4, 7, 8, 9, 10, 11];
/** Index of the operand with the places of the sequences' last tokens. */
const LAST = 5;
/** Operands that are refused: scales of a quantised cache, and weights of normalised queries and keys. */
const REFUSED = [12, 13, 14, 15];

/** `total`: positions that are attended to. */
export function plainGroupedAttention(write: OperatorWriter, sizes: GroupedSizes, total: number): void {
  const { operator } = write;
  refuse(write, sizes, total);
  const axes = axesOf(sizes, total);
  // A whole sequence overwrites what the cache held.
  const isWhole = total === sizes.query;
  const { b, h, g, s, t, e } = axes;
  const type = write.sumType;
  const raised = (index: number) => write.inType(`in${index}`, operand(operator, index).dtype, type);
  const own: DimensionAxes = [[b], [s], [h, g, e]];
  const ownKeys: DimensionAxes = [[b], [s], [h, e]];
  const heads: DimensionAxes = [[b], [h, g], [s], [e]];
  const keyHeads: DimensionAxes = [[b], [h], [s], [e]];
  const [query = '', key = '', value = ''] = operator.inputs[KEY]
    ? [QUERY, KEY, VALUE].map(raised)
    : apart(write, raised(QUERY), [own, ownKeys, ownKeys]);
  const before = isWhole ? null : tokensBefore(write, sizes.query);
  const turn = rotation(write, sizes, before);
  /** Keys or values with those of the cache; also writes the result that returns them. */
  const held = (name: string, index: 1 | 2, past: number) => {
    const { query: steps, cached } = sizes;
    const joined =
      before === null
        ? name
        : continuedCache(write, { past, own: name, steps, total: cached, before, clearsRest: true });
    if (operator.outputs[index])
      write.makes(index, before === null ? behind(write, name, cached - steps) : joined, type);
    return write.rearrange(joined, [[b], [h], [t], [e]], [[b], [h], [], [t], [e]]);
  };
  const queries: DimensionAxes = [[b], [h], [g], [s], [e]];
  const result = writeAttention(write, {
    scale: numberOf(operator, 'scale', 0) || 1 / Math.sqrt(sizes.head),
    query: write.rearrange(turn(write.rearrange(query, own, heads)), heads, queries),
    key: held(turn(write.rearrange(key, ownKeys, keyHeads)), 1, PAST_KEY),
    value: held(write.rearrange(value, ownKeys, keyHeads), 2, PAST_VALUE),
    steps: stepsOf(write, sizes, axes, before),
    sink: sinkOf(write, axes),
  });
  write.makes(0, write.rearrange(result, queries, own), type);
}

/** Keys or values, padded with zeros to the length of the cache; the padding has no gradient. */
function behind(write: OperatorWriter, name: string, room: number): string {
  if (room === 0) return name;
  return write.add('Pad', [name], { pads: [0, 0, 0, 0, 0, 0, room, 0], constant_value: constant(write.sumType, [0]) });
}

/** Splits queries, keys and values that are packed in one tensor. */
function apart(write: OperatorWriter, name: string, forms: readonly DimensionAxes[]): readonly string[] {
  const names = ['queries', 'keys', 'values'];
  const split = forms.map((form) => dimensionSizes(form)[2] ?? 1);
  write.addAll('Split', [name], names, { axis: 2, split });
  return names;
}

function refuse({ operator }: OperatorWriter, { query }: GroupedSizes, total: number): void {
  const isWindow = numberOf(operator, 'sliding_window_cache', 0) !== 0;
  const isHeld = total === query || [PAST_KEY, PAST_VALUE].every((index) => operator.inputs[index]);
  const isPlain = REFUSED.every((index) => !operator.inputs[index]) && !operator.outputs[3] && !isWindow && isHeld;
  if (isPlain) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${operator.op} ${operator.name}: this form of it has no gradient (its cache is quantised, or of one window; it ` +
      'normalises queries or shows its scores; or its tables of angles are trained)',
    { node: operator.name },
    'Train over whole sequences, without a cache.',
  );
}

function axesOf({ batch, query, heads, keyHeads, head, cached }: GroupedSizes, total: number): AttentionAxes {
  return {
    b: { size: batch },
    h: { size: keyHeads },
    g: { size: heads / keyHeads },
    s: { size: query },
    t: { size: total === query ? query : cached },
    e: { size: head },
    f: { size: head },
  };
}

/** Returns a function that applies the rotary embedding of the positions to heads. */
function rotation(write: OperatorWriter, { head, query }: GroupedSizes, before: string | null) {
  const { operator, sumType: type } = write;
  const table = operator.inputs[COSINE];
  if (numberOf(operator, 'do_rotary', 0) === 0 || !table) return (name: string) => name;
  const angles = [COSINE, SINE].map((index) => write.inType(`in${index}`, operand(operator, index).dtype, type));
  const places = positionsOf(write, query, before);
  const interleaved = numberOf(operator, 'rotary_interleaved', 0);
  const rotatedWidth = 2 * (table.shape[1] ?? 1);
  return (name: string) => {
    const features = (start: number, end: number) =>
      write.add('Slice', [name], { starts: [start], ends: [end], axes: [3], steps: [1] });
    const isPart = rotatedWidth < head;
    const inputs = [isPart ? features(0, rotatedWidth) : name, places, ...angles];
    const made = write.addOf('com.microsoft', 'RotaryEmbedding', inputs, { interleaved });
    return isPart ? write.add('Concat', [made, features(rotatedWidth, head)], { axis: 3 }) : made;
  };
}

/**
 * Positions of this call's tokens: those after the cache, or given [batch, positions]; over whole sequences the first one [1],
 * which is all that the operator reads of those given.
 */
function positionsOf(write: OperatorWriter, query: number, before: string | null): string {
  const own = write.operator.inputs[POSITIONS];
  if (own) {
    const given = write.inType(`in${POSITIONS}`, own.dtype, 'int64');
    if (before !== null) return given;
    const bounds = { starts: [0, 0], ends: [1, 1], axes: [0, 1], steps: [1, 1] };
    return write.add('Reshape', [write.add('Slice', [given], bounds)], { shape: [1] });
  }
  if (before === null) return write.tensor(constant('int64', [0], [1]));
  const first = write.add('Unsqueeze', [before], { axes: [1] });
  return write.add('Add', [first, write.positions([1, query], 1)]);
}

/** int64 [batch]: tokens of each sequence in the cache before those of this call. */
function tokensBefore(write: OperatorWriter, query: number): string {
  const at = write.on('int64');
  return at.add(write.cast(`in${LAST}`, 'int64'), 1 - query);
}

function stepsOf(
  write: OperatorWriter,
  { query }: GroupedSizes,
  axes: AttentionAxes,
  before: string | null,
): readonly ScoreStep[] {
  const { operator } = write;
  const { t } = axes;
  const steps: ScoreStep[] = [];
  const cap = numberOf(operator, 'softcap', 0);
  if (cap !== 0) steps.push({ kind: 'cap', by: cap });
  const bias = operator.inputs[BIAS];
  if (bias) {
    const name = write.inType(addMask(write, BIAS, axes, 0), bias.dtype, write.sumType);
    steps.push({ kind: 'add', name });
  }
  const positions = (axis: number) => write.positions([query, t.size], axis);
  const [own, columns] = [positions(0), positions(1)];
  const keep = (name: string) => steps.push({ kind: 'keep', name });
  const perSequence = (name: string) => write.add('Unsqueeze', [name], { axes: [1, 2, 3, 4] });
  const rows = before !== null ? write.add('Add', [perSequence(before), own]) : own;
  keep(write.add('GreaterOrEqual', [rows, columns]));
  if (before === null) {
    // Shorter sequences of the batch: the place of each one's last token.
    const ends = perSequence(write.cast(`in${LAST}`, 'int64'));
    keep(write.add('GreaterOrEqual', [ends, columns]));
  }
  const window = numberOf(operator, 'local_window_size', -1);
  if (window < 0) return steps;
  const oldest = write.add('Sub', [rows, write.scalar('int64', window)]);
  keep(write.add('Less', [oldest, columns]));
  return steps;
}

/** An attention sink: a score that takes its share of the probabilities and has no value; trained per head, or zero. */
function sinkOf(write: OperatorWriter, { h, g }: AttentionAxes): string | null {
  const { operator } = write;
  const given = operator.inputs[SINK];
  if (given)
    return write.rearrange(write.inType(`in${SINK}`, given.dtype, write.sumType), [[h, g]], [[h], [g], [], []]);
  return numberOf(operator, 'smooth_softmax', 0) > 0 ? write.scalar(write.sumType, 0) : null;
}
