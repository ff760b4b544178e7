/**
 * @file Gradients of ONNX Runtime's fused normalisations: of a residual sum, and with a gate after it.
 */

import { normalised, scaled, throughUnit } from './normalisation-gradient.js';
import { numberOf, operand, result } from './operands.js';
import type { GradientBody, OperatorGradient } from './operator-gradient.js';

interface SkipOperands {
  /** Whether the mean is subtracted, and there may be a shift after the scale. */
  readonly isCentred: boolean;
  /** Operand that is added to the sum. */
  readonly bias: number;
}

/** All summands get the same gradient: the one through the normalisation, plus the one of the sum as a result. */
export function skipGradient({ isCentred, bias }: SkipOperands): GradientBody {
  return (write) => {
    const { operator } = write;
    const { dtype, shape } = operand(operator, 0);
    const type = write.sumType;
    const at = write.on(dtype);
    const sum = () => {
      const both = at.add('in0', 'in1');
      return operator.inputs[bias] ? at.add(both, `in${bias}`) : both;
    };
    // The sum that is a result is rounded once, as the sum that is normalised is.
    const x = write.inType(operator.outputs[3] ? 'out3' : sum(), dtype, type);
    const axes = [shape.length - 1];
    const way = { epsilon: numberOf(operator, 'epsilon', 1e-12), isCentred };
    const normal = normalised(write, { x, type, shape, axes }, way);
    const arriving = (index: number) =>
      write.has(index) ? write.inType(`grad${index}`, result(operator, index).dtype, type) : null;
    scaled(write, normal, { scale: 2, shift: isCentred ? 3 : null, type, shape }, (unit) => {
      const added = [0, 1, bias].filter((index) => write.wants(index));
      if (added.length === 0) return;
      const made = throughUnit(normal, {
        unit,
        mean: isCentred ? arriving(1) : null,
        inverse: arriving(2),
        field: arriving(3),
      });
      for (const index of added) write.into(index, made, type, shape);
    });
  };
}

/** x̂ · scale · silu(gate), the features in groups that are normalised by themselves. */
export function gatedGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const size = operand(operator, 1).shape[0] ?? 1;
  const type = write.sumType;
  const grouped = [...shape.slice(0, -1), (shape.at(-1) ?? 1) / size, size];
  const split = (name: string) => write.inType(write.add('Reshape', [name], { shape: grouped }), dtype, type);
  const joined = (name: string) => write.add('Reshape', [name], { shape });
  const at = write.on(type);
  const axes = [grouped.length - 1];
  const way = { epsilon: numberOf(operator, 'epsilon', 1e-5), isCentred: false };
  const normal = normalised(write, { x: split('in0'), type, shape: grouped, axes }, way);
  const scale = write.inType('in1', operand(operator, 1).dtype, type);
  const [gate, g] = [split('in2'), split('grad0')];
  const open = at.of('Sigmoid', gate);
  const silu = at.mul(gate, open);
  const gated = at.mul(g, silu);
  if (write.wants(0)) write.become(0, joined(throughUnit(normal, { unit: at.mul(gated, scale) })), type);
  if (write.wants(1)) write.into(1, at.mul(gated, normal.unit), type, grouped);
  if (write.wants(2)) {
    const derivative = at.mul(open, at.add(at.mul(gate, at.sub(1, open)), 1));
    write.become(2, joined(at.mul(at.mul(g, at.mul(normal.unit, scale)), derivative)), type);
  }
}
