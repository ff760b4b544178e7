/**
 * @file Loss scaling, so that gradients in 16 bit do not underflow (Micikevicius et al. 2018): by a fixed number, or by one that
 * grows while gradients are finite and shrinks when they are not, as in torch.amp.GradScaler. Its value and the number of good
 * steps are state.
 */
import { type Graph, typeOf } from '../graph.js';
import { constant } from '../ops/constants.js';
import { LossWriter } from './loss-writer.js';
import type { UpdateOwner, UpdateWriter } from './update-writer.js';

/** The defaults of torch.amp.GradScaler. */
const INITIAL = 2 ** 16;
const GROWTH = 2;
const BACKOFF = 0.5;
const GOOD_STEPS = 2000;

export interface LossScale {
  /** Scalar, float32; state where it is dynamic. */
  readonly scale: string;
  readonly isDynamic: boolean;
  /** The derived tensor was multiplied by the scale over this number. */
  readonly samples: number;
}

export interface ScaledLoss {
  readonly graph: Graph;
  readonly loss: string;
  readonly scale: LossScale;
}

/**
 * The graph with a tensor that is `derived` times the scale. A sum over `samples` is divided by their number besides, so that
 * gradients are as large as those of a mean.
 */
export function scaleLoss(graph: Graph, derived: string, scale: number | 'dynamic', samples: number): ScaledLoss {
  const write = new LossWriter(graph);
  const isDynamic = scale === 'dynamic';
  const type = { dtype: 'float32', shape: [] } as const;
  const own = isDynamic
    ? write.stateScalar('optimizer/loss-scale', INITIAL)
    : write.constant('loss/scale', constant('float32', [scale]));
  const share = () => write.constant('loss/share', constant('float32', [1 / samples]));
  const factor = samples === 1 ? own : write.node('Mul', [own, share()], type, {}, 'loss/factor');
  const { dtype, shape } = typeOf(graph, derived);
  const loss = write.node('Mul', [derived, write.cast(factor, dtype)], { dtype, shape }, {}, 'loss/scaled');
  return { graph: write.graph(), loss, scale: { scale: own, isDynamic, samples } };
}

/** Writes the scale of the next step, given whether all gradients are finite in this one. */
export function nextScale(write: UpdateWriter, owner: UpdateOwner, { scale }: LossScale, finite: string): void {
  const type = { dtype: 'float32', shape: [] } as const;
  const number = (value: number) => write.scalar('float32', value);
  const apply = (op: string, ...inputs: string[]) => write.add(owner, op, inputs, type);
  const before = write.keep('optimizer/good-steps', type, { kind: 'inline', data: constant('float32', [0]).data });
  const good = apply('Add', before, number(1));
  const isDue = write.add(owner, 'Equal', [good, number(GOOD_STEPS)], { dtype: 'bool', shape: [] });
  const grown = apply('Where', isDue, apply('Mul', scale, number(GROWTH)), scale);
  const counted = apply('Where', isDue, number(0), good);
  write.always(scale, apply('Where', finite, grown, apply('Mul', scale, number(BACKOFF))));
  write.always(before, apply('Where', finite, counted, number(0)));
}
