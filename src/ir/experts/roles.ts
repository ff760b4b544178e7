/**
 * @file What the dimensions of tensors inside a mixture of experts are: tokens, experts or features. They follow from one operator
 * to the next through factor rules.
 *
 *     x [tokens, features] → Einsum td,edf->etf → [experts, tokens, features]
 */
import type { DimensionFactors, FactorRule } from '../factor-rule.js';

export type ExpertRole = 'token' | 'expert' | 'feature';

/** A part of a dimension, major to minor. */
interface RolePart {
  readonly role: ExpertRole;
  readonly size: number;
}

/** By dimension; none for one of size 1. */
export type RoleDims = readonly (readonly RolePart[])[];

/** An operand or a result with its dimensions as the rule names them. */
interface RoleSide {
  readonly names: readonly DimensionFactors[] | null | undefined;
  readonly roles: RoleDims;
}

/** Every dimension has one role, that of size 1 none. */
export function plainRoles(shape: readonly number[], roleOf: (axis: number) => ExpertRole): RoleDims {
  return shape.map((size, axis) => (size === 1 ? [] : [{ role: roleOf(axis), size }]));
}

/** Roles of a rule's factors, from those of some operands and results; null where two of them differ, or a factor has two. */
export function factorRoles(rule: FactorRule, sides: readonly RoleSide[]): ReadonlyMap<string, ExpertRole> | null {
  const found = new Map<string, ExpertRole>();
  for (const { names, roles } of sides)
    for (const [axis, dimension] of (names ?? []).entries()) {
      const parts = roles[axis] ?? [];
      const real = dimension.filter((name) => (rule.factors.get(name)?.size ?? 1) > 1);
      const isOne = parts.every(({ role }) => role === parts[0]?.role);
      if (!isOne && real.some((name, index) => rule.factors.get(name)?.size !== parts[index]?.size)) return null;
      for (const [index, name] of real.entries()) {
        const role = (isOne ? parts[0] : parts[index])?.role;
        if (role === undefined || (found.get(name) ?? role) !== role) return null;
        found.set(name, role);
      }
    }
  return found;
}

/** Roles of the dimensions that a rule names, from its factors'; `missing` gives that of a factor which has none so far. */
export function dimensionRoles(
  names: readonly DimensionFactors[] | null | undefined,
  rule: FactorRule,
  factors: ReadonlyMap<string, ExpertRole>,
  missing: (size: number) => ExpertRole | null = () => null,
): RoleDims | null {
  const dims: (readonly RolePart[])[] = [];
  for (const dimension of names ?? []) {
    const parts: RolePart[] = [];
    for (const name of dimension) {
      const size = rule.factors.get(name)?.size ?? 1;
      if (size === 1) continue;
      const role = factors.get(name) ?? missing(size);
      if (role === null) return null;
      const last = parts.at(-1);
      if (last?.role === role) parts.splice(-1, 1, { role, size: last.size * size });
      else parts.push({ role, size });
    }
    dims.push(parts);
  }
  return dims;
}

/** The roles of all parts, major to minor. */
export function roleList(dims: RoleDims): readonly ExpertRole[] {
  return dims.flat().map(({ role }) => role);
}

/** How many elements of a role there are. */
export function roleSize(dims: RoleDims, role: ExpertRole): number {
  return dims.flat().reduce((all, part) => (part.role === role ? all * part.size : all), 1);
}

/** Names of the factors that are tokens, in the order of the dimensions. */
export function tokenOrder(
  names: readonly DimensionFactors[] | null | undefined,
  rule: FactorRule,
  factors: ReadonlyMap<string, ExpertRole>,
): string {
  const all = (names ?? []).flat();
  return all.filter((name) => factors.get(name) === 'token' && (rule.factors.get(name)?.size ?? 1) > 1).join();
}
