/**
 * @file The update of one weight: SGD with momentum and Nesterov's variant, Adam, AdamW (Loshchilov and Hutter 2019), LAMB (You
 * et al. 2020), each as PyTorch computes it. Moments are state: each step reads the moments of the step before.
 *
 * All elementwise operators on a weight, its gradient and its moments are one fused region (fused-regions/fused-region.ts):
 * accelerators run it as one kernel, which reads each of them once and writes the new values. LAMB's two norms split it in two.
 */
import { byteLength, type DType, onnxOfDtype } from '../dtype.js';
import { elementCount, type TensorType } from '../graph.js';
import { summationType } from '../ops/expansion.js';
import { completeOptimizer, type OptimizerOptions, type TrainedWeight } from './optimizer-options.js';
import type { UpdateOwner, UpdateWriter } from './update-writer.js';

/** A weight's update, and the scalars that all updates read. */
export interface WeightUpdate {
  readonly write: UpdateWriter;
  readonly owner: UpdateOwner;
  readonly options: OptimizerOptions;
  readonly item: TrainedWeight;
  /** Scalars in float32: the factor of the gradient (null for 1), the step number, the learning rate. */
  readonly factor: string | null;
  readonly step: string;
  readonly rate: string;
}

/**
 * Adds the update. A weight in 16 bit is updated in float32, with float32 moments, and rounded at the end: squared gradients, and
 * the epsilon that keeps their root from being zero, underflow in float16.
 */
export function updateWeight(update: WeightUpdate): void {
  const { kind } = update.options;
  RULES[kind](update, inItsType(update));
}

const RULES: Readonly<Record<OptimizerOptions['kind'], (update: WeightUpdate, wide: Wide) => void>> = {
  sgd: descend,
  adam: adam,
  adamw: adam,
  lamb,
};

/** The type that an update is computed in, and the tensors and operators of that type. */
interface Wide {
  readonly type: TensorType;
  readonly rate: string;
  /** Inside of a region: the weight, and its scaled gradient. */
  readonly weight: () => string;
  readonly gradient: () => string;
  readonly times: (tensor: string, value: number) => string;
  readonly apply: (op: string, ...inputs: string[]) => string;
  /** New state that is zero at first. */
  readonly zeros: (name: string) => string;
  /** Sets the weight of the next step. */
  readonly become: (updated: string) => void;
  readonly region: (operands: readonly string[], body: () => readonly string[]) => void;
}

function inItsType({ write, owner, options, item, ...scalars }: WeightUpdate): Wide {
  const { dtype: own, shape } = write.typeOf(item.name);
  const dtype = summationType(own);
  const type: TensorType = { dtype, shape };
  const factor = scalars.factor && inType(write, scalars.factor, dtype);
  const apply = (op: string, ...inputs: string[]) => write.add(owner, op, inputs);
  const length = byteLength(dtype, elementCount(shape));
  return {
    ...{ type, apply },
    rate: inType(write, scalars.rate, dtype),
    weight: () => write.cast(owner, item.name, dtype),
    gradient: () => {
      const whole = write.cast(owner, item.gradient, dtype);
      return factor === null ? whole : apply('Mul', whole, factor);
    },
    times: (tensor, value) => apply('Mul', tensor, write.scalar(dtype, value)),
    zeros: (name) => write.keep(`${item.name}/${name}`, type, { kind: 'zero', length }),
    become: (updated) => write.pair(item.name, write.cast(owner, updated, own), owner),
    region: (operands, body) => write.region(owner, { optimizer: options.kind }, [item.name, ...operands], body),
  };
}

/** A scalar of all updates in the type of one. */
function inType(write: UpdateWriter, scalar: string, dtype: DType): string {
  if (write.typeOf(scalar).dtype === dtype) return scalar;
  return write.shared('Cast', [scalar], dtype, { to: onnxOfDtype(dtype) });
}

/** torch.optim.SGD: the decay joins the gradient, the momentum buffer starts at the first gradient. */
function descend({ write, owner, options, item }: WeightUpdate, wide: Wide): void {
  const { momentum, nesterov, weightDecay } = completeOptimizer(options);
  const { apply, times } = wide;
  const decay = item.decays ? weightDecay : 0;
  const before = momentum === 0 ? null : wide.zeros('momentum');
  wide.region(before === null ? [item.gradient] : [item.gradient, before], () => {
    const [weight, gradient] = [wide.weight(), wide.gradient()];
    const adjusted = decay === 0 ? gradient : apply('Add', gradient, times(weight, decay));
    let direction = adjusted;
    if (before !== null) {
      const now = apply('Add', times(before, momentum), adjusted);
      write.pair(before, now, owner);
      direction = nesterov ? apply('Add', adjusted, times(now, momentum)) : now;
    }
    wide.become(apply('Sub', weight, apply('Mul', direction, wide.rate)));
    return [];
  });
}

/** Adam, whose decay joins the gradient, and AdamW, whose decay does not. */
function adam(update: WeightUpdate, wide: Wide): void {
  const { write, options, item } = update;
  const { apply, rate } = wide;
  const { dtype } = wide.type;
  const isApart = options.kind === 'adamw';
  const decay = item.decays ? completeOptimizer(options).weightDecay : 0;
  const moments = momentsOf(update, wide);
  const step = write.shared('Div', [rate, moments.bias], dtype);
  const share = () => write.shared('Mul', [rate, write.scalar(dtype, decay)], dtype);
  const left = isApart && decay !== 0 ? write.shared('Sub', [write.scalar(dtype, 1), share()], dtype) : null;
  wide.region([item.gradient, ...moments.states], () => {
    const [weight, gradient] = [wide.weight(), wide.gradient()];
    const adjusted = isApart || decay === 0 ? gradient : apply('Add', gradient, wide.times(weight, decay));
    const kept = left === null ? weight : apply('Mul', weight, left);
    wide.become(apply('Sub', kept, apply('Mul', moments.next(adjusted), step)));
    return [];
  });
}

function lamb(update: WeightUpdate, wide: Wide): void {
  const { write, owner, options, item } = update;
  const { apply } = wide;
  const decay = item.decays ? completeOptimizer(options).weightDecay : 0;
  const moments = momentsOf(update, wide);
  let direction = '';
  wide.region([item.gradient, ...moments.states], () => {
    const adjusted = apply('Div', moments.next(wide.gradient()), moments.bias);
    direction = decay === 0 ? adjusted : apply('Add', adjusted, wide.times(wide.weight(), decay));
    return [direction];
  });
  const { shape } = wide.type;
  const { parts = 1 } = item;
  // A weight that holds several tensors of the module is scaled part by part.
  const rows = { ...wide.type, shape: [parts, elementCount(shape) / parts] };
  const norm = (tensor: string) => {
    if (parts === 1) {
      const axes = shape.map((_, axis) => axis);
      return write.add(owner, 'ReduceL2', [tensor], { ...wide.type, shape: [] }, { axes, keepdims: 0 });
    }
    const apart = write.add(owner, 'Reshape', [tensor], rows, { shape: rows.shape });
    return write.add(owner, 'ReduceL2', [apart], { ...wide.type, shape: [parts, 1] }, { axes: [1], keepdims: 1 });
  };
  const spread = (ratio: string) => {
    const copies = write.add(owner, 'Expand', [ratio], rows, { shape: rows.shape });
    return write.add(owner, 'Reshape', [copies], wide.type, { shape });
  };
  const [own, change] = [norm(wide.weight()), norm(direction)];
  const ratios = parts === 1 ? null : spread(trust(update, own, change));
  wide.region(ratios === null ? [direction, own, change] : [direction, ratios], () => {
    const length = apply('Mul', ratios ?? trust(update, own, change), wide.rate);
    wide.become(apply('Sub', wide.weight(), apply('Mul', direction, length)));
    return [];
  });
}

/** LAMB's trust ratio: the weight's norm over its update's; 1 where either is zero. */
function trust({ write, owner }: WeightUpdate, own: string, change: string): string {
  const type = write.typeOf(own);
  const isPositive = (tensor: string) =>
    write.add(owner, 'Greater', [tensor, write.scalar(type.dtype, 0)], { ...type, dtype: 'bool' });
  const both = write.add(owner, 'And', [isPositive(own), isPositive(change)]);
  return write.add(owner, 'Where', [both, write.add(owner, 'Div', [own, change]), write.scalar(type.dtype, 1)], type);
}

/** The moments that Adam, AdamW and LAMB share. */
interface Moments {
  readonly states: readonly string[];
  /** Bias correction of the mean, 1 − βᵗ: its divisor. */
  readonly bias: string;
  /** Inside of a region: updates both moments; returns mean / (root of the bias-corrected mean square + epsilon). */
  readonly next: (gradient: string) => string;
}

function momentsOf({ write, owner, options, step }: WeightUpdate, { apply, times, type, zeros }: Wide): Moments {
  const { betas, epsilon } = completeOptimizer(options);
  const [first, second] = betas;
  const [mean, square] = [zeros('mean'), zeros('square')];
  // In float32 1 − βᵗ cancels: at β 0.999999 its first step would be off by 3 %.
  const exact = write.shared('Cast', [step], 'float64', { to: onnxOfDtype('float64') });
  const biasOf = (beta: number) => {
    const power = write.shared('Pow', [write.scalar('float64', beta), exact], 'float64');
    return inType(write, write.shared('Sub', [write.scalar('float64', 1), power], 'float64'), type.dtype);
  };
  const root = write.shared('Sqrt', [biasOf(second)], type.dtype);
  const moved = (before: string, beta: number, of: string) => {
    const now = apply('Add', times(before, beta), times(of, 1 - beta));
    write.pair(before, now, owner);
    return now;
  };
  return {
    states: [mean, square],
    bias: biasOf(first),
    next: (gradient) => {
      const means = moved(mean, first, gradient);
      const squares = moved(square, second, apply('Mul', gradient, gradient));
      const rest = write.scalar(type.dtype, epsilon);
      return apply('Div', means, apply('Add', apply('Div', apply('Sqrt', squares), root), rest));
    },
  };
}
