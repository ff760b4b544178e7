/**
 * @file Scatters that add, on a shard of the rows: indices are shifted by the rows before it, and updates of rows on other
 * shards are zero. It reverses the lookup in a sharded table (partition/masked-lookup.ts), as the gradient of a
 * vocabulary-parallel embedding does.
 *
 *     wrapped = where(index < 0, index + rows, index)        negative indices count from the end
 *     local   = wrapped − offset
 *     inside  = 0 ≤ local < size
 *     result  = scatter(data, where(inside, local, 0), where(inside, updates, 0))
 */
import type { FactorRule, TensorFactors } from '../factor-rule.js';
import type { Expansion, Operator } from '../operator.js';
import { constant } from './constants.js';
import { ExpansionWriter } from './expansion.js';
import { axisOf, operand } from './operands.js';

/** A shard of the rows: where it begins (an int64 tensor of shape [1]), and how many there are in it and in all. */
interface Shard {
  readonly offset: string;
  readonly size: number;
  readonly rows: number;
}

/** ScatterND with reduction `add` whose tuples address one dimension, on a shard of it. */
export function scatterRowsOnShard(
  operator: Operator,
  rule: FactorRule,
  { offset, size }: Omit<Shard, 'rows'>,
): Expansion {
  const write = new ExpansionWriter();
  const tuples = rule.inputs[1] ?? [];
  const updates = rule.inputs[2] ?? [];
  const { inside, local } = placesOnShard(write, operator, tuples, {
    offset,
    size,
    rows: operand(operator, 0).shape[0] ?? 1,
  });
  const last = tuples.length - 1;
  const flat = write.add('Squeeze', [inside], tuples.slice(0, -1), { axes: [last] });
  const beside = updates.flatMap((_, axis) => (axis < last ? [] : [axis]));
  const spread = updates.map((names, axis) => (axis < last ? names : []));
  const chosen = beside.length === 0 ? flat : write.add('Unsqueeze', [flat], spread, { axes: beside });
  const kept = write.add('Where', [chosen, 'in2', zeroOf(write, operator)], updates);
  write.add('ScatterND', ['in0', local, kept], rule.outputs[0] ?? [], operator.attributes, 'out0');
  return write.finish();
}

/** ScatterElements with reduction `add`, on a shard of its axis. */
export function scatterElementsOnShard(
  operator: Operator,
  rule: FactorRule,
  { offset, size }: Omit<Shard, 'rows'>,
): Expansion {
  const write = new ExpansionWriter();
  const places = rule.inputs[1] ?? [];
  const { shape } = operand(operator, 0);
  const rows = shape[axisOf(operator, 'axis', shape.length, 0)] ?? 1;
  const { inside, local } = placesOnShard(write, operator, places, { offset, size, rows });
  const kept = write.add('Where', [inside, 'in2', zeroOf(write, operator)], places);
  write.add('ScatterElements', ['in0', local, kept], rule.outputs[0] ?? [], operator.attributes, 'out0');
  return write.finish();
}

/** Indices as the shard counts its rows (row 0 for those of others), and which of them are its own. */
function placesOnShard(write: ExpansionWriter, operator: Operator, dims: TensorFactors, { offset, size, rows }: Shard) {
  const { dtype } = operand(operator, 1);
  const start = dtype === 'int64' ? offset : write.cast(offset, [[]], dtype);
  const zero = write.scalar(dtype, 0);
  const negative = write.add('Less', ['in1', zero], dims);
  const wrapped = write.add(
    'Where',
    [negative, write.add('Add', ['in1', write.scalar(dtype, rows)], dims), 'in1'],
    dims,
  );
  const moved = write.add('Sub', [wrapped, start], dims);
  const above = write.add('GreaterOrEqual', [moved, zero], dims);
  const below = write.add('Less', [moved, write.scalar(dtype, size)], dims);
  const inside = write.add('And', [above, below], dims);
  return { inside, local: write.add('Where', [inside, moved, zero], dims) };
}

function zeroOf(write: ExpansionWriter, operator: Operator): string {
  return write.tensor(constant(operand(operator, 2).dtype, [0]));
}
