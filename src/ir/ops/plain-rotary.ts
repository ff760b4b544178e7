/**
 * @file ONNX's RotaryEmbedding in plain operators, for devices without a kernel for it: pairs of features are rotated by the
 * angle of their position, features after them do not change.
 */
import { numberOf, operand } from './operands.js';
import type { OperatorWriter } from './operator-writer.js';
import type { DimensionAxes } from './rearrange.js';
import { halves } from './rotary-gradient.js';

const [COSINE, SINE, POSITIONS] = [1, 2, 3];

export function plainRotary(write: OperatorWriter): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, 0);
  const flat = shape.length === 3;
  const heads = flat ? numberOf(operator, 'num_heads', 1) : (shape[1] ?? 1);
  const { names, axes } = halves(write, 'in0', COSINE, heads);
  const [[x1 = '', x2 = ''], angles] = [names, axes[3]?.[0]?.size ?? 1];
  const table = (index: number) => {
    const rows = operator.inputs[POSITIONS] ? write.add('Gather', [`in${index}`, `in${POSITIONS}`]) : `in${index}`;
    return write.add('Unsqueeze', [rows], { axes: [1] });
  };
  const [cosine, sine] = [table(COSINE), table(SINE)];
  const product = (x: string, by: string) => write.add('Mul', [x, by]);
  const rotated = [
    write.add('Sub', [product(x1, cosine), product(x2, sine)]),
    write.add('Add', [product(x1, sine), product(x2, cosine)]),
  ];
  const axis = numberOf(operator, 'interleaved', 0) !== 0 ? 4 : 3;
  const pairs = rotated.map((half) => write.add('Unsqueeze', [half], { axes: [axis] }));
  const [batch = 1] = shape;
  const length = shape[flat ? 1 : 2] ?? 1;
  const features = flat ? (shape[2] ?? 1) / heads : (shape[3] ?? 1);
  const whole = { shape: [batch, heads, length, 2 * angles] };
  let result = write.add('Reshape', [write.add('Concat', pairs, { axis })], whole);
  const [b, h, s, f] = [{ size: batch }, { size: heads }, { size: length }, { size: features }];
  const apart: DimensionAxes = [[b], [h], [s], [f]];
  const joined: DimensionAxes = flat ? [[b], [s], [h, f]] : apart;
  if (2 * angles < features) {
    const own = write.rearrange('in0', joined, apart);
    const rest = write.add('Slice', [own], { starts: [2 * angles], ends: [features], axes: [3], steps: [1] });
    result = write.add('Concat', [result, rest], { axis: 3 });
  }
  write.makes(0, write.rearrange(result, apart, joined), dtype);
}
