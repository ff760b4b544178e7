/**
 * @file Roles of the dimensions of tensors inside a mixture of experts: tokens, experts or features. Roles propagate from one
 * operator to the next through factor rules.
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

/** Roles of the positions of a factor, major to minor: several where tokens and their copies are one dimension. */
type FactorRoles = ReadonlyMap<string, readonly RolePart[]>;

/** Roles of a rule's factors, from those of some operands and results; null where two of them differ, or a factor has two. */
export function factorRoles(rule: FactorRule, sides: readonly RoleSide[]): FactorRoles | null {
  const found = new Map<string, readonly RolePart[]>();
  for (const { names, roles } of sides)
    for (const [axis, dimension] of (names ?? []).entries()) {
      let rest = roles[axis] ?? [];
      for (const name of dimension) {
        const size = rule.factors.get(name)?.size ?? 1;
        if (size === 1) continue;
        const cut = cutParts(rest, size);
        if (!cut || partsKey(found.get(name) ?? cut.first) !== partsKey(cut.first)) return null;
        found.set(name, cut.first);
        rest = cut.rest;
      }
    }
  return found;
}

/** The major parts with so many positions, and the others; null where a part does not end there. */
function cutParts(
  parts: readonly RolePart[],
  size: number,
): { readonly first: readonly RolePart[]; readonly rest: readonly RolePart[] } | null {
  const [part, ...others] = parts;
  if (!part) return null;
  if (part.size === size) return { first: [part], rest: others };
  if (part.size > size) {
    const rest = [{ ...part, size: part.size / size }, ...others];
    return part.size % size === 0 ? { first: [{ ...part, size }], rest } : null;
  }
  const next = size % part.size === 0 ? cutParts(others, size / part.size) : null;
  return next && { first: [part, ...next.first], rest: next.rest };
}

function partsKey(parts: readonly RolePart[]): string {
  return parts.map(({ role, size }) => `${role} ${size}`).join();
}

/** Roles of the dimensions that a rule names, from its factors'; `missing` gives that of a factor which has none so far. */
export function expertRolesOf(
  names: readonly DimensionFactors[] | null | undefined,
  rule: FactorRule,
  factors: FactorRoles,
  missing: (size: number) => ExpertRole | null = () => null,
): RoleDims | null {
  const dims: (readonly RolePart[])[] = [];
  for (const dimension of names ?? []) {
    const parts: RolePart[] = [];
    for (const name of dimension) {
      const size = rule.factors.get(name)?.size ?? 1;
      if (size === 1) continue;
      const role = missing(size);
      const own = factors.get(name) ?? (role && [{ role, size }]);
      if (!own) return null;
      for (const part of own) {
        const last = parts.at(-1);
        if (last?.role === part.role) parts.splice(-1, 1, { role: part.role, size: last.size * part.size });
        else parts.push(part);
      }
    }
    dims.push(parts);
  }
  return dims;
}

/** Roles of the first result's dimensions; null where they do not follow, or tokens change their order. */
export function rolesBehind(
  rule: FactorRule,
  operands: readonly (RoleDims | null)[],
  missing?: Parameters<typeof expertRolesOf>[3],
): RoleDims | null {
  const factors = factorRoles(rule, sidesOf(rule, operands));
  if (!factors) return null;
  const order = tokenOrder(rule.outputs[0], factors);
  const isKept = rule.inputs.every((names) => ['', order].includes(tokenOrder(names, factors)));
  return isKept ? expertRolesOf(rule.outputs[0], rule, factors, missing) : null;
}

export function sidesOf(rule: FactorRule, operands: readonly (RoleDims | null)[]): readonly RoleSide[] {
  return operands.flatMap((roles, index) => (roles ? [{ names: rule.inputs[index], roles }] : []));
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
function tokenOrder(names: readonly DimensionFactors[] | null | undefined, factors: FactorRoles): string {
  const isToken = (name: string) => factors.get(name)?.some(({ role }) => role === 'token') === true;
  return (names ?? []).flat().filter(isToken).join();
}
