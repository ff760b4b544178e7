/**
 * @file Operators that write over an operand: one that a neighbour made, in memory of its own, and that nothing reads afterwards.
 */
import type { TensorType } from '../../ir/graph.js';
import { type ComputeNode, readsOf, resultsOf } from '../../partition/sharded-graph.js';
import type { Statement } from './body.js';

/** Operators whose result shares no memory with their operands. */
const FRESH: ReadonlySet<string> = new Set(
  'Abs Add Div Erf Exp Log MatMul Mul Neg Pow Reciprocal Sigmoid Sign Softmax Sqrt Sub Tanh Where'.split(' '),
);
/** These too, where they give another shape. */
const REDUCTIONS: ReadonlySet<string> = new Set(['ReduceMax', 'ReduceMean', 'ReduceSum']);
const SIGNS: ReadonlySet<string> = new Set(['Add', 'Sub', 'Mul', 'Div']);

/** Whether an operator's result has memory of its own. */
export function isFresh(node: ComputeNode, typeOf: (name: string) => TensorType): boolean {
  const [result] = node.outputs;
  const [operand] = readsOf(node);
  if (FRESH.has(node.op)) return true;
  if (!result || operand === undefined) return false;
  const [made, read] = [typeOf(result), typeOf(operand)];
  if (node.op === 'Cast') return made.dtype !== read.dtype;
  return REDUCTIONS.has(node.op) && made.shape.join() !== read.shape.join();
}

/**
 * By operator the operand that it may write its result over.
 * @param nodes in the order in which they run
 * @param leaves tensors that others than these read
 * @param owned operands from elsewhere that may be written over too
 */
export function writtenOver(
  nodes: readonly ComputeNode[],
  leaves: ReadonlySet<string>,
  typeOf: (name: string) => TensorType,
  owned: readonly string[] = [],
): ReadonlyMap<ComputeNode, string> {
  const typeText = (name: string) => {
    const { dtype, shape } = typeOf(name);
    return `${dtype} ${shape.join()}`;
  };
  const isReduced = ({ op, outputs }: ComputeNode, name: string) =>
    REDUCTIONS.has(op) && outputs.every((made) => made !== null && typeText(made) !== typeText(name));
  const fresh = new Set(owned);
  const last = new Map<string, ComputeNode>();
  for (const node of nodes) {
    for (const name of readsOf(node)) last.set(name, node);
    for (const name of readsOf(node)) if (!FRESH.has(node.op) && !isReduced(node, name)) fresh.delete(name);
    if (FRESH.has(node.op)) for (const name of resultsOf(node)) if (!leaves.has(name)) fresh.add(name);
  }
  const found = new Map<ComputeNode, string>();
  for (const node of nodes) {
    const [result] = node.outputs;
    if (typeof result !== 'string' || !(SIGNS.has(node.op) || node.op === 'Sqrt')) continue;
    const mayGo = (name: string | null | undefined) =>
      typeof name === 'string' && fresh.has(name) && last.get(name) === node && typeText(name) === typeText(result);
    const isEitherWay = node.op === 'Add' || node.op === 'Mul';
    const operand = node.inputs.slice(0, isEitherWay ? 2 : 1).find(mayGo);
    if (typeof operand === 'string') found.set(node, operand);
  }
  return found;
}

/** A statement that assigns to one of its operands, as one that writes over it. */
export function inPlace({ text, comment }: Statement): Statement {
  const [, target = '', left, sign, right] = /^(\w+) = ([\w.]+) ([-+*/]) (.+)$/.exec(text) ?? [];
  if (left === target && sign) return { text: `${target} ${sign}= ${right}`, comment };
  if (right === target && (sign === '+' || sign === '*')) return { text: `${target} ${sign}= ${left}`, comment };
  const [, root = '', operand] = /^(\w+) = torch\.sqrt\((\w+)\)$/.exec(text) ?? [];
  return operand !== undefined && root === operand ? { text: `${root}.sqrt_()`, comment } : { text, comment };
}
