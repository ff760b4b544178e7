/**
 * @file Padding must not change a reduction. Where a summed dimension is padded (10 over tp 4 are 12), the last ranks hold
 * invalid positions, and values computed there would be summed up. So before an operator contracts such a dimension, its
 * operands' padding becomes the neutral element of the reduction: 0 for a sum, −∞ for a maximum.
 *
 *     valid  = offset of the rank + (0, 1, 2) < 10
 *     result = operator(where(valid, x, 0), …)
 */
import { type DType, isFloating } from '../ir/dtype.js';
import type { Factor, FactorRule, Reduction } from '../ir/factor-rule.js';
import { constant } from '../ir/ops/constants.js';
import { replicated } from '../sharding-propagation/layout.js';
import { axesSize } from '../sharding-propagation/mesh.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import { type Fragment, int64Constant } from './fragment.js';

/** The neutral element of a reduction. Integers only occur inside expansions, where they are positions. */
function neutral(reduction: Reduction, dtype: DType): number {
  if (reduction === 'sum') return 0;
  const largest = isFloating(dtype) ? Infinity : (LARGEST[dtype] ?? Number.MAX_SAFE_INTEGER);
  return reduction === 'min' ? largest : -largest;
}

const LARGEST: Readonly<Partial<Record<DType, number>>> = { int8: 127, int16: 32767, int32: 2147483647 };

/** The operands, those with a padded contracted dimension masked. Weights need no mask: their padding is zero. */
export function withNeutralPadding(
  fragment: Fragment,
  rule: FactorRule,
  strategy: Strategy,
  inputs: readonly (string | null)[],
): readonly (string | null)[] {
  const padded = [...rule.factors.values()].filter(
    (factor) => factor.kind === 'contracting' && factor.size % shardsOf(fragment, strategy, factor) !== 0,
  );
  if (padded.length === 0) return inputs;
  return inputs.map((name, operand) =>
    padded.reduce((current, factor) => {
      const dimension = rule.inputs[operand]?.findIndex((names) => names.includes(factor.name)) ?? -1;
      if (current === null || dimension < 0) return current;
      if (factor.reduction === 'sum' && fragment.get(current).zeroPadded) return current;
      const names = rule.inputs[operand]?.[dimension] ?? [];
      return mask(fragment, current, dimension, valid(fragment, rule, strategy, names, factor), factor.reduction);
    }, name),
  );
}

function shardsOf(fragment: Fragment, strategy: Strategy, { name }: Pick<Factor, 'name'>): number {
  return axesSize(fragment.mesh, strategy.axes[name] ?? []);
}

/** By position along a rank's shard of the dimension: whether the factor's position there is valid. */
function valid(
  fragment: Fragment,
  rule: FactorRule,
  strategy: Strategy,
  names: readonly string[],
  factor: Factor,
): string {
  const sizes = names.map((name) => {
    const shards = shardsOf(fragment, strategy, { name });
    return Math.ceil((rule.factors.get(name)?.size ?? 1) / shards);
  });
  const place = names.indexOf(factor.name);
  const own = sizes[place] ?? 1;
  const inner = sizes.slice(place + 1).reduce((product, size) => product * size, 1);
  const length = sizes.reduce((product, size) => product * size, 1);
  const axes = strategy.axes[factor.name] ?? [];
  const along = fragment.constant(
    int64Constant(Array.from({ length }, (_, position) => Math.floor(position / inner) % own)),
  );
  const apply = (op: string, inputs: readonly string[], dtype: 'int64' | 'bool') =>
    fragment.add({
      op,
      inputs,
      results: [{ type: { dtype, shape: [length] }, layout: replicated([length]), varying: axes }],
    })[0] as string;
  const positions = apply('Add', [along, fragment.coordinate(axes, own)], 'int64');
  return apply('Less', [positions, fragment.constant(int64Constant([factor.size]))], 'bool');
}

/** The tensor where `condition` holds along the dimension, the neutral value elsewhere. */
function mask(fragment: Fragment, tensor: string, dimension: number, condition: string, reduction: Reduction): string {
  const { dtype, shape, layout, localShape, varying: own = [] } = fragment.get(tensor);
  const { varying = [], localShape: length } = fragment.get(condition);
  const aligned = localShape.map((_, axis) => (axis === dimension ? (length[0] ?? 1) : 1));
  const [across] = fragment.add({
    op: 'Reshape',
    attributes: { shape: aligned },
    inputs: [condition],
    results: [{ type: { dtype: 'bool', shape: aligned }, layout: replicated(aligned), varying }],
    lowering: 'mask',
  });
  const [result] = fragment.add({
    op: 'Where',
    inputs: [across as string, tensor, fragment.constant(constant(dtype, [neutral(reduction, dtype)], []))],
    results: [{ type: { dtype, shape }, layout, varying: own }],
    lowering: 'mask',
  });
  return result as string;
}
