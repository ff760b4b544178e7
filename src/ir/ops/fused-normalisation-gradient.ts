/**
 * @file Gradients of ONNX Runtime's fused normalisations: of a residual sum, of a sum of embeddings, and with a gate after it.
 */

import type { DType } from '../dtype.js';
import { constant } from './constants.js';
import { summationType } from './expansion.js';
import { EMBEDDED, embeddingSum, type TablePositions, tablePositions } from './fused-normalisation-tables.js';
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

/** The gradient through the normalisation to the sum of rows; each table adds up the gradients of its rows. */
export function embedGradient(write: OperatorGradient): void {
  const { operator } = write;
  const { dtype } = operand(operator, 2);
  const { shape } = result(operator, 0);
  const type = summationType(dtype);
  const sum = operator.outputs[2] ? 'out2' : embeddingSum(write.expansion, operator);
  const field = { x: write.inType(sum, dtype, type), type, shape, axes: [2] };
  const normal = normalised(write, field, { epsilon: numberOf(operator, 'epsilon', 1e-12), isCentred: true });
  const after = write.has(2) ? write.inType('grad2', dtype, type) : null;
  scaled(write, normal, { scale: 5, shift: 6, type, shape }, (unit) => {
    if (![2, 3, 4].some((table) => write.wants(table))) return;
    const made = throughUnit(normal, { unit, field: after });
    const indices = (index: number) => ({
      name: `in${index}`,
      dtype: operand(operator, index).dtype,
      dims: EMBEDDED.slice(0, 2),
    });
    if (write.wants(2)) addRows(write, 2, indices(0), made, type);
    if (write.wants(4)) {
      if (operator.inputs[1]) addRows(write, 4, indices(1), made, type);
      else write.none(4);
    }
    if (!write.wants(3)) return;
    const places = tablePositions(write.expansion, operator);
    // Samples that share their positions are summed first.
    const [first] = places.dims;
    const keepdims = places.dims.length === 2 ? 1 : 0;
    const shared = keepdims === 0 || first?.length === 0;
    const summed = shared ? write.add('ReduceSum', [made], { axes: [0], keepdims }) : made;
    addRows(write, 3, places, summed, type);
  });
}

/** Rows added up in a table of zeros, each at its place. */
function addRows(write: OperatorGradient, table: number, places: TablePositions, rows: string, type: DType): void {
  const { shape } = operand(write.operator, table);
  const zeros = write.add('ConstantOfShape', [], { shape, value: constant(type, [0], [1]) });
  const long = write.inType(places.name, places.dtype, 'int64');
  const open = write.add('Unsqueeze', [long], { axes: [places.dims.length] });
  const sum = write.add('ScatterND', [zeros, open, rows], { reduction: 'add' });
  write.become(table, sum, type);
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
