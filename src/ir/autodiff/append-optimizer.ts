/**
 * @file Optimizers as operators of the graph: SGD with momentum and Nesterov's variant, Adam, AdamW (Loshchilov and Hutter 2019),
 * LAMB (You et al. 2020), each as PyTorch computes it; weight-decay groups, clipping by the global norm, schedules with warm-up.
 * Moments and the number of the step are state: what a step makes of them the next one reads.
 */
import { byteLength } from '../dtype.js';
import { elementCount, type Graph, type TensorType } from '../graph.js';
import { summationType } from '../ops/expansion.js';
import { type LossScale, nextScale } from './loss-scale.js';
import { type Owner, UpdateWriter } from './update-writer.js';

export interface Schedule {
  /** Steps in which the rate grows evenly to its full height. */
  readonly warmup?: number;
  /** What follows: `constant`; `linear` and `cosine` fall from full height to `floor` times it, reached after step `total`. */
  readonly shape?: 'constant' | 'linear' | 'cosine';
  readonly total?: number;
  readonly floor?: number;
}

export interface OptimizerOptions {
  readonly kind: 'sgd' | 'adam' | 'adamw' | 'lamb';
  readonly learningRate: number;
  readonly momentum?: number;
  readonly nesterov?: boolean;
  /** First and second moment's decay; 0.9 and 0.999 by default. */
  readonly betas?: readonly [number, number];
  readonly epsilon?: number;
  /** Of parameters whose `decays` is true; 0 by default, 0.01 for AdamW as in PyTorch. */
  readonly weightDecay?: number;
  /** Gradients are scaled so that all together are no longer than this. */
  readonly clipNorm?: number;
  readonly schedule?: Schedule;
}

/** A weight to be trained, and its gradient. */
export interface Trained {
  readonly name: string;
  readonly gradient: string;
  /** Whether weight decay holds for it: biases and scales are usually left out. */
  readonly decays: boolean;
}

/** What gradients have still to be divided by. */
export interface GradientScale {
  /** Scalar that the loss is divided by; gradients are zero where it is. */
  readonly denominator: string | null;
  /** What the loss was multiplied by before it was differentiated. */
  readonly lossScale: LossScale | null;
}

/**
 * The graph with an update of every trained weight. A gradient has its weight's type. Weights that a file holds in 16 bit are
 * updated in float32, moments with them, and rounded last: squares of gradients, and the epsilon that keeps their root from
 * being zero, are less than float16 holds (0 / 0 is not a number), and so may sums of them be more.
 */
export function appendOptimizer(
  graph: Graph,
  given: readonly Trained[],
  options: OptimizerOptions,
  scale: GradientScale = { denominator: null, lossScale: null },
): Graph {
  const write = new UpdateWriter(graph);
  const readers = new Map(graph.nodes.flatMap((node) => node.inputs.map((input) => [input, node] as const)).reverse());
  const trained = given.map((item) => {
    const reader = readers.get(item.name);
    const owner: Owner = { name: item.name, layer: reader?.layer ?? null, module: reader?.module ?? [] };
    const wide = summationType(write.typeOf(item.name).dtype);
    return { ...item, owner, gradient: cast(write, owner, item.gradient, wide) };
  });
  const isGuarded = scale.lossScale?.isDynamic ?? false;
  const squares = isGuarded || options.clipNorm !== undefined ? sumOfSquares(write, trained) : null;
  if (squares !== null && scale.lossScale && isGuarded) {
    // An infinite gradient, or one that is not a number, makes the sum of squares so.
    const limit = write.scalar('float32', Number.POSITIVE_INFINITY);
    const finite = write.add(EVERYWHERE, 'Less', [squares, limit], { dtype: 'bool', shape: [] });
    nextScale(write, EVERYWHERE, scale.lossScale, finite);
    write.onlyWhere(finite);
  }
  const step = countSteps(write);
  const rate = learningRate(write, step, options);
  const factor = gradientFactor(write, squares, options, scale);
  for (const { owner, ...item } of trained) {
    const { dtype } = write.typeOf(item.name);
    const wide = summationType(dtype);
    const gradient =
      factor === null ? item.gradient : write.add(owner, 'Mul', [item.gradient, cast(write, owner, factor, wide)]);
    const weight = cast(write, owner, item.name, wide);
    const one: One = { write, owner, options, item, weight, gradient, step, rate: cast(write, owner, rate, wide) };
    write.pair(item.name, cast(write, owner, options.kind === 'sgd' ? descend(one) : adapt(one), dtype), owner);
  }
  return write.graph();
}

const EVERYWHERE: Owner = { name: 'optimizer', layer: null, module: ['optimizer'] };
const FLOAT: TensorType = { dtype: 'float32', shape: [] };

/** The number of this step, from 1 on, as float32 (exact up to 2^24 steps). */
function countSteps(write: UpdateWriter): string {
  const type: TensorType = { dtype: 'int64', shape: [] };
  const before = write.keep('optimizer/step', type, { kind: 'inline', data: new Uint8Array(8) });
  const now = write.add(EVERYWHERE, 'Add', [before, write.scalar('int64', 1)]);
  write.pair(before, now, EVERYWHERE);
  return write.add(EVERYWHERE, 'Cast', [now], FLOAT, { to: 1 });
}

function learningRate(
  write: UpdateWriter,
  step: string,
  { learningRate: full, schedule = {} }: OptimizerOptions,
): string {
  const number = (value: number) => write.scalar('float32', value);
  const apply = (op: string, ...inputs: string[]) => write.add(EVERYWHERE, op, inputs, FLOAT);
  const { warmup = 0, shape = 'constant', total = 0, floor = 0 } = schedule;
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

/** What all gradients are multiplied by, for the denominator and the scale of the loss and for clipping; null for 1. */
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

/** 1 / x; 0 where x is: where no label counts the loss is 0 / 0 and every gradient zero, as PyTorch has it. */
function reciprocal(write: UpdateWriter, tensor: string): string {
  const exact = cast(write, EVERYWHERE, tensor, 'float32');
  const none = write.add(EVERYWHERE, 'Equal', [exact, write.scalar('float32', 0)], { dtype: 'bool', shape: [] });
  const inverse = write.add(EVERYWHERE, 'Div', [write.scalar('float32', 1), exact], FLOAT);
  return write.add(EVERYWHERE, 'Where', [none, write.scalar('float32', 0), inverse], FLOAT);
}

/** Of all gradients together. */
function sumOfSquares(write: UpdateWriter, trained: readonly Pick<Trained, 'gradient'>[]): string {
  const squares = trained.map(({ gradient }) => {
    const type = write.typeOf(gradient);
    const axes = type.shape.map((_, axis) => axis);
    const scalar = { dtype: type.dtype, shape: [] };
    const sum = write.add(EVERYWHERE, 'ReduceSumSquare', [gradient], scalar, { axes, keepdims: 0 });
    return cast(write, EVERYWHERE, sum, 'float32');
  });
  return squares.reduce((sum, square) => write.add(EVERYWHERE, 'Add', [sum, square], FLOAT));
}

/** min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. */
function clipping(write: UpdateWriter, norm: string, limit: number): string {
  const guarded = write.add(EVERYWHERE, 'Add', [norm, write.scalar('float32', 1e-6)], FLOAT);
  const ratio = write.add(EVERYWHERE, 'Div', [write.scalar('float32', limit), guarded], FLOAT);
  return write.add(EVERYWHERE, 'Min', [ratio, write.scalar('float32', 1)], FLOAT);
}

/** One weight's update in the making. */
interface One {
  readonly write: UpdateWriter;
  readonly owner: Owner;
  readonly options: OptimizerOptions;
  readonly item: Trained;
  /** As the update computes it, and as the gradient is. */
  readonly weight: string;
  readonly gradient: string;
  readonly step: string;
  readonly rate: string;
}

/** torch.optim.SGD: the decay joins the gradient, the momentum buffer starts at the first gradient. */
function descend({ write, owner, options, item, weight, gradient, rate }: One): string {
  const type = write.typeOf(weight);
  const { dtype } = type;
  const { momentum = 0, nesterov = false } = options;
  const decay = item.decays ? (options.weightDecay ?? 0) : 0;
  const times = (tensor: string, value: number) => write.add(owner, 'Mul', [tensor, write.scalar(dtype, value)]);
  const slope = decay === 0 ? gradient : write.add(owner, 'Add', [gradient, times(weight, decay)]);
  if (momentum === 0) return write.add(owner, 'Sub', [weight, write.add(owner, 'Mul', [slope, rate])]);
  const before = zeros(write, `${item.name}/momentum`, type);
  const now = write.add(owner, 'Add', [times(before, momentum), slope]);
  write.pair(before, now, owner);
  const direction = nesterov ? write.add(owner, 'Add', [slope, times(now, momentum)]) : now;
  return write.add(owner, 'Sub', [weight, write.add(owner, 'Mul', [direction, rate])]);
}

/** Adam, AdamW and LAMB: they share the two moments. */
function adapt({ write, owner, options, item, weight, gradient, step, rate }: One): string {
  const type = write.typeOf(weight);
  const { dtype } = type;
  const { kind, betas: [first, second] = [0.9, 0.999], epsilon = kind === 'lamb' ? 1e-6 : 1e-8 } = options;
  const decay = item.decays ? (options.weightDecay ?? (kind === 'adamw' ? 0.01 : 0)) : 0;
  const scalarType: TensorType = { dtype, shape: [] };
  const apply = (op: string, ...inputs: string[]) => write.add(owner, op, inputs);
  const times = (tensor: string, value: number) => apply('Mul', tensor, write.scalar(dtype, value));
  const slope = kind === 'adam' && decay !== 0 ? apply('Add', gradient, times(weight, decay)) : gradient;
  const moment = (name: string, beta: number, of: string) => {
    const before = zeros(write, `${item.name}/${name}`, type);
    const now = apply('Add', times(before, beta), times(of, 1 - beta));
    write.pair(before, now, owner);
    return now;
  };
  const mean = moment('mean', first, slope);
  const square = moment('square', second, apply('Mul', slope, slope));
  /** 1 − βᵗ */
  const bias = (beta: number) => {
    const power = write.add(owner, 'Pow', [write.scalar('float32', beta), step], FLOAT);
    const rest = write.add(owner, 'Sub', [write.scalar('float32', 1), power], FLOAT);
    return cast(write, owner, rest, dtype);
  };
  const root = write.add(owner, 'Sqrt', [bias(second)], scalarType);
  const spread = apply('Add', apply('Div', apply('Sqrt', square), root), write.scalar(dtype, epsilon));
  const direction = apply('Div', apply('Div', mean, bias(first)), spread);
  if (kind === 'lamb') {
    const whole = decay === 0 ? direction : apply('Add', direction, times(weight, decay));
    return apply(
      'Sub',
      weight,
      apply('Mul', whole, write.add(owner, 'Mul', [trust(write, owner, weight, whole), rate], scalarType)),
    );
  }
  const kept =
    kind === 'adamw' && decay !== 0
      ? apply(
          'Sub',
          weight,
          apply('Mul', weight, write.add(owner, 'Mul', [rate, write.scalar(dtype, decay)], scalarType)),
        )
      : weight;
  return apply('Sub', kept, apply('Mul', direction, rate));
}

/** LAMB's trust ratio: the weight's norm over its update's; 1 where either is zero. */
function trust(write: UpdateWriter, owner: Owner, weight: string, update: string): string {
  const { dtype } = write.typeOf(weight);
  const type: TensorType = { dtype, shape: [] };
  const norm = (tensor: string) => {
    const axes = write.typeOf(tensor).shape.map((_, axis) => axis);
    return write.add(owner, 'ReduceL2', [tensor], type, { axes, keepdims: 0 });
  };
  const [own, change] = [norm(weight), norm(update)];
  const positive = (tensor: string) =>
    write.add(owner, 'Greater', [tensor, write.scalar(dtype, 0)], { dtype: 'bool', shape: [] });
  const both = write.add(owner, 'And', [positive(own), positive(change)]);
  return write.add(owner, 'Where', [both, write.add(owner, 'Div', [own, change]), write.scalar(dtype, 1)], type);
}

function zeros(write: UpdateWriter, name: string, type: TensorType): string {
  return write.keep(name, type, { kind: 'zero', length: byteLength(type.dtype, elementCount(type.shape)) });
}

function cast(write: UpdateWriter, owner: Owner, tensor: string, to: TensorType['dtype']): string {
  const { dtype, shape } = write.typeOf(tensor);
  return dtype === to ? tensor : write.add(owner, 'Cast', [tensor], { dtype: to, shape }, { to: ONNX_FLOATS[to] ?? 1 });
}

const ONNX_FLOATS: Readonly<Partial<Record<TensorType['dtype'], number>>> = {
  float32: 1,
  float16: 10,
  float64: 11,
  bfloat16: 16,
};
