/**
 * @file The scores of attention, found by walking back from the softmax to the matmul of queries and keys: scales, the soft cap
 * c·tanh(s/c), masks that are added or chosen by Where, casts and views, in any order that gives the same scores.
 *
 * A mask that is scaled afterwards counts as mask_scale · mask: relative positions in XLNet are added before the scale.
 */
import type { Node } from '../graph.js';
import { type ScoreMatmul, scoreMatmulOf } from './attention-operands.js';
import { type AxisRun, runBefore, soleAxis, VIEWS } from './axes.js';
import {
  type GraphIndex,
  isFloatCast,
  isOp,
  makerOf,
  operandOf,
  otherOperand,
  resultOf,
  scalarOf,
  shapeOf,
  soleReader,
  valuesOf,
} from './matching.js';

export interface Scores {
  readonly matmul: ScoreMatmul;
  readonly scale: number;
  /** c of c·tanh(s / c), or null. */
  readonly softcap: number | null;
  /** The factor on all masks. */
  readonly maskScale: number;
  /** Tensors that are added to scores or that select them, in order from the matmul on. */
  readonly masks: readonly string[];
  readonly nodes: readonly Node[];
}

interface ScoreState {
  readonly queries: AxisRun;
  readonly keys: AxisRun;
  /** The factor that multiplies the current tensor on its way to the softmax, or to the cap. */
  readonly factor: number;
  readonly softcap: number | null;
  readonly maskScales: readonly number[];
  readonly masks: readonly string[];
  readonly nodes: readonly Node[];
}

/** More operators than any exporter puts between matmul and softmax. */
const MAX_STEPS = 16;

/** A number at or below this stands for −∞: a score that it masks has no weight left. */
const MINUS_INFINITY = -1e3;

/** The scores that the softmax reads as `tensor`; null if they do not come from a matmul of queries and keys. */
export function scoresBefore(
  index: GraphIndex,
  tensor: string,
  runs: { readonly queries: AxisRun; readonly keys: AxisRun },
): Scores | null {
  return walk(index, tensor, { ...runs, factor: 1, softcap: null, maskScales: [], masks: [], nodes: [] });
}

function walk(index: GraphIndex, tensor: string, state: ScoreState): Scores | null {
  const node = makerOf(index, tensor);
  if (!node || state.nodes.length > MAX_STEPS) return null;
  if (isOp(node, 'MatMul', 'Einsum')) return finished(index, node, state);
  let best: Scores | null = null;
  for (const { tensor: operand, state: before } of stepsBack(index, node, state)) {
    // Only the region reads the scores. (The softmax checks its own operand, which it reads twice where it is written out.)
    if (!soleReader(index, operand)) continue;
    const scores = walk(index, operand, { ...before, nodes: [node, ...state.nodes] });
    if (scores && (!best || scores.nodes.length < best.nodes.length)) best = scores;
  }
  return best;
}

function finished(index: GraphIndex, node: Node, state: ScoreState): Scores | null {
  const [queries, keys] = [soleAxis(state.queries), soleAxis(state.keys)];
  const [maskScale = 1, ...others] = new Set(state.maskScales);
  if (queries === null || keys === null || others.length > 0) return null;
  const matmul = scoreMatmulOf(index, node, { queries, keys });
  if (!matmul) return null;
  return {
    matmul,
    scale: state.factor * (state.softcap ?? 1),
    softcap: state.softcap,
    maskScale,
    masks: state.masks,
    nodes: state.nodes,
  };
}

interface ScoredTensor {
  readonly tensor: string;
  readonly state: ScoreState;
}

/** The operands of `node` that may be the scores before it, each with the state known there. */
function stepsBack(index: GraphIndex, node: Node, state: ScoreState): readonly ScoredTensor[] {
  const [first, second] = [operandOf(node), operandOf(node, 1)];
  if (isFloatCast(index, node)) return [{ tensor: first, state }];
  if (isOp(node, ...VIEWS)) {
    const [after, before] = [shapeOf(index, resultOf(node)), shapeOf(index, first)];
    const queries = runBefore(node, state.queries, after, before);
    const keys = runBefore(node, state.keys, after, before);
    return queries && keys ? [{ tensor: first, state: { ...state, queries, keys } }] : [];
  }
  if (isOp(node, 'Mul', 'Div')) {
    const places = isOp(node, 'Div') ? [0] : [0, 1];
    return places.flatMap((place) => {
      const [tensor, other] = place === 0 ? [first, second] : [second, first];
      const value = scalarOf(index, other);
      if (value !== null) {
        const factor = state.factor * (isOp(node, 'Div') ? 1 / value : value);
        return value === 0 || !Number.isFinite(factor) ? [] : [{ tensor, state: { ...state, factor } }];
      }
      return isOp(node, 'Mul') ? multiplied(index, node, tensor, other, state) : [];
    });
  }
  if (isOp(node, 'Tanh')) {
    if (state.softcap !== null || state.factor <= 0) return [];
    return [{ tensor: first, state: { ...state, softcap: state.factor, factor: 1 } }];
  }
  // A mask inside the cap would be capped as well, and mask nothing.
  if (state.softcap !== null) return [];
  if (isOp(node, 'Add')) return [...masked(index, node, first, state), ...masked(index, node, second, state)];
  if (isOp(node, 'Sub')) return masked(index, node, first, state);
  if (isOp(node, 'Where')) return chosen(index, node, state);
  if (isOp(node, 'Max')) {
    const tensor = [first, second].find((_, place) => isMinusInfinity(index, operandOf(node, 1 - place)));
    return tensor !== undefined && node.inputs.length === 2 ? [{ tensor, state }] : [];
  }
  return [];
}

/** Scores plus, or minus, a mask or bias. */
function masked(index: GraphIndex, node: Node, tensor: string, state: ScoreState): readonly ScoredTensor[] {
  const mask = otherOperand(node, tensor);
  if (mask === null || mask === tensor || !fillsResult(index, node, tensor)) return [];
  return [
    {
      tensor,
      state: { ...state, masks: [mask, ...state.masks], maskScales: [...state.maskScales, state.factor] },
    },
  ];
}

/** where(keep, scores, −∞) or where(hide, −∞, scores). */
function chosen(index: GraphIndex, node: Node, state: ScoreState): readonly ScoredTensor[] {
  const condition = operandOf(node);
  const [yes, no] = [operandOf(node, 1), operandOf(node, 2)];
  const tensor = isMinusInfinity(index, no) ? yes : isMinusInfinity(index, yes) ? no : null;
  if (tensor === null || state.factor <= 0 || !fillsResult(index, node, tensor)) return [];
  return [{ tensor, state: { ...state, masks: [condition, ...state.masks] } }];
}

/** scores · m + (…), with m of zeros and ones, as GPT-2 once masked: the sum above makes the zeros very negative. */
function multiplied(
  index: GraphIndex,
  node: Node,
  tensor: string,
  mask: string,
  state: ScoreState,
): readonly ScoredTensor[] {
  const [sum] = state.nodes;
  const kept = sum && isOp(sum, 'Add', 'Sub') && operandOf(sum) === resultOf(node);
  if (!kept || !fillsResult(index, node, tensor)) return [];
  const values = valuesOf(index, mask);
  if (!values?.every((value) => value === 0 || value === 1)) return [];
  return [{ tensor, state: { ...state, masks: [mask, ...state.masks] } }];
}

function isMinusInfinity(index: GraphIndex, tensor: string): boolean {
  const value = scalarOf(index, tensor);
  return value !== null && value <= MINUS_INFINITY;
}

/** Whether the scores have the shape of the result: masks broadcast to them, never the other way. */
function fillsResult(index: GraphIndex, node: Node, tensor: string): boolean {
  return shapeOf(index, tensor).join() === shapeOf(index, resultOf(node)).join();
}
