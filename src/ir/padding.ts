/**
 * @file Which factors of an operator may be padded, so that they can be sharded over axes that do not divide them.
 */
import { isFloating } from './dtype.js';
import { type FactorRule, ruleSides } from './factor-rule.js';
import type { Operator, OperatorEntry } from './operator.js';

/**
 * A factor may be padded where it runs through floating-point tensors (and booleans) only: arithmetic on padding does no harm
 * there, while an integer might be a divisor or an index.
 */
export function mayBePadded(name: string, operator: Operator, rule: FactorRule, entry: OperatorEntry): boolean {
  if (entry.readsPositions) return false;
  return ruleSides(rule, operator).every(
    ({ of: { dtype }, dims }) => !dims.some((names) => names.includes(name)) || isFloating(dtype) || dtype === 'bool',
  );
}
