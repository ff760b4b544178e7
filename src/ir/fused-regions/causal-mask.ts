/**
 * @file Two properties of an attention's mask: whether no position sees a later one (causal), and whether every position sees
 * itself, so that no row is left without a key. They follow from the mask's values if these are known, else from the operators
 * that make it. For packed samples the mask is computed from data, and also hides positions of other documents:
 *
 *     documents [.., n, 1] = documents [.., 1, n]  and  positions [n] ≤ positions [n, 1]
 *
 * A property that cannot be derived counts as false.
 */
import type { Node } from '../graph.js';
import { madeOnce } from '../remembered.js';
import { softmaxInside } from './attention.js';
import {
  type GraphIndex,
  indexGraph,
  isFloatCast,
  isOp,
  makerOf,
  operandOf,
  scalarOf,
  shapeOf,
  typeIn,
  valuesOf,
} from './matching.js';

/** Added to a score, this leaves nothing of it (exporters write -1e4, the least float, or minus infinity). */
const MASKED = -1e4;

/** Maximum number of values of a mask, or of positions, that are read: 2,048 × 2,048. */
const MOST_VALUES = 2 ** 22;

/** How far back a mask is followed. */
const MOST_STEPS = 12;

/** Operators that leave the dimensions of queries and keys as they are, where these have the same sizes. */
const CARRIERS = ['Identity', 'Expand', 'Unsqueeze', 'Reshape'];

/** Views that leave elements in their order. */
const VIEWS = ['Identity', 'Unsqueeze', 'Squeeze', 'Reshape'];

/** A mask, [..., queries, keys]. */
export interface Mask {
  readonly tensor: string;
  /** `shows`: true, or near 0, where a query sees a key; `hides`: true where it does not; null: not known. */
  readonly sense: 'shows' | 'hides' | null;
}

/** The masks of a recognised attention, as its body reads them. */
export function masksOf({ inputs, body }: Node): readonly Mask[] {
  if (!body) return [];
  const inside = indexGraph(body);
  const sink = softmaxInside(body)?.sink?.tensor;
  return inputs.slice(3).flatMap((tensor) => {
    if (tensor === null || tensor === sink) return [];
    const [reader, ...others] = inside.readers.get(tensor) ?? [];
    if (!reader || others.length > 0) return [{ tensor, sense: null }];
    if (isOp(reader, 'Add')) return [{ tensor, sense: 'shows' as const }];
    const isCondition = isOp(reader, 'Where') && operandOf(reader) === tensor;
    const isHiding = isCondition && (scalarOf(inside, operandOf(reader, 1)) ?? 0) <= MASKED;
    return [{ tensor, sense: isHiding ? 'hides' : isCondition ? 'shows' : null }];
  });
}

/** Whether a mask hides every key after the query. */
export function isCausalMask(index: GraphIndex, mask: Mask): boolean {
  return holdsOnce(CAUSAL, index, mask, {
    ofValue: ({ key, query }, isHidden) => isHidden || (key !== null && query !== null && key <= query),
    ofComparison: (op, left, right) => {
      if (op === 'LessOrEqual') return areOrdered(index, left, right);
      return op === 'GreaterOrEqual' && areOrdered(index, right, left);
    },
    ofBoth: (one, other) => one || other,
  });
}

/** Whether a mask leaves every query the key at its own position. */
export function showsItself(index: GraphIndex, mask: Mask): boolean {
  return holdsOnce(SHOWING_ITSELF, index, mask, {
    ofValue: ({ key, query }, isHidden) => !isHidden || (key !== null && query !== null && key !== query),
    ofComparison: (op, left, right) => {
      if (op === 'Equal') return isSameAcross(index, left, right);
      if (op === 'LessOrEqual') return isAtMostAcross(index, left, right);
      return op === 'GreaterOrEqual' && isAtMostAcross(index, right, left);
    },
    ofBoth: (one, other) => one && other,
  });
}

/** Whether a mask's values are known. */
export function hasValues(index: GraphIndex, { tensor }: Mask): boolean {
  return valuesOf(index, tensor, MOST_VALUES) !== null;
}

/** A property of a mask, derived from the operators and values that make it. */
interface Property {
  /** For one element of a mask; null: the element is for all keys, or for all queries. */
  readonly ofValue: (of: { readonly key: number | null; readonly query: number | null }, isHidden: boolean) => boolean;
  /** For a mask that shows keys where a comparison holds. */
  readonly ofComparison: (op: string, left: string, right: string) => boolean;
  /** For a mask that hides what either of two masks hides. */
  readonly ofBoth: (one: boolean, other: boolean) => boolean;
}

/** Results known for masks, since all layers of a model read the same ones. */
type KnownMasks = WeakMap<GraphIndex, Map<string, boolean>>;
const CAUSAL: KnownMasks = new WeakMap();
const SHOWING_ITSELF: KnownMasks = new WeakMap();

function holdsOnce(known: KnownMasks, index: GraphIndex, mask: Mask, property: Property): boolean {
  const ofGraph = madeOnce(known, index, () => new Map<string, boolean>());
  const key = `${mask.sense} ${mask.tensor}`;
  return madeOnce(ofGraph, key, () => holds(index, mask, MOST_STEPS, property));
}

function holds(index: GraphIndex, { tensor, sense }: Mask, steps: number, property: Property): boolean {
  if (steps === 0 || sense === null) return false;
  if (index.graph.weights.has(tensor)) return holdsOfValues(index, { tensor, sense }, property.ofValue);
  const maker = makerOf(index, tensor);
  if (!maker) return false;
  const of = (operand: number, own: Mask['sense'] = sense) =>
    holds(index, { tensor: operandOf(maker, operand), sense: own }, steps - 1, property);
  const opposite: Mask['sense'] = sense === 'shows' ? 'hides' : 'shows';
  if (isOp(maker, ...CARRIERS)) {
    const [before, after] = [shapeOf(index, operandOf(maker)), shapeOf(index, tensor)];
    const isSpread = maker.op === 'Expand' || (before.at(-2) ?? 1) === (after.at(-2) ?? 1);
    return isSpread && before.at(-1) === after.at(-1) && of(0);
  }
  if (isFloatCast(index, maker)) return of(0);
  if (isOp(maker, 'Not')) return of(0, opposite);
  if (sense === 'hides') return isOp(maker, 'Or') && property.ofBoth(of(0), of(1));
  // A sum of masks, or an And of them, hides what either of them hides.
  if (isOp(maker, 'And', 'Add')) return property.ofBoth(of(0), of(1));
  if (isOp(maker, 'Where')) {
    const [yes, no] = [scalarOf(index, operandOf(maker, 1)), scalarOf(index, operandOf(maker, 2))];
    const isHidden = (value: number | null) => value !== null && value <= MASKED;
    const [shown, value, sign] = isHidden(no) ? ([1, yes, sense] as const) : ([2, no, opposite] as const);
    if (!isHidden(no) && !isHidden(yes)) return false;
    return value === null ? property.ofBoth(of(0, sign), of(shown)) : !isHidden(value) && of(0, sign);
  }
  return maker.domain === '' && property.ofComparison(maker.op, operandOf(maker), operandOf(maker, 1));
}

function holdsOfValues(index: GraphIndex, { tensor, sense }: Mask, property: Property['ofValue']): boolean {
  const values = valuesOf(index, tensor, MOST_VALUES);
  const isTruth = typeIn(index, tensor).dtype === 'bool';
  if (!values || (sense === 'hides' && !isTruth)) return false;
  const [keys = 1, queries = 1] = shapeOf(index, tensor).toReversed();
  return values.every((value, at) => {
    const place = {
      key: keys === 1 ? null : at % keys,
      query: queries === 1 ? null : Math.floor(at / keys) % queries,
    };
    return property(place, isTruth ? (value === 0) === (sense === 'shows') : value <= MASKED);
  });
}

/** Whether these are the positions of keys, [..., 1, n] or [n], and of queries, [..., n, 1], equal and increasing. */
function areOrdered(index: GraphIndex, keys: string, queries: string): boolean {
  const [across, down] = [shapeOf(index, keys), shapeOf(index, queries)];
  if ((across.at(-2) ?? 1) !== 1 || down.at(-1) !== 1) return false;
  const [columns, rows] = [valuesOf(index, keys, MOST_VALUES), valuesOf(index, queries, MOST_VALUES)];
  if (!columns || !rows || columns.length !== across.at(-1) || rows.length !== columns.length) return false;
  return columns.every((value, at) => value === rows[at] && (at === 0 || value > (columns[at - 1] ?? value)));
}

/** Whether `least` is at most `most` at equal positions, where one of them is along queries and the other along keys. */
function isAtMostAcross(index: GraphIndex, least: string, most: string): boolean {
  const [one, other] = [shapeOf(index, least), shapeOf(index, most)];
  const isCrossed = (one.at(-1) === 1) !== (other.at(-1) === 1) && (one.at(-2) ?? 1) !== (other.at(-2) ?? 1);
  const [low, high] = [valuesOf(index, least, MOST_VALUES), valuesOf(index, most, MOST_VALUES)];
  return (
    isCrossed && low?.length === high?.length && (low?.every((value, at) => value <= (high?.[at] ?? value)) ?? false)
  );
}

/** Whether both are one tensor, once along queries and once along keys, so that they are equal at equal positions. */
function isSameAcross(index: GraphIndex, left: string, right: string): boolean {
  const [one, other] = [shapeOf(index, left), shapeOf(index, right)];
  const [rows, columns] = one.at(-1) === 1 ? [one, other] : [other, one];
  const isTransposed = [...rows.slice(0, -2), 1, rows.at(-2)].join() === columns.join() && rows.at(-1) === 1;
  return isTransposed && sourceOf(index, left) === sourceOf(index, right);
}

function sourceOf(index: GraphIndex, tensor: string): string {
  let source = tensor;
  for (let maker = makerOf(index, source, ...VIEWS); maker; maker = makerOf(index, source, ...VIEWS))
    source = operandOf(maker);
  return source;
}
