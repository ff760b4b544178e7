/**
 * @file `factors`: axes by the names that an operator's rule has for its dimensions (docs/reference/operators.md).
 *
 *     factors: {n: tp, b0: [dp]}     MatMul *b m k+, *b k+ n -> *b m n: columns over tp, batch over dp
 *     factors: {n: (3 | 64:tp)}      n is three parts of 64, each over tp
 */
import type { FactorRule } from '../../ir/factor-rule.js';
import { offer } from '../../ir/nearest.js';
import type { Mesh, SubAxis } from '../mesh.js';
import type { PinSource } from '../pin.js';
import { pieceName } from '../refine.js';
import { checkStrategy, type FactorAxes } from '../strategy.js';
import type { FactorNotation } from './annotation.js';
import { demandOfLayout } from './layout-demand.js';
import { doesNotFit } from './pin-error.js';

/** @throws AutoparError `pin-does-not-fit` for unknown factors and axes, and where the rule allows no such strategy */
export function factorAxes(
  factors: Readonly<Record<string, FactorNotation>>,
  rule: FactorRule,
  linear: readonly (readonly number[])[],
  mesh: Mesh,
  source: PinSource,
): FactorAxes {
  const axes: Record<string, readonly SubAxis[]> = {};
  const pieces: Record<string, readonly number[]> = {};
  for (const [name, notation] of Object.entries(factors)) {
    const factor = rule.factors.get(name);
    if (!factor)
      throw doesNotFit(source, `its rule ${rule.text} has no factor '${name}'`, offer(name, [...rule.factors.keys()]));
    const text = typeof notation === 'string' ? notation : notation.length === 0 ? '-' : `(${notation.join(',')})`;
    const demand = demandOfLayout(`[${text}]`, { says: `factor ${name}`, shape: [factor.size] }, mesh, source);
    const [dimension = []] = demand.kind === 'layout' ? demand.layout.dims : [];
    const [first] = dimension;
    if (dimension.length === 1 && first) axes[name] = first.axes;
    else {
      pieces[name] = dimension.map((piece) => piece.size);
      for (const [index, piece] of dimension.entries()) axes[pieceName(name, index)] = piece.axes;
    }
  }
  const given: FactorAxes = Object.keys(pieces).length === 0 ? { axes } : { axes, pieces };
  const problem = checkStrategy(rule, { ...given, partialOperands: null, pending: { kind: 'none' } }, linear, mesh);
  if (problem) throw doesNotFit(source, problem, `the operator's rule is ${rule.text} (docs/reference/operators.md)`);
  return given;
}
