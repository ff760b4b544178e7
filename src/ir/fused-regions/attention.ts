/**
 * @file Attention: softmax(scale · Q·Kᵀ + mask)·V, as exporters write it.
 *
 *     Q ─ scale? ────────────────────────────┐
 *     K ─ repeat? ─ transpose ─ scale? ── matmul ─ scale? ─ cap? ─ mask* ─ softmax ─ guard? ─┐
 *     V ─ repeat? ──────────────────────────────────────────────────────────────────────── matmul ─▶
 *
 * The search starts at the softmax. It walks back through the operators on scores (attention-scores.ts) to the matmul of queries
 * and keys, and forward through casts, views and the guard against fully masked rows, where(isnan(p), 0, p), to the matmul with
 * the values. Then it walks back from the operands of both matmuls (attention-operands.ts). It follows the dimension of the keys
 * all the way, so a softmax over any other dimension is not an attention.
 *
 * Inputs: queries, keys, values, then the masks in order from the matmul on, then a sink (passes/write-sinks.ts). Masks are
 * computed outside, and so are rotary embedding, the split into heads, and the merge of the heads.
 *
 * Not recognised, because no fused kernel computes it: attention whose probabilities are read elsewhere or are an output of
 * the graph, or are dropped out in training. Keys or values that are themselves weights are a feed-forward layer.
 */
import type { Graph, Node } from '../graph.js';
import { makersOf } from '../makers-and-readers.js';
import { needed } from '../needed.js';
import { type AttentionOperand, keyOperand, matmulOf, queryOperand, valueOperand } from './attention-operands.js';
import { scoresBefore } from './attention-scores.js';
import { type AxisRun, axisRun, runAfter, VIEWS } from './axes.js';
import {
  type DraftMatch,
  type GraphIndex,
  indexGraph,
  isFloatCast,
  isOp,
  makerOf,
  numberAttribute,
  numbersAttribute,
  operandOf,
  resultOf,
  scalarOf,
  shapeOf,
  soleReader,
} from './matching.js';

/** Operators at which attention is found: a softmax, or the last step of one that is written out. */
export const ATTENTION_ANCHORS: readonly string[] = ['Softmax', 'Div', 'Mul'];

/** The attention around a softmax. */
export function findAttention(index: GraphIndex, anchor: Node): DraftMatch | null {
  const softmax = softmaxAt(index, anchor);
  if (!softmax) return null;
  const rank = shapeOf(index, softmax.scores).length;
  // Scores are [… , queries, keys], or transposed: [… , keys, queries].
  if (rank < 2 || softmax.axis < rank - 2) return null;
  const queries = axisRun(softmax.axis === rank - 1 ? rank - 2 : rank - 1);
  const runs = { queries, keys: axisRun(softmax.axis) };
  const result = valuesAfter(index, softmax.probabilities, runs);
  if (!result) return null;
  const scores = scoresBefore(index, softmax.scores, runs);
  if (!scores) return null;
  const query = queryOperand(index, scores.matmul);
  const key = keyOperand(index, scores.matmul);
  const { values } = result;
  if ([key.tensor, values.tensor].some((tensor) => index.graph.weights.has(tensor))) return null;
  const scale = scores.scale * query.scale * key.scale;
  return {
    kind: 'Attention',
    nodes: [
      ...softmax.nodes,
      ...result.nodes,
      ...scores.nodes,
      ...query.nodes,
      ...key.nodes,
      ...values.nodes,
      scores.matmul.node,
    ],
    inputs: [query.tensor, key.tensor, values.tensor, ...scores.masks, ...(softmax.sink ? [softmax.sink.tensor] : [])],
    output: resultOf(result.matmul),
    attributes: {
      scale,
      ...(scores.softcap === null ? {} : { softcap: scores.softcap }),
      ...(scores.maskScale === 1 ? {} : { mask_scale: scores.maskScale }),
    },
  };
}

/** The step from scores to probabilities. */
export interface Softmax {
  readonly scores: string;
  readonly probabilities: string;
  readonly axis: number;
  readonly nodes: readonly Node[];
  /** An additional score in each row's sum; null if none. */
  readonly sink: Sink | null;
}

export interface Sink {
  readonly tensor: string;
  /** The maximum of a row and its sink. */
  readonly max: string;
  /** Σ exp(S − max) + exp(sink − max). */
  readonly sum: string;
}

/** The softmax in the body of a recognised attention, and whether fully masked rows are guarded. */
export function softmaxInside(body: Graph): (Softmax & { readonly isGuarded: boolean }) | null {
  const index = indexGraph(body);
  for (const node of body.nodes) {
    const softmax = isOp(node, ...ATTENTION_ANCHORS) ? softmaxAt(index, node) : null;
    if (softmax) return { ...softmax, isGuarded: guardOf(index, softmax.probabilities) !== null };
  }
  return null;
}

/**
 * Whether the region's result is the matmul of probabilities (cast or guarded, not rearranged) and values, perhaps rounded
 * (autodiff/held-in-float32.ts), so that each of its rows belongs to the row of scores in the same place.
 */
export function isRowOfResult(body: Graph, { probabilities, axis }: Softmax): boolean {
  const makers = makersOf(body.nodes);
  const shapeOf = (name: string | null | undefined) => body.tensors.get(name ?? '')?.shape ?? [];
  const result = body.outputs[0];
  let matmul = makers.get(result ?? null);
  while (matmul?.op === 'Cast') matmul = makers.get(matmul.inputs[0] ?? null);
  if (matmul?.op !== 'MatMul') return false;
  let left = matmul.inputs[0] ?? null;
  for (let steps = 0; steps < 4 && left !== probabilities; steps++) {
    const maker = makers.get(left);
    if (maker?.op === 'Cast') left = maker.inputs[0] ?? null;
    else if (maker?.op === 'Where') left = maker.inputs[2] ?? null;
    else return false;
  }
  const [from, to] = [shapeOf(probabilities), shapeOf(result)];
  const isSame = from.length === to.length && from.slice(0, -1).join() === to.slice(0, -1).join();
  return left === probabilities && axis === from.length - 1 && isSame;
}

/** An attention in which each row of the result belongs to the row of scores in the same place. */
export interface RowwiseAttention {
  /** The operators that lead to its first result. */
  readonly nodes: readonly Node[];
  readonly softmax: Softmax;
  readonly isGuarded: boolean;
}

/** The body of a recognised attention as a row-wise one; it may return its rows' numbers too. Null if it is not row-wise. */
export function rowwiseAttention(body: Graph): RowwiseAttention | null {
  const [result] = body.outputs;
  if (result === undefined || body.outputs.length > 3) return null;
  const nodes = needed(body.nodes, [result]);
  const inner = { ...body, nodes, outputs: [result] };
  const softmax = softmaxInside(inner);
  if (!softmax || !isRowOfResult(inner, softmax)) return null;
  return { nodes, softmax, isGuarded: softmax.isGuarded };
}

/** The softmax that ends in `node`: the operator, or exp(s − max s) divided by its sum. */
function softmaxAt(index: GraphIndex, node: Node): Softmax | null {
  if (isOp(node, 'Softmax')) {
    const scores = operandOf(node);
    const axis = numberAttribute(node, 'axis', -1);
    if (!soleReader(index, scores)) return null;
    return {
      scores,
      probabilities: resultOf(node),
      axis: axis < 0 ? axis + shapeOf(index, scores).length : axis,
      nodes: [node],
      sink: null,
    };
  }
  for (const position of isOp(node, 'Div') ? [0] : [0, 1]) {
    const found = writtenOut(index, node, operandOf(node, position), operandOf(node, 1 - position));
    if (found) return found;
  }
  return null;
}

function writtenOut(index: GraphIndex, node: Node, raised: string, divisor: string): Softmax | null {
  const exponential = makerOf(index, raised, 'Exp');
  if (!exponential || (index.readers.get(raised) ?? []).length !== 2) return null;
  const reciprocal = isOp(node, 'Mul') ? makerOf(index, divisor, 'Reciprocal') : null;
  if (isOp(node, 'Mul') && !reciprocal) return null;
  const total = reciprocal ? operandOf(reciprocal) : divisor;
  const beside = sinkIn(index, total);
  const sum = makerOf(index, beside ? beside.ofKeys : total, 'ReduceSum');
  const [axis, ...more] = sum ? numbersAttribute(sum, 'axes') : [];
  if (!sum || operandOf(sum) !== raised || axis === undefined || more.length > 0) return null;
  if (numberAttribute(sum, 'keepdims', 1) !== 1) return null;
  const nodes = [node, exponential, sum, ...(reciprocal ? [reciprocal] : []), ...(beside?.nodes ?? [])];
  const sink = beside?.sink ?? null;
  const probabilities = resultOf(node);
  const difference = makerOf(index, operandOf(exponential), 'Sub');
  if (sink && (!difference || operandOf(difference, 1) !== sink.max)) return null;
  const maximum = difference && makerOf(index, beside?.maxOfKeys ?? operandOf(difference, 1), 'ReduceMax');
  if (!difference || !maximum || operandOf(maximum) !== operandOf(difference)) {
    const scores = operandOf(exponential);
    return !sink && soleReader(index, scores) ? { scores, probabilities, axis, nodes, sink } : null;
  }
  if (numbersAttribute(maximum, 'axes').join() !== String(axis)) return null;
  const scores = operandOf(difference);
  if (index.outputs.has(scores) || (index.readers.get(scores) ?? []).length !== 2) return null;
  return { scores, probabilities, axis, nodes: [...nodes, difference, maximum], sink };
}

/** A sink in the sum that a row is divided by: the sum over its keys + exp(sink − max(the maximum over its keys, sink)). */
function sinkIn(index: GraphIndex, sum: string) {
  const add = makerOf(index, sum, 'Add');
  const term = add && makerOf(index, operandOf(add, 1), 'Exp');
  const difference = term && makerOf(index, operandOf(term), 'Sub');
  const max = difference && makerOf(index, operandOf(difference, 1), 'Max');
  if (!max || operandOf(max, 1) !== operandOf(difference)) return null;
  return {
    sink: { tensor: operandOf(difference), max: resultOf(max), sum },
    ofKeys: operandOf(add),
    maxOfKeys: operandOf(max),
    nodes: [add, term, difference, max],
  };
}

interface ScoreRuns {
  readonly queries: AxisRun;
  readonly keys: AxisRun;
}

interface AttentionValues {
  readonly matmul: Node;
  readonly values: AttentionOperand;
  readonly nodes: readonly Node[];
}

/** From probabilities forward to their matmul with the values. */
function valuesAfter(index: GraphIndex, probabilities: string, start: ScoreRuns): AttentionValues | null {
  const nodes: Node[] = [];
  let tensor = probabilities;
  let runs = start;
  for (;;) {
    const guard = guardOf(index, tensor);
    const reader = guard?.at(-1) ?? soleReader(index, tensor);
    if (!reader) return null;
    if (isOp(reader, 'MatMul', 'Einsum')) {
      const matmul = matmulOf(index, reader);
      const values = matmul && valueOperand(index, matmul, tensor, runs);
      return values ? { matmul: reader, values, nodes: [...nodes, reader] } : null;
    }
    const result = resultOf(reader);
    if (guard) nodes.push(...guard);
    else if (isFloatCast(index, reader)) nodes.push(reader);
    else if (isOp(reader, ...VIEWS)) {
      const [before, after] = [shapeOf(index, tensor), shapeOf(index, result)];
      const queries = runAfter(reader, runs.queries, before, after);
      const keys = runAfter(reader, runs.keys, before, after);
      if (!queries || !keys) return null;
      runs = { queries, keys };
      nodes.push(reader);
    } else return null;
    tensor = result;
  }
}

/** where(isnan(p), 0, p): rows without a key get nothing instead of NaN. */
function guardOf(index: GraphIndex, tensor: string): readonly Node[] | null {
  const readers = index.readers.get(tensor) ?? [];
  const test = readers.find((reader) => isOp(reader, 'IsNaN'));
  const choice = readers.find((reader) => isOp(reader, 'Where'));
  if (readers.length !== 2 || index.outputs.has(tensor) || !test || !choice) return null;
  const [condition, replaced, kept] = choice.inputs;
  if (condition !== resultOf(test) || kept !== tensor || scalarOf(index, replaced) !== 0) return null;
  return [test, choice];
}
