/**
 * @file Options of optimizers.
 */

export interface RateSchedule {
  /** Steps in which the learning rate grows linearly to its full value. */
  readonly warmup?: number;
  /** After warm-up: `constant`; `linear` or `cosine` decay from the full rate to `floor` times it after step `total`. */
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
  /** Weight decay of parameters whose `decays` is true; 0 by default, 0.01 for AdamW as in PyTorch. */
  readonly weightDecay?: number;
  /** The largest global norm of the gradients: they are scaled down to it. */
  readonly clipNorm?: number;
  readonly schedule?: RateSchedule;
}

/** Options with the values that apply where none is given. */
export interface CompleteOptimizer extends OptimizerOptions {
  readonly momentum: number;
  readonly nesterov: boolean;
  readonly betas: readonly [number, number];
  readonly epsilon: number;
  readonly weightDecay: number;
  readonly schedule: Required<RateSchedule>;
}

export function completeOptimizer(options: OptimizerOptions): CompleteOptimizer {
  const { momentum = 0, nesterov = false, betas = [0.9, 0.999], epsilon = EPSILON[options.kind] ?? 1e-8 } = options;
  const { warmup = 0, shape = 'constant', total = 0, floor = 0 } = options.schedule ?? {};
  const weightDecay = options.weightDecay ?? DECAY[options.kind] ?? 0;
  const schedule = { warmup, shape, total, floor };
  return { ...options, momentum, nesterov, betas, epsilon, weightDecay, schedule };
}

const EPSILON: Partial<Record<OptimizerOptions['kind'], number>> = { lamb: 1e-6 };
/** As in PyTorch. */
const DECAY: Partial<Record<OptimizerOptions['kind'], number>> = { adamw: 0.01 };

/** The rate in a step (from 1 on), as the graph computes it. */
export function learningRateAt(options: OptimizerOptions, step: number): number {
  const { learningRate, schedule } = completeOptimizer(options);
  const { warmup, shape, total, floor } = schedule;
  const grown = warmup > 0 ? Math.min(step / warmup, 1) : 1;
  if (shape === 'constant' || total <= warmup) return learningRate * grown;
  const share = Math.min(Math.max((step - (warmup + 1)) / (total - warmup), 0), 1);
  const falling = shape === 'linear' ? 1 - share : (Math.cos(Math.PI * share) + 1) / 2;
  return learningRate * grown * (falling * (1 - floor) + floor);
}

/** A weight to be trained, and its gradient. */
export interface TrainedWeight {
  readonly name: string;
  readonly gradient: string;
  /** Whether weight decay applies to it: biases and scales are usually left out. */
  readonly decays: boolean;
  /** Tensors of the module that it holds one after the other, as the operands of a recurrence do; 1 by default. */
  readonly parts?: number;
}
