/**
 * @file The operands of attention's two matmuls: which is the query, key or value side, and how far back the region includes the
 * operators before it.
 *
 * The matmul reads transposed keys, [… , features, keys]. The region includes the operators that transpose them (a Transpose,
 * or a Transpose between two Reshapes), that repeat them for groups of heads (Unsqueeze, Expand and Reshape, Tile, Concat) and
 * that scale them, as long as nothing else reads their results. The walk back ends at a tensor that has the features last.
 */
import type { Node } from '../graph.js';
import { type AxisRun, axisRun, runBefore, soleAxis, VIEWS } from './axes.js';
import {
  type GraphIndex,
  isOp,
  isWidening,
  makerOf,
  numbersAttribute,
  operandOf,
  resultOf,
  scalarOf,
  shapeOf,
  soleReader,
} from './matching.js';

/** A matmul that sums over one dimension. */
export interface AttentionMatmul {
  readonly node: Node;
  readonly left: MatmulSide;
  readonly right: MatmulSide;
}

/** One operand of a matmul. */
interface MatmulSide {
  readonly tensor: string;
  /** The axis that is summed over. */
  readonly summed: number;
  /** The axes that the other operand does not have, with the axes of the result that they become. */
  readonly free: readonly { readonly axis: number; readonly result: number }[];
  /** Whether the operator accepts axes in any order (Einsum), so that it needs no Transpose. */
  readonly anyOrder: boolean;
}

/** An operand of attention: the tensor that the region reads, and the region's operators between it and the matmul. */
export interface AttentionOperand {
  readonly tensor: string;
  /** The factor that the region multiplies it by. */
  readonly scale: number;
  readonly nodes: readonly Node[];
}

/** A MatMul of matrices, or an Einsum that is a matmul, perhaps with more dimensions; null for other nodes. */
export function matmulOf(index: GraphIndex, node: Node): AttentionMatmul | null {
  const sides = isOp(node, 'MatMul')
    ? matrixSides(index, node)
    : isOp(node, 'Einsum')
      ? einsumSides(index, node)
      : null;
  return sides && { node, left: sides[0], right: sides[1] };
}

/** The matmul of queries and keys, with the axes of each. */
export interface ScoreMatmul {
  readonly node: Node;
  readonly queries: MatrixOperand;
  readonly keys: MatrixOperand;
}

/** A matmul operand with its feature axis and its axis of sequence positions. */
interface MatrixOperand {
  readonly tensor: string;
  readonly features: number;
  readonly positions: number;
  readonly anyOrder: boolean;
}

/** `node` as the matmul of queries and keys; null if its result does not have them on these axes. */
export function scoreMatmulOf(
  index: GraphIndex,
  node: Node,
  axes: { readonly queries: number; readonly keys: number },
): ScoreMatmul | null {
  const matmul = matmulOf(index, node);
  if (!matmul) return null;
  for (const [one, other] of [
    [matmul.left, matmul.right],
    [matmul.right, matmul.left],
  ] as const) {
    const [queries, keys] = [matrixOf(one, axes.queries), matrixOf(other, axes.keys)];
    if (queries && keys) return { node, queries, keys };
  }
  return null;
}

function matrixOf(side: MatmulSide, result: number): MatrixOperand | null {
  const free = side.free.find((axis) => axis.result === result);
  return free ? { tensor: side.tensor, features: side.summed, positions: free.axis, anyOrder: side.anyOrder } : null;
}

function matrixSides(index: GraphIndex, node: Node): readonly [MatmulSide, MatmulSide] | null {
  const [first, second] = [operandOf(node), operandOf(node, 1)];
  const [m, n] = [shapeOf(index, first).length, shapeOf(index, second).length];
  if (m < 2 || n < 2) return null;
  const rank = Math.max(m, n);
  return [
    { tensor: first, summed: m - 1, free: [{ axis: m - 2, result: rank - 2 }], anyOrder: false },
    { tensor: second, summed: n - 2, free: [{ axis: n - 1, result: rank - 1 }], anyOrder: false },
  ];
}

function einsumSides(index: GraphIndex, node: Node): readonly [MatmulSide, MatmulSide] | null {
  const equation = node.attributes['equation'];
  const [inputs, result] = typeof equation === 'string' ? equation.replaceAll(' ', '').split('->') : [];
  const terms = inputs?.split(',') ?? [];
  if (!result || terms.length !== 2 || node.inputs.length !== 2) return null;
  const [first = '', second = ''] = terms.map((term, place) => withoutEllipsis(index, term, operandOf(node, place)));
  const output = withoutEllipsis(index, result, resultOf(node));
  const plain = [first, second, output].every(
    (term) => /^[a-zA-Z0-9]+$/.test(term) && new Set(term).size === term.length,
  );
  const gone = [...new Set(first + second)].filter((letter) => !output.includes(letter));
  const [sum] = gone;
  if (!plain || !sum || gone.length !== 1 || !first.includes(sum) || !second.includes(sum)) return null;
  const side = (own: string, other: string, position: number): MatmulSide => ({
    tensor: operandOf(node, position),
    summed: own.indexOf(sum),
    free: [...own].flatMap((letter, axis) =>
      other.includes(letter) ? [] : [{ axis, result: output.indexOf(letter) }],
    ),
    anyOrder: true,
  });
  return [side(first, second, 0), side(second, first, 1)];
}

/** A term of an Einsum equation, with its ellipsis replaced by one digit per dimension, ending in 0. */
function withoutEllipsis(index: GraphIndex, term: string, tensor: string): string {
  const count = shapeOf(index, tensor).length - term.replace('...', '').length;
  return term.replace('...', '9876543210'.slice(10 - Math.max(count, 0)));
}

/** The query operand, from before its scale if it has one. */
export function queryOperand(index: GraphIndex, matmul: ScoreMatmul): AttentionOperand {
  return reach(index, matmul.queries, { scales: true, repeats: false });
}

/** The key operand, from before it is transposed, repeated or scaled. */
export function keyOperand(index: GraphIndex, matmul: ScoreMatmul): AttentionOperand {
  return reach(index, matmul.keys, { scales: true, repeats: true });
}

/**
 * The values that `probabilities` are multiplied with; null if the matmul does not sum over their keys, or does not
 * give a row for each query.
 */
export function valueOperand(
  index: GraphIndex,
  matmul: AttentionMatmul,
  probabilities: string,
  runs: { readonly queries: AxisRun; readonly keys: AxisRun },
): AttentionOperand | null {
  const { left, right } = matmul;
  if (left.tensor === right.tensor) return null;
  const [weights, values] = left.tensor === probabilities ? [left, right] : [right, left];
  const [features, ...more] = values.free;
  const queries = soleAxis(runs.queries);
  if (!weights.free.some(({ axis }) => axis === queries) || soleAxis(runs.keys) !== weights.summed) return null;
  if (!features || more.length > 0) return null;
  const { tensor, summed, anyOrder } = values;
  return reach(
    index,
    { tensor, features: features.axis, positions: summed, anyOrder },
    { scales: false, repeats: true },
  );
}

interface OperandStep {
  readonly node: Node;
  readonly operand: string;
  readonly scale: number;
  readonly kind: 'view' | 'scale' | 'widening' | 'repeat';
}

const MAX_STEPS = 12;

/** The operand from as far back as the region includes operators. */
function reach(
  index: GraphIndex,
  { tensor: start, anyOrder, ...axes }: MatrixOperand,
  allowed: { readonly scales: boolean; readonly repeats: boolean },
): AttentionOperand {
  const steps: OperandStep[] = [];
  let [features, positions] = [axisRun(axes.features), axisRun(axes.positions)];
  let tensor = start;
  let taken = anyOrder || isLast(index, tensor, features) ? 0 : -1;
  const natural = naturalShape(shapeOf(index, start), axes);
  let met = taken === 0;
  while (steps.length < MAX_STEPS && soleReader(index, tensor)) {
    const node = makerOf(index, tensor);
    const step = node && stepBefore(index, node, allowed);
    if (!step) break;
    const [after, before] = [shapeOf(index, tensor), shapeOf(index, step.operand)];
    const [movedFeatures, movedPositions] = [features, positions].map((run) => movedBefore(step, run, after, before));
    if (!movedFeatures || !movedPositions) break;
    [features, positions, tensor] = [movedFeatures, movedPositions, step.operand];
    steps.push(step);
    if (!isLast(index, tensor, features) && !(anyOrder && step.kind !== 'view')) continue;
    // A step that scales or repeats the operand extends the region. A view is only on the way there, unless it gives the
    // operand the shape that it had before the transpose, or made room for a repetition.
    const does = step.kind === 'scale' || step.kind === 'repeat';
    const whole = !met && before.join() === natural;
    const next = taken === steps.length - 1;
    const makesRoom = steps.at(-2)?.kind === 'repeat' && addsOnes(after, before);
    if (taken < 0 || does || whole || (next && (step.kind === 'widening' || makesRoom))) taken = steps.length;
    met ||= whole;
  }
  // An operand that nothing transposes, or whose transpose others read, is taken as it is.
  const kept = steps.slice(0, Math.max(taken, 0));
  return {
    tensor: kept.at(-1)?.operand ?? start,
    scale: kept.reduce((scale, step) => scale * step.scale, 1),
    nodes: kept.map((step) => step.node),
  };
}

/** The shape of an operand before its transpose: positions before features, both last. */
function naturalShape(
  shape: readonly number[],
  { features, positions }: { readonly features: number; readonly positions: number },
): string {
  const batch = shape.filter((_, axis) => axis !== features && axis !== positions);
  return [...batch, shape[positions], shape[features]].join();
}

function isLast(index: GraphIndex, tensor: string, run: AxisRun): boolean {
  return soleAxis(run) === shapeOf(index, tensor).length - 1;
}

function stepBefore(
  index: GraphIndex,
  node: Node,
  allowed: { readonly scales: boolean; readonly repeats: boolean },
): OperandStep | null {
  const operand = operandOf(node);
  if (isOp(node, ...VIEWS)) return { node, operand, scale: 1, kind: 'view' };
  // Rotary embedding may end in a cast down, which belongs to it; a cast up belongs to the matmul.
  if (isWidening(index, node)) return { node, operand, scale: 1, kind: 'widening' };
  if (allowed.scales && isOp(node, 'Mul', 'Div')) return scaleStep(index, node);
  if (allowed.repeats && isRepeat(node)) return { node, operand, scale: 1, kind: 'repeat' };
  return null;
}

function scaleStep(index: GraphIndex, node: Node): OperandStep | null {
  for (const place of isOp(node, 'Div') ? [0] : [0, 1]) {
    const operand = operandOf(node, place);
    const value = scalarOf(index, operandOf(node, 1 - place));
    if (value === null || value === 0) continue;
    if (shapeOf(index, operand).join() !== shapeOf(index, resultOf(node)).join()) continue;
    return { node, operand, scale: isOp(node, 'Div') ? 1 / value : value, kind: 'scale' };
  }
  return null;
}

function isRepeat(node: Node): boolean {
  if (isOp(node, 'Expand', 'Tile')) return true;
  return isOp(node, 'Concat') && node.inputs.every((input) => input === node.inputs[0]);
}

/** The position of a run before a step; null if the step breaks it up or repeats it. */
function movedBefore(
  step: OperandStep,
  run: AxisRun,
  after: readonly number[],
  before: readonly number[],
): AxisRun | null {
  if (step.kind === 'view') return runBefore(step.node, run, after, before);
  if (step.kind !== 'repeat') return run;
  const added = after.length - before.length;
  const moved = { start: run.start - added, end: run.end - added };
  const same =
    moved.start >= 0 && before.slice(moved.start, moved.end).join() === after.slice(run.start, run.end).join();
  const repeats = isOp(step.node, 'Tile') ? numbersAttribute(step.node, 'repeats').slice(run.start, run.end) : [];
  return same && repeats.every((count) => count === 1) ? moved : null;
}

/** Whether a view only adds dimensions of size 1. */
function addsOnes(after: readonly number[], before: readonly number[]): boolean {
  return (
    after.length > before.length &&
    after.filter((size) => size !== 1).join() === before.filter((size) => size !== 1).join()
  );
}
