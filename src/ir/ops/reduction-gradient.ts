/**
 * @file Gradients of reductions. The result and its gradient get their reduced dimensions back with size 1. A formula that does
 * not read the operand's values spreads the gradient over their shape by Expand.
 */
import { elementCount } from '../graph.js';
import type { Operator } from '../operator.js';
import { operand } from './operands.js';
import type { GradientBody, OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

/** The axes of a reduction, and whether it keeps them with size 1. */
interface Reduced {
  readonly axes: readonly number[];
  readonly keep: boolean;
}

interface ReductionFormula {
  readonly write: OperatorGradient;
  readonly axes: readonly number[];
  readonly at: Arithmetic;
  readonly x: string;
  /** The result and its gradient, in a shape that broadcasts to the operand. */
  readonly y: string;
  readonly g: string;
  /** How many elements went into each result. */
  readonly count: number;
  /** Spreads a tensor of the result's shape over the operand's. */
  readonly spread: (name: string) => string;
}

type ReductionGradient = (around: ReductionFormula) => string;

const FORMULAS: Readonly<Record<string, ReductionGradient>> = {
  ReduceSum: ({ g, spread }) => spread(g),
  ReduceMean: ({ g, at, count, spread }) => spread(at.mul(g, 1 / count)),
  ReduceL1: ({ g, x, at }) => at.mul(g, at.of('Sign', x)),
  // Zero where all elements are, as torch.linalg.vector_norm has it.
  ReduceL2: ({ g, x, y, at }) => {
    const share = at.where(at.of('Equal', y, 0), 0, at.div(g, y));
    return at.mul(share, x);
  },
  ReduceSumSquare: ({ g, x, at }) => at.mul(at.add(g, g), x),
  ReduceLogSum: ({ g, y, at, spread }) => spread(at.mul(g, at.of('Exp', at.of('Neg', y)))),
  ReduceLogSumExp: ({ g, x, y, at }) => at.mul(g, at.of('Exp', at.sub(x, y))),
  ReduceMax: chosen,
  ReduceMin: chosen,
  ReduceProd: others,
};

/** Reductions that leave a single element as it is. */
const SELECTIONS: ReadonlySet<string> = new Set(
  ['Sum', 'Mean', 'Max', 'Min', 'Prod', 'LogSumExp'].map((kind) => `Reduce${kind}`),
);

/** Gradients of reductions, by operator; `shapeOf` gives a reduction's axes. */
export function reductionGradients(shapeOf: (operator: Operator) => Reduced): Readonly<Record<string, GradientBody>> {
  return Object.fromEntries(
    Object.entries(FORMULAS).map(([op, formula]) => [op, (write: OperatorGradient) => body(write, formula, shapeOf)]),
  );
}

function body(write: OperatorGradient, formula: ReductionGradient, shapeOf: (operator: Operator) => Reduced): void {
  const { dtype, shape } = operand(write.operator, 0);
  const { axes, keep } = shapeOf(write.operator);
  // If nothing is reduced, these return their operand; the others still work on each element.
  if (axes.length === 0 && SELECTIONS.has(write.operator.op)) {
    write.become(0, 'grad0', dtype);
    return;
  }
  const type = write.sumType;
  const read = (name: string) => {
    const own = write.inType(name, dtype, type);
    return keep || axes.length === 0 ? own : write.add('Unsqueeze', [own], { axes });
  };
  const made = formula({
    write,
    axes,
    at: write.on(type),
    get x() {
      return write.inType('in0', dtype, type);
    },
    get y() {
      return read('out0');
    },
    get g() {
      return read('grad0');
    },
    count: elementCount(axes.map((axis) => shape[axis] ?? 1)),
    spread: (name) => (axes.length === 0 ? name : write.add('Expand', [name], { shape })),
  });
  write.become(0, made, type);
}

/** Elements that tie share the gradient evenly, as torch.amax has it. */
function chosen({ at, x, y, g, axes }: ReductionFormula): string {
  const hit = at.of('Equal', x, y);
  const share = at.div(g, at.sum(at.count(hit), axes));
  return at.where(hit, share, 0);
}

/** The product of the other elements, also where some are zero: it is zero if any of the others is zero. */
function others({ write, at, x, g, axes }: ReductionFormula): string {
  const zero = at.of('Equal', x, 0);
  const safe = at.where(zero, 1, x);
  const product = write.add('ReduceProd', [safe], { axes, keepdims: 1 });
  const count = at.count(zero);
  const elsewhere = at.sub(at.sum(count, axes), count);
  const rest = at.div(at.mul(g, product), safe);
  return at.where(at.of('Equal', elsewhere, 0), rest, 0);
}
