/**
 * @file The activation between an expert's two matmuls, and its gradient: a plain activation, or SwiGLU with the features of its
 * gate interleaved with the others (Shazeer 2020; limits, slope and shift as in gpt-oss).
 */
import { mismatch, numberOf, text } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { Arithmetic } from './operator-writer.js';

interface Activated {
  readonly value: string;
  /** Returns the gradient of the sums, given the gradient of the value. */
  readonly back: (gradient: string) => string;
}

/** `sum`: [expert, token, hidden]; `shape`: [expert, token, feature] of the result. */
export function activated(write: OperatorGradient, sum: string, shape: readonly number[]): Activated {
  const { operator } = write;
  const at = write.on(write.sumType);
  const kind = text(operator, 'activation_type', 'relu');
  if (kind === 'swiglu') return gated(write, sum, shape, at);
  const plain = PLAIN[kind];
  if (!plain) throw mismatch(operator, `its activation_type ${kind} is not known`);
  const { value, rate } = plain(at, sum);
  return { value, back: (gradient) => (rate === null ? gradient : at.mul(gradient, rate())) };
}

interface PlainActivation {
  readonly value: string;
  /** The derivative; null where it is one. */
  readonly rate: (() => string) | null;
}

const PLAIN: Readonly<Record<string, (at: Arithmetic, x: string) => PlainActivation>> = {
  identity: (_, x) => ({ value: x, rate: null }),
  relu: (at, x) => ({ value: at.of('Relu', x), rate: () => at.count(at.of('Greater', x, 0)) }),
  silu: (at, x) => {
    const gate = at.of('Sigmoid', x);
    return { value: at.mul(x, gate), rate: () => at.mul(gate, at.add(at.mul(x, at.sub(1, gate)), 1)) };
  },
  // The tanh approximation: x (1 + tanh u) / 2, u = √(2/π) (x + 0.044715 x³).
  gelu: (at, x) => {
    const [scale, cube] = [Math.sqrt(2 / Math.PI), 0.044715];
    const square = at.square(x);
    const inside = at.mul(at.mul(x, scale), at.add(at.mul(square, cube), 1));
    const tanh = at.of('Tanh', inside);
    const half = at.mul(at.add(tanh, 1), 0.5);
    const steep = at.mul(at.add(at.mul(square, 3 * cube), 1), scale / 2);
    const rate = () => at.add(half, at.mul(at.mul(x, at.sub(1, at.square(tanh))), steep));
    return { value: at.mul(x, half), rate };
  },
};

/** g σ(α g) (l + β), both clamped: g from above, l on both sides. */
function gated(write: OperatorGradient, sum: string, shape: readonly number[], at: Arithmetic): Activated {
  const { operator } = write;
  const apart = write.add('Reshape', [sum], { shape: [...shape, 2] });
  write.addAll('Split', [apart], ['gates', 'others'], { axis: 3, split: [1, 1] });
  const [gates, others] = ['gates', 'others'].map((name) => write.add('Squeeze', [name], { axes: [3] }));
  const limit = numberOf(operator, 'swiglu_limit', Number.POSITIVE_INFINITY);
  const slant = numberOf(operator, 'activation_alpha', 1);
  const isLimited = Number.isFinite(limit);
  const gate = isLimited ? at.of('Min', gates ?? '', limit) : (gates ?? '');
  const other = isLimited ? at.of('Max', at.of('Min', others ?? '', limit), -limit) : (others ?? '');
  const open = at.of('Sigmoid', at.mul(gate, slant));
  const passed = at.mul(gate, open);
  const shifted = at.add(other, numberOf(operator, 'activation_beta', 0));
  const within = (gradient: string, free: string, bounded: string) =>
    isLimited ? at.where(at.of('Equal', free, bounded), gradient, 0) : gradient;
  return {
    value: at.mul(passed, shifted),
    back: (gradient) => {
      const rate = at.mul(open, at.add(at.mul(at.mul(gate, slant), at.sub(1, open)), 1));
      const parts = [
        within(at.mul(at.mul(gradient, shifted), rate), gates ?? '', gate),
        within(at.mul(gradient, passed), others ?? '', other),
      ].map((name) => write.add('Unsqueeze', [name], { axes: [3] }));
      const joined = write.add('Concat', parts, { axis: 3 });
      const size = (shape[2] ?? 1) * 2;
      return write.add('Reshape', [joined], { shape: [...shape.slice(0, 2), size] });
    },
  };
}
