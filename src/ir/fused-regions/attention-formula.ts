/**
 * @file A recognised attention as one formula, softmax(scale · Q·Kᵀ + masks)·V, of operands whose dimensions may be in any order:
 * the attributes that a function of it needs beside the operands.
 *
 *     queries, keys, values    per dimension of the formula's operand (heads, positions, features) the operand's own
 *     grouped                  1: several heads of queries in a row share a head of keys and values
 *     masks                    per mask: `add`ed to scores, or true where a key is shown (`show`) or hidden (`hide`)
 *     fills                    per mask: the score of a hidden key; 0 for one that is added
 *     causal                   1: a key is hidden from the queries before it, in place of a mask that is constant
 *     guarded                  1: a query that sees no key gets zeros
 */
import type { DimensionFactors, FactorRule } from '../factor-rule.js';
import { type Attributes, type ConstantTensor, elementCount, type Graph } from '../graph.js';
import type { Formula } from '../operator.js';
import { numbersOf } from '../ops/constants.js';
import { madeOnce } from '../remembered.js';
import { type RowwiseAttention, rowwiseAttention } from './attention.js';
import { type GraphIndex, indexGraph, isOp, operandOf, scalarOf } from './matching.js';

/**
 * Null where the body computes more (a soft cap, a sink), or its dimensions are not those of the formula.
 * @param knownValue an operand's value where it is known
 */
export function attentionFormula(
  body: Graph,
  rule: FactorRule,
  { scale, ...more }: Attributes,
  knownValue: (operand: number) => ConstantTensor | null,
): Formula | null {
  const rows = rowwiseAttention(body);
  if (!rows || rows.softmax.sink || scale === undefined || Object.keys(more).length > 0) return null;
  const orders = ordersOf(rule);
  const masks = orders && masksIn(body, rows, rule, orders.scores);
  if (!masks) return null;
  const { queries, keys, values, isGrouped } = orders;
  const own = { scale, queries, keys, values, ...(isGrouped ? { grouped: 1 } : {}) };
  const [mask, ...others] = masks;
  if (!mask) return { attributes: own, operands: 3, whole: [] };
  const value = others.length === 0 ? knownValue(3) : null;
  if (value && isCausalOnce(value, mask))
    return { attributes: { ...own, causal: 1 }, operands: 3, whole: orders.scores.slice(-2).flat() };
  const [kinds, fills] = [masks.map(({ kind }) => kind), masks.map(({ fill }) => fill)];
  const guarded = rows.isGuarded ? { guarded: 1 } : {};
  return { attributes: { ...own, masks: kinds, fills, ...guarded }, operands: 3 + masks.length, whole: [] };
}

/** The dimensions of a tensor. */
type Dims = readonly DimensionFactors[];

interface OperandOrders {
  readonly queries: readonly number[];
  readonly keys: readonly number[];
  readonly values: readonly number[];
  readonly isGrouped: boolean;
  /** The dimensions of the scores, [… , queries, keys]. */
  readonly scores: Dims;
}

/** The result is [… , positions, features]; queries, keys and values have the same dimensions before these two. */
function ordersOf({ inputs, outputs }: FactorRule): OperandOrders | null {
  const [queries, keys, values] = [0, 1, 2].map((operand) => inputs[operand] ?? []) as [Dims, Dims, Dims];
  const result = outputs[0] ?? [];
  const [positions, features] = result.slice(-2);
  const lead = result.slice(0, -2);
  const rank = result.length;
  if (!positions || !features || [queries, keys, values].some((dims) => dims.length !== rank)) return null;
  const ofKeys = new Set(keys.flat());
  const shared = lead.map((dim) => dim.filter((factor) => ofKeys.has(factor)));
  const isGrouped = isSame(shared, lead) === false;
  // Heads that share keys are parts of the last of these dimensions, behind the heads of the keys.
  const heads = lead.at(-1) ?? [];
  const isInRow = isSame(shared.slice(0, -1), lead.slice(0, -1)) && isSame([shared.at(-1) ?? []], [heads.slice(0, -1)]);
  if (isGrouped && (rank < 4 || !isInRow)) return null;
  const ofQueries = orderOf(queries, [...lead, positions], rank - 1);
  const ofValues = orderOf(values, [...shared, features], rank - 2);
  if (!ofQueries || !ofValues) return null;
  const ofKeyed = orderOf(keys, [...shared, ofQueries.left], rank - 2);
  if (!ofKeyed || !isSame([ofKeyed.left], [ofValues.left])) return null;
  return {
    queries: ofQueries.order,
    keys: ofKeyed.order,
    values: ofValues.order,
    isGrouped,
    scores: [...lead, positions, ofKeyed.left],
  };
}

/** Where an operand has these dimensions, and one more, `left`, which is to come at `place`. */
function orderOf(dims: Dims, wanted: Dims, place: number) {
  const rest = new Set(dims.keys());
  const order: number[] = [];
  for (const dim of wanted) {
    const at = [...rest].find((axis) => isSame([dims[axis] ?? []], [dim]));
    if (at === undefined) return null;
    rest.delete(at);
    order.push(at);
  }
  const [last] = rest;
  if (last === undefined) return null;
  return { order: order.toSpliced(place, 0, last), left: dims[last] ?? [] };
}

interface FormulaMask {
  readonly kind: 'add' | 'show' | 'hide';
  readonly fill: number;
}

/** The masks between the matmul of queries and keys and the softmax; null where other operators change scores there. */
function masksIn(
  body: Graph,
  { nodes }: RowwiseAttention,
  { inputs }: FactorRule,
  scores: Dims,
): readonly FormulaMask[] | null {
  const index = indexGraph({ ...body, nodes });
  if (nodes.some((node) => isOp(node, 'Max'))) return null;
  const masks = body.inputs.slice(3).map((tensor, place) => {
    const dims = inputs[place + 3] ?? [];
    const isAligned = dims.every((dim, axis) => {
      const own = scores[scores.length - dims.length + axis];
      return own !== undefined && (dim.length === 0 || isSame([dim], [own]));
    });
    return isAligned ? maskOf(index, tensor) : null;
  });
  return masks.some((mask) => mask === null) ? null : (masks as FormulaMask[]);
}

function maskOf(index: GraphIndex, tensor: string): FormulaMask | null {
  const [reader, ...others] = index.readers.get(tensor) ?? [];
  if (!reader || others.length > 0) return null;
  if (isOp(reader, 'Add')) return { kind: 'add', fill: 0 };
  if (!isOp(reader, 'Where') || operandOf(reader) !== tensor) return null;
  const [shown, hidden] = [scalarOf(index, operandOf(reader, 2)), scalarOf(index, operandOf(reader, 1))];
  if (shown !== null && hidden === null) return { kind: 'show', fill: shown };
  return hidden !== null && shown === null ? { kind: 'hide', fill: hidden } : null;
}

/** A score that leaves a key nothing beside one that is not hidden. */
const HIDDEN = -1e4;

/** By values of a mask, and by how they are read: all layers of a model read the same ones. */
const CAUSAL = new WeakMap<Uint8Array, Map<string, boolean>>();

function isCausalOnce(value: ConstantTensor, mask: FormulaMask): boolean {
  const known = madeOnce(CAUSAL, value.data, () => new Map<string, boolean>());
  return madeOnce(known, `${mask.kind} ${mask.fill} ${value.dtype} ${value.shape}`, () => isCausal(value, mask));
}

/** Whether a mask hides keys behind the query, and changes nothing else. */
function isCausal(value: ConstantTensor, { kind, fill }: FormulaMask): boolean {
  const [keys = 0, queries = 0] = value.shape.toReversed();
  if (keys !== queries || elementCount(value.shape) > MOST_VALUES) return false;
  const numbers = numbersOf(value);
  return numbers.every((number, at) => {
    const isLater = at % keys > Math.floor(at / keys) % queries;
    if (kind === 'add') return isLater ? number <= HIDDEN : number === 0;
    return fill <= HIDDEN && (number !== 0) === (isLater === (kind === 'hide'));
  });
}

/** 2,048 queries and keys, as in causal-mask.ts. */
const MOST_VALUES = 2 ** 22;

function isSame(some: Dims, others: Dims): boolean {
  return JSON.stringify(some) === JSON.stringify(others);
}
