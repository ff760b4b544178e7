/**
 * @file Vocabulary-parallel lookup (Megatron-LM's VocabParallelEmbedding), for every operator whose rule has a factor of
 * kind `mask`: each rank holds a shard of the table, indices outside of it contribute zero, the sum over ranks is whole.
 *
 *     wrapped = where(index < 0, index + size, index)        negative indices count from the end
 *     local   = wrapped − offset
 *     inside  = 0 ≤ local < shard size
 *     result  = where(inside, operator(table, where(inside, local, 0)), 0)
 */
import type { FactorRule } from '../ir/factor-rule.js';
import type { ConstantTensor } from '../ir/graph.js';
import type { OperatorEntry } from '../ir/operator.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize } from '../sharding-propagation/mesh.js';
import { type Fragment, type FragmentOperator, zeroConstant } from './fragment.js';

/** Adds `plain` (an operator that looks up rows of a sharded table of `size` rows) with its index shifted and masked. */
export function addMaskedLookup(
  fragment: Fragment,
  plain: FragmentOperator,
  rule: FactorRule,
  entry: OperatorEntry,
  size: number,
  axes: readonly SubAxis[],
): readonly string[] {
  const operand = entry.indexInput;
  const index = operand === undefined ? null : plain.inputs[operand];
  const result = plain.results[0];
  if (operand === undefined || !index || !result) throw new Error(`${plain.op} has a mask factor but no index operand`);
  const shardSize = Math.ceil(size / axesSize(fragment.mesh, axes));
  const { dtype, shape, layout } = fragment.get(index);
  const whole = (value: number) => fragment.constant(indexConstant(dtype, value));
  const apply = (op: string, inputs: readonly string[], type: 'index' | 'bool', varies: boolean) =>
    fragment.add({
      op,
      inputs,
      results: [{ type: { dtype: type === 'bool' ? 'bool' : dtype, shape }, layout, varying: varies ? axes : [] }],
    })[0] as string;

  const negative = apply('Less', [index, whole(0)], 'bool', false);
  const wrapped = apply('Where', [negative, apply('Add', [index, whole(size)], 'index', false), index], 'index', false);
  const local = apply('Sub', [wrapped, offsetAs(fragment, axes, shardSize, dtype)], 'index', true);
  const above = apply('GreaterOrEqual', [local, whole(0)], 'bool', true);
  const below = apply('Less', [local, whole(shardSize)], 'bool', true);
  const inside = apply('And', [above, below], 'bool', true);
  const safe = apply('Where', [inside, local, whole(0)], 'index', true);

  const partial = result.layout.partial.filter((entry) => !axes.includes(entry.axis));
  const unmasked: Layout = { ...result.layout, partial };
  const [rows] = fragment.add({
    ...plain,
    inputs: plain.inputs.map((name, position) => (position === operand ? safe : name)),
    results: [{ type: result.type, layout: unmasked, varying: axes }],
    lowering: 'mask',
  });
  const mask = alignToResult(fragment, inside, rule, operand, rows as string);
  return fragment.add({
    op: 'Where',
    inputs: [mask, rows as string, fragment.constant(zeroConstant(result.type.dtype))],
    results: [result],
    lowering: 'mask',
  });
}

/** The rank's offset in the index's dtype; a scalar index needs a scalar offset, so the shape is [] for all. */
function offsetAs(
  fragment: Fragment,
  axes: readonly SubAxis[],
  shardSize: number,
  dtype: ConstantTensor['dtype'],
): string {
  const offset = fragment.coordinate(axes, shardSize);
  const scalar = fragment.add({
    op: 'Reshape',
    attributes: { shape: [] },
    inputs: [offset],
    results: [{ type: { dtype: 'int64', shape: [] }, layout: { dims: [], partial: [] }, varying: axes }],
  })[0] as string;
  if (dtype === 'int64') return scalar;
  return fragment.add({
    op: 'Cast',
    attributes: { to: 6 },
    inputs: [scalar],
    results: [{ type: { dtype, shape: [] }, layout: { dims: [], partial: [] }, varying: axes }],
  })[0] as string;
}

/** The mask with a dimension of size 1 wherever the result has a dimension that the index lacks. */
function alignToResult(fragment: Fragment, mask: string, rule: FactorRule, operand: number, rows: string): string {
  const indexFactors = new Set((rule.inputs[operand] ?? []).flat());
  const dims = rule.outputs[0] ?? [];
  const { localShape } = fragment.get(rows);
  const isIndexed = (position: number) => {
    const factors = dims[position] ?? [];
    return factors.length > 0 && factors.every((name) => indexFactors.has(name));
  };
  const target = localShape.map((size, position) => (isIndexed(position) ? size : 1));
  const { varying } = fragment.get(mask);
  const result = fragment.get(rows);
  return fragment.add({
    op: 'Reshape',
    attributes: { shape: target },
    inputs: [mask],
    results: [
      {
        type: { dtype: 'bool', shape: result.shape.map((size, position) => (isIndexed(position) ? size : 1)) },
        layout: {
          dims: result.layout.dims.map((pieces, position) => (isIndexed(position) ? pieces : [{ size: 1, axes: [] }])),
          partial: [],
          ...(result.layout.extents
            ? { extents: result.layout.extents.map((parts, position) => (isIndexed(position) ? parts : null)) }
            : {}),
        },
        varying: varying ?? [],
      },
    ],
  })[0] as string;
}

function indexConstant(dtype: ConstantTensor['dtype'], value: number): ConstantTensor {
  const data =
    dtype === 'int64'
      ? new Uint8Array(new BigInt64Array([BigInt(value)]).buffer)
      : new Uint8Array(new Int32Array([value]).buffer);
  return { dtype, shape: [], data };
}
