/**
 * @file Gradients of rotary embeddings: a rotation by the opposite angle undoes a rotation, so the gradient of the data is the
 * operator itself with the sine's sign changed. Trained tables of angles add up the gradients of the positions that used a row.
 */
import { AutoparError } from '../error.js';
import { elementCount } from '../graph.js';
import { numberOf, operand } from './operands.js';
import type { OperatorGradient } from './operator-gradient.js';
import type { OperatorWriter } from './operator-writer.js';
import type { DimensionAxes, RearrangedAxis } from './rearrange.js';

/** Indices of an operator's operands. */
interface Rotary {
  readonly cosine: number;
  readonly sine: number;
  readonly positions: number;
  /** The number of heads, if heads and features share one dimension. */
  readonly heads: number;
}

export function rotaryGradient(write: OperatorGradient, { cosine, sine, positions, heads }: Rotary): void {
  const { operator } = write;
  if (write.wants(0)) {
    const opposite = write.add('Neg', [`in${sine}`]);
    const operands = operator.inputs.map((type, index) => (type ? `in${index}` : null));
    operands[0] = 'grad0';
    operands[sine] = opposite;
    write.addOf(operator.domain, operator.op, operands, operator.attributes, 'd0');
  }
  if (!write.wants(cosine) && !write.wants(sine)) return;
  if ((operator.inputs[positions]?.shape.length ?? 0) > 2 || numberOf(operator, 'is_packed_batching', 0) !== 0)
    throw new AutoparError(
      'no-gradient',
      'input',
      `${operator.op} ${operator.name}: its angles have no gradient where positions are in sections or samples are packed`,
      { node: operator.name },
      'Freeze the tables of angles: --frozen.',
    );
  const parts = ['grad0', 'in0'].map((name) => halves(write, name, cosine, heads));
  const [[g1 = '', g2 = ''] = [], [x1 = '', x2 = ''] = []] = parts.map(({ names }) => names);
  const { axes } = parts[0] as Halves;
  const [b = [], , s = [], f = []] = axes;
  const give = (index: number, op: 'Add' | 'Sub', left: readonly string[], right: readonly string[]) => {
    if (!write.wants(index)) return;
    const product = write.add(op, [write.add('Mul', left), write.add('Mul', right)]);
    const rows: DimensionAxes = [b, s, f];
    const sum = write.add('ReduceSum', [product], { axes: [1], keepdims: 0 });
    intoTable(write, index, positions, sum, rows);
  };
  give(cosine, 'Add', [g1, x1], [g2, x2]);
  give(sine, 'Sub', [g2, x1], [g1, x2]);
}

export interface Halves {
  readonly names: readonly string[];
  /** Samples, heads, positions, angles. */
  readonly axes: DimensionAxes;
}

/** The two coordinates of each pair that is rotated. */
export function halves(write: OperatorWriter, name: string, table: number, heads: number): Halves {
  const { operator } = write;
  const { shape } = operand(operator, 0);
  const flat = shape.length === 3;
  const angles = operand(operator, table).shape.at(-1) ?? 1;
  const count = flat ? heads : (shape[1] ?? 1);
  const features = flat ? (shape[2] ?? 1) / heads : (shape[3] ?? 1);
  const sample: RearrangedAxis = { size: shape[0] ?? 1 };
  const position: RearrangedAxis = { size: shape[flat ? 1 : 2] ?? 1 };
  const head: RearrangedAxis = { size: count };
  const feature: RearrangedAxis = { size: features };
  const from: DimensionAxes = flat
    ? [[sample], [position], [head, feature]]
    : [[sample], [head], [position], [feature]];
  const apart: DimensionAxes = [[sample], [head], [position], [feature]];
  let own = write.rearrange(name, from, apart);
  if (2 * angles < features)
    own = write.add('Slice', [own], { starts: [0], ends: [2 * angles], axes: [3], steps: [1] });
  const angle: RearrangedAxis = { size: angles };
  const [lead, pair] = [[sample], { size: 2 }] as const;
  const interleaved = numberOf(operator, 'interleaved', 0) !== 0;
  const pairAxes: DimensionAxes = [lead, [head], [position], ...(interleaved ? [[angle], [pair]] : [[pair], [angle]])];
  const shapes = pairAxes.map((axes) => axes.reduce((product, { size }) => product * size, 1));
  const pairs = write.add('Reshape', [own], { shape: shapes });
  const axis = interleaved ? 4 : 3;
  const axes: DimensionAxes = [lead, [head], [position], [angle]];
  const names = [0, 1].map((place) => {
    const bounds = { starts: [place], ends: [place + 1], axes: [axis], steps: [1] };
    const half = write.add('Slice', [pairs], bounds);
    return write.add('Squeeze', [half], { axes: [axis] });
  });
  return { names, axes };
}

/** Sums of samples and positions are added to the rows that they used. */
function intoTable(write: OperatorGradient, index: number, positions: number, sums: string, rows: DimensionAxes): void {
  const { operator } = write;
  const { dtype, shape } = operand(operator, index);
  const used = operator.inputs[positions];
  if (!used) {
    write.into(
      index,
      sums,
      operand(operator, 0).dtype,
      rows.map(([axis]) => axis?.size ?? 1),
    );
    return;
  }
  const [, s = []] = rows;
  const length = shape[0] ?? 1;
  const isOffset = used.shape.length < 2 || elementCount(used.shape) === 1;
  const size = s[0]?.size ?? 1;
  let at = `in${positions}`;
  if (isOffset) {
    const offset = write.add('Reshape', [at], { shape: [1, 1] });
    at = write.add('Add', [offset, write.positions([1, size], 1)]);
  }
  const tall = write.add('Unsqueeze', [at], { axes: [2] });
  const wide = write.positions([1, 1, length], 2);
  const hit = write.add('Equal', [tall, wide]);
  const weights = write.cast(hit, dtype);
  write.add('Einsum', [weights, sums], { equation: 'bsp,bsf->pf' }, `d${index}`);
}
