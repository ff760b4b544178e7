/**
 * @file The optimizer as operators of the graph: the part that all weights share (step number, learning rate and its schedule
 * with warm-up, gradient scale, clipping by the global norm), then the update of each weight (weight-update.ts).
 */
import type { Graph, TensorType } from '../graph.js';
import { readersOf } from '../makers-and-readers.js';
import { summationType } from '../ops/expansion.js';
import { type LossScale, nextScale } from './loss-scale.js';
import { completeOptimizer, type OptimizerOptions, type TrainedWeight } from './optimizer-options.js';
import { EVERYWHERE, type UpdateOwner, UpdateWriter } from './update-writer.js';
import { updateWeight } from './weight-update.js';

/** Divisors that are still to be applied to the gradients. */
export interface GradientScale {
  /** Scalar that the loss is divided by; gradients are zero where it is zero. */
  readonly denominator: string | null;
  /** The scale that the loss was multiplied by before it was differentiated. */
  readonly lossScale: LossScale | null;
}

/**
 * The graph with an update of every trained weight. A gradient has its weight's type. Weights that a file holds in 16 bit are
 * updated in float32, with float32 moments, and rounded at the end: squared gradients, and the epsilon that keeps their root
 * from being zero, underflow in float16 (0 / 0 is not a number), and sums of them may overflow.
 */
export function appendOptimizer(
  graph: Graph,
  given: readonly TrainedWeight[],
  options: OptimizerOptions,
  scale: GradientScale = { denominator: null, lossScale: null },
): Graph {
  const write = new UpdateWriter(graph);
  const readers = readersOf(graph.nodes);
  const isGuarded = scale.lossScale?.isDynamic ?? false;
  const isMeasured = isGuarded || options.clipNorm !== undefined;
  const trained = given.map((item) => {
    const [reader] = readers.get(item.name) ?? [];
    const owner: UpdateOwner = {
      name: item.name,
      layer: reader?.layer ?? null,
      module: reader?.module ?? [],
      forward: reader?.name ?? null,
    };
    if (!isMeasured) return { ...item, owner };
    // The norm and the update both read the gradient in the type of the update.
    return {
      ...item,
      owner,
      gradient: write.cast(owner, item.gradient, summationType(write.typeOf(item.name).dtype)),
    };
  });
  const squares = isMeasured ? sumOfSquares(write, trained) : null;
  if (squares !== null && scale.lossScale && isGuarded) {
    // An infinite or NaN gradient makes the sum of squares infinite or NaN.
    const limit = write.scalar('float32', Number.POSITIVE_INFINITY);
    const finite = write.add(EVERYWHERE, 'Less', [squares, limit], { dtype: 'bool', shape: [] });
    nextScale(write, EVERYWHERE, scale.lossScale, finite);
    write.onlyWhere(finite);
  }
  const step = countSteps(write);
  const rate = learningRate(write, step, options);
  const factor = gradientFactor(write, squares, options, scale);
  for (const { owner, ...item } of trained) updateWeight({ write, owner, options, item, factor, step, rate });
  return write.graph();
}

const FLOAT: TensorType = { dtype: 'float32', shape: [] };

/** The number of this step, from 1 on, as float32 (exact up to 2^24 steps). */
function countSteps(write: UpdateWriter): string {
  const type: TensorType = { dtype: 'int64', shape: [] };
  const before = write.keep('optimizer/step', type, { kind: 'inline', data: new Uint8Array(8) });
  const now = write.add(EVERYWHERE, 'Add', [before, write.scalar('int64', 1)]);
  write.pair(before, now, EVERYWHERE);
  return write.add(EVERYWHERE, 'Cast', [now], FLOAT, { to: 1 });
}

function learningRate(write: UpdateWriter, step: string, options: OptimizerOptions): string {
  const number = (value: number) => write.scalar('float32', value);
  const apply = (op: string, ...inputs: string[]) => write.add(EVERYWHERE, op, inputs, FLOAT);
  const { learningRate: full, schedule } = completeOptimizer(options);
  const { warmup, shape, total, floor } = schedule;
  let factor: string | null = null;
  if (shape !== 'constant' && total > warmup) {
    const past = apply('Div', apply('Sub', step, number(warmup + 1)), number(total - warmup));
    const share = apply('Max', apply('Min', past, number(1)), number(0));
    const falling =
      shape === 'linear'
        ? apply('Sub', number(1), share)
        : apply('Mul', apply('Add', apply('Cos', apply('Mul', share, number(Math.PI))), number(1)), number(0.5));
    factor = apply('Add', apply('Mul', falling, number(1 - floor)), number(floor));
  }
  if (warmup > 0) {
    const growing = apply('Min', apply('Div', step, number(warmup)), number(1));
    factor = factor === null ? growing : apply('Mul', factor, growing);
  }
  return factor === null ? number(full) : apply('Mul', factor, number(full));
}

/** The factor of all gradients, from the denominator and the scale of the loss and from clipping; null for 1. */
function gradientFactor(
  write: UpdateWriter,
  squares: string | null,
  { clipNorm }: OptimizerOptions,
  scale: GradientScale,
): string | null {
  const apply = (op: string, ...inputs: string[]) => write.add(EVERYWHERE, op, inputs, FLOAT);
  const { denominator, lossScale } = scale;
  const unscaled = lossScale && apply('Div', write.scalar('float32', lossScale.samples), lossScale.scale);
  const mean = denominator === null ? null : reciprocal(write, denominator);
  const both = unscaled !== null && mean !== null ? apply('Mul', mean, unscaled) : (mean ?? unscaled);
  if (clipNorm === undefined || squares === null) return both;
  const norm = apply('Sqrt', squares);
  if (both === null) return clipping(write, norm, clipNorm);
  return apply('Mul', both, clipping(write, apply('Mul', norm, both), clipNorm));
}

/** 1 / x, or 0 where x is 0: if all labels are ignored, the loss is 0 / 0 and every gradient zero, as in PyTorch. */
function reciprocal(write: UpdateWriter, tensor: string): string {
  const exact = write.cast(EVERYWHERE, tensor, 'float32');
  const none = write.add(EVERYWHERE, 'Equal', [exact, write.scalar('float32', 0)], { dtype: 'bool', shape: [] });
  const inverse = write.add(EVERYWHERE, 'Div', [write.scalar('float32', 1), exact], FLOAT);
  return write.add(EVERYWHERE, 'Where', [none, write.scalar('float32', 0), inverse], FLOAT);
}

/** The sum of squares of all gradients together. */
function sumOfSquares(write: UpdateWriter, trained: readonly Pick<TrainedWeight, 'gradient'>[]): string {
  const squares = trained.map(({ gradient }) => {
    const type = write.typeOf(gradient);
    const axes = type.shape.map((_, axis) => axis);
    const scalar = { dtype: type.dtype, shape: [] };
    const sum = write.add(EVERYWHERE, 'ReduceSumSquare', [gradient], scalar, { axes, keepdims: 0 });
    return write.cast(EVERYWHERE, sum, 'float32');
  });
  return squares.reduce((sum, square) => write.add(EVERYWHERE, 'Add', [sum, square], FLOAT));
}

/** min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. */
function clipping(write: UpdateWriter, norm: string, limit: number): string {
  const guarded = write.add(EVERYWHERE, 'Add', [norm, write.scalar('float32', 1e-6)], FLOAT);
  const ratio = write.add(EVERYWHERE, 'Div', [write.scalar('float32', limit), guarded], FLOAT);
  return write.add(EVERYWHERE, 'Min', [ratio, write.scalar('float32', 1)], FLOAT);
}
