/**
 * @file The gradient of ONNX Runtime's GroupQueryAttention: causal, with the rotation of queries and keys inside. It is trained
 * over whole sequences; one that continues a cache is the same with keys and values that were written into the cache, each
 * sequence's behind its last token (continued-cache.ts).
 */
import { AutoparError } from '../error.js';
import { cut } from './attention-gradient.js';
import { constant } from './constants.js';
import { continuedCache } from './continued-cache.js';
import { numberOf, operand, result } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import { type Axes, type Axis, sizesOf } from './rearrange.js';
import { type AttentionAxes, addAttentionSlopes, addMask, type ScoreStep } from './score-gradient.js';

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

/** Places of the operands. */
const [QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, COSINE, SINE, POSITIONS, BIAS, SINK] = [0, 1, 2, 3, 4, 7, 8, 9, 10, 11];
/** The place of a sequence's last token. */
const LAST = 5;
/** Scales of a quantised cache, and weights of normalised queries and keys. */
const REFUSED = [12, 13, 14, 15];

/** `total`: positions that are attended to. */
export function groupedGradient(write: OperatorGradient, sizes: GroupedSizes, total: number): void {
  const { view } = write;
  refuse(write, sizes, total);
  const axes = axesOf(sizes, total);
  // A whole sequence overwrites what the cache held.
  const isWhole = total === sizes.query;
  const { b, h, g, s, e } = axes;
  const type = write.sumType;
  const raised = (name: string) => write.inType(name, operand(view, QUERY).dtype, type);
  const isPacked = !view.inputs[KEY];
  const own: Axes = [[b], [s], [h, g, e]];
  const ownKeys: Axes = [[b], [s], [h, e]];
  const heads: Axes = [[b], [h, g], [s], [e]];
  const keyHeads: Axes = [[b], [h], [s], [e]];
  const operands = isPacked
    ? apart(write, raised('in0'), [own, ownKeys, ownKeys])
    : [QUERY, KEY, VALUE].map((index) => raised(`in${index}`));
  const joined: Axes = [[b], [h], [axes.t], [e]];
  const before = isWhole ? null : tokensBefore(write, sizes.query);
  const cache = before === null ? null : continuedCache(write, { own: keyHeads, joined, before, keepsRest: false });
  const turn = rotation(write, sizes, before);
  const query = turn(write.rearrange(operands[QUERY] ?? '', own, heads), 1);
  const key = turn(write.rearrange(operands[KEY] ?? '', ownKeys, keyHeads), 1);
  const value = write.rearrange(operands[VALUE] ?? '', ownKeys, keyHeads);
  const queries: Axes = [[b], [h], [g], [s], [e]];
  const keys: Axes = [[b], [h], [], [axes.t], [e]];
  const held = (name: string, past: number) => write.rearrange(cache ? cache.written(name, past) : name, joined, keys);
  const slopes = addAttentionSlopes(write, {
    axes,
    scale: numberOf(view, 'scale', 0) || 1 / Math.sqrt(sizes.head),
    query: write.rearrange(query, heads, queries),
    key: held(key, PAST_KEY),
    value: held(value, PAST_VALUE),
    output: write.has(0) ? write.rearrange(raised('grad0'), own, queries) : null,
    steps: stepsOf(write, sizes, axes, before),
    probabilities: null,
    sink: sinkOf(write, axes),
  });
  /** What keys or values get, those of the cache with them: through the scores, and as the cache that is returned. */
  const ofKeys = (index: 1 | 2, slope: (() => string) | null): string => {
    const made = slope?.() ?? null;
    const present = write.has(index) ? write.inType(`grad${index}`, result(view, index).dtype, type) : null;
    const shown = present && cut(write, present, [[b], [h], [{ size: sizes.cached }], [e]], axes.t, 0);
    const both = made !== null && shown !== null ? write.add('Add', [made, shown]) : (made ?? shown);
    return both ?? zeros(write, joined);
  };
  const owed = { key: once(() => ofKeys(1, slopes.key)), value: once(() => ofKeys(2, slopes.value)) };
  const ofCall = (name: string) => (cache ? cache.own(name) : name);
  const parts = [
    () => write.rearrange(turn(write.rearrange(slopes.query(), queries, heads), -1), heads, own),
    () => write.rearrange(turn(ofCall(owed.key()), -1), keyHeads, ownKeys),
    () => write.rearrange(ofCall(owed.value()), keyHeads, ownKeys),
  ];
  if (!isPacked) {
    for (const [index, part] of parts.entries()) if (write.wants(index)) write.become(index, part(), type);
  } else if (write.wants(QUERY)) {
    const all = parts.map((part) => part());
    write.become(QUERY, write.add('Concat', all, { axis: 2 }), type);
  }
  for (const [index, made] of [[PAST_KEY, owed.key] as const, [PAST_VALUE, owed.value] as const]) {
    if (!write.wants(index)) continue;
    if (cache) cache.givePast(index, made());
    else write.none(index);
  }
}

/** What is written where it is first asked for. */
function once(make: () => string): () => string {
  let made: string | null = null;
  return () => {
    made ??= make();
    return made;
  };
}

/** Queries, keys and values that lie side by side. */
function apart(write: OperatorGradient, name: string, forms: readonly Axes[]): readonly string[] {
  const names = ['queries', 'keys', 'values'];
  const split = forms.map((form) => sizesOf(form)[2] ?? 1);
  write.addAll('Split', [name], names, { axis: 2, split });
  return names;
}

function refuse(write: OperatorGradient, { query }: GroupedSizes, total: number): void {
  const { view } = write;
  const isWindow = numberOf(view, 'sliding_window_cache', 0) !== 0;
  const isHeld = total === query || [PAST_KEY, PAST_VALUE].every((index) => view.inputs[index]);
  const isPlain = REFUSED.every((index) => !view.inputs[index]) && !write.has(3) && !isWindow && isHeld;
  if (isPlain && !write.wants(COSINE) && !write.wants(SINE)) return;
  throw new AutoparError(
    'no-gradient',
    'input',
    `${view.op} ${view.name}: this form of it has no gradient (its cache is quantised, or of one window; it ` +
      'normalises queries or shows its scores; or its tables of angles are trained)',
    { node: view.name },
    'Train over whole sequences, without a cache, and freeze the tables of angles: --frozen.',
  );
}

function axesOf({ batch, query, heads, keyHeads, head, cached }: GroupedSizes, total: number): AttentionAxes {
  const position: Axis = { size: query };
  return {
    b: { size: batch },
    h: { size: keyHeads },
    g: { size: heads / keyHeads },
    s: position,
    t: total === query ? position : { size: cached },
    e: { size: head },
    f: { size: head },
  };
}

/** What turns heads through the angles of their positions, forwards (1) or back (-1). */
function rotation(write: OperatorGradient, { head, query }: GroupedSizes, before: string | null) {
  const { view, sumType: type } = write;
  const table = view.inputs[COSINE];
  if (numberOf(view, 'do_rotary', 0) === 0 || !table) return (name: string, _way: 1 | -1) => name;
  const [cosine, sine] = [COSINE, SINE].map((index) => write.inType(`in${index}`, operand(view, index).dtype, type));
  const places = positionsOf(write, query, before);
  const back = write.add('Neg', [sine ?? '']);
  const interleaved = numberOf(view, 'rotary_interleaved', 0);
  const turned = 2 * (table.shape[1] ?? 1);
  return (name: string, way: 1 | -1) => {
    const features = (start: number, end: number) =>
      write.add('Slice', [name], { starts: [start], ends: [end], axes: [3], steps: [1] });
    const isPart = turned < head;
    const inputs = [isPart ? features(0, turned) : name, places, cosine ?? '', way === 1 ? (sine ?? '') : back];
    const made = write.addOf('com.microsoft', 'RotaryEmbedding', inputs, { interleaved });
    return isPart ? write.add('Concat', [made, features(turned, head)], { axis: 3 }) : made;
  };
}

/**
 * Positions of this call's tokens: those behind the cache, or given [batch, positions]; over whole sequences the first one [1],
 * which is all that the operator reads of those given.
 */
function positionsOf(write: OperatorGradient, query: number, before: string | null): string {
  const own = write.view.inputs[POSITIONS];
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
function tokensBefore(write: OperatorGradient, query: number): string {
  const at = write.on('int64');
  return at.add(write.cast(`in${LAST}`, 'int64'), 1 - query);
}

function stepsOf(
  write: OperatorGradient,
  { query }: GroupedSizes,
  axes: AttentionAxes,
  before: string | null,
): readonly ScoreStep[] {
  const { view } = write;
  const { t } = axes;
  const steps: ScoreStep[] = [];
  const cap = numberOf(view, 'softcap', 0);
  if (cap !== 0) steps.push({ kind: 'cap', by: cap });
  const bias = view.inputs[BIAS];
  if (bias) {
    const added = addMask(write, BIAS, axes, 0);
    const name = write.inType(added.name, bias.dtype, write.sumType);
    steps.push({ kind: 'add', name, axes: added.axes, operand: BIAS });
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
  const window = numberOf(view, 'local_window_size', -1);
  if (window < 0) return steps;
  const oldest = write.add('Sub', [rows, write.scalar('int64', window)]);
  keep(write.add('Less', [oldest, columns]));
  return steps;
}

/** A score that takes its part of the probabilities and gives nothing: trained per head, or zero. */
function sinkOf(write: OperatorGradient, { h, g }: AttentionAxes): { name: string; operand: number } | null {
  const { view } = write;
  const given = view.inputs[SINK];
  if (given) {
    const raised = write.inType(`in${SINK}`, given.dtype, write.sumType);
    return { name: write.rearrange(raised, [[h, g]], [[h], [g], [], []]), operand: SINK };
  }
  if (numberOf(view, 'smooth_softmax', 0) <= 0) return null;
  return { name: write.scalar(write.sumType, 0), operand: SINK };
}

function zeros(write: OperatorGradient, form: Axes): string {
  const value = constant(write.sumType, [0], [1]);
  return write.add('ConstantOfShape', [], { shape: sizesOf(form), value });
}
