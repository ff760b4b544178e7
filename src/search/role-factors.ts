/**
 * @file The factors of an operator that axes of a mesh may take under their roles (roles.ts in sharding-propagation).
 */
import type { Factor, FactorRule } from '../ir/factor-rule.js';
import type { Operator, OperatorEntry } from '../ir/operator.js';
import { operatorEntry } from '../ir/ops/index.js';
import { mayBePadded } from '../ir/padding.js';
import { borderProblem } from '../sharding-propagation/halo.js';
import { axesSize, type Mesh } from '../sharding-propagation/mesh.js';
import { type AxisPart, axisRole, type FactorFamily, type Roles } from '../sharding-propagation/roles.js';
import { dividesHeads, type FactorFamilies } from './factor-families.js';

/**
 * Families that do most of a model's work at full size: where a degree is pinned, they may not repeat their work on every rank.
 * Nor may others in a graph where they do as much of it (`RoleRequest.heavy`).
 */
export const HEAVY: ReadonlySet<OperatorEntry['family']> = new Set([
  'contraction',
  'convolution',
  'attention',
  'recurrent',
]);

/** An operator on a mesh, as roles need it. */
export interface RoleRequest {
  readonly operator: Operator;
  readonly mesh: Mesh;
  /** The families of its factors. */
  readonly families: FactorFamilies;
  /** The roles of axes, which say which families they may take. */
  readonly roles: Roles;
  /** Operands that are weights: a partial sum of them alone is never worth carrying. */
  readonly weights: readonly boolean[];
  readonly axes: 'roles' | 'free';
}

/** The factors that an axis takes of an operator under its role. */
export interface RoleFactors {
  readonly factors: readonly Factor[];
  /** Whether it has to shard one of them. */
  readonly must: boolean;
}

/** The factors that an axis may take. */
export function factorsFor(
  part: AxisPart,
  usable: readonly Factor[],
  request: RoleRequest,
  rule: FactorRule,
): RoleFactors {
  if (request.axes === 'free') return { factors: usable, must: false };
  const taken = takenFactors(part, usable, request, rule);
  return taken.factors.length > 0 ? taken : { factors: leftFactors(part, usable, request, rule), must: false };
}

/** The factors that an axis takes by its role, if the operator has any that it can cut. */
function takenFactors(part: AxisPart, usable: readonly Factor[], request: RoleRequest, rule: FactorRule): RoleFactors {
  const { families, roles } = request;
  const { takes, pads } = axisRole(part.name, roles);
  const canTake = (family: FactorFamily) => (factor: Factor) =>
    families.factors[family].has(factor.name) &&
    (pads.includes(family) || factor.size % part.size === 0) &&
    canBeCut(factor, part.size, request, rule);
  const ofFamilies = (wanted: readonly FactorFamily[] = []) =>
    usable.filter((factor) => wanted.some((family) => canTake(family)(factor)));
  const wanted = takes[families.place];
  const takesHeads = wanted?.includes('heads') === true;
  const heads = takesHeads ? usable.filter(({ name }) => families.factors.heads.has(name)) : [];
  const parts = part.subAxes.map(({ size }) => size);
  const sizes = heads.map(({ size }) => size);
  const whole = ofFamilies(wanted);
  // An attention in one operator has no positions to shard: a method that shards positions leaves it open.
  const isPositionless = takesHeads && wanted.includes('sequence') && !usable.some(canTake('sequence'));
  if (isPositionless) return { factors: [], must: false };
  const isDivided = !whole.some((factor) => heads.includes(factor)) && dividesHeads(sizes, parts);
  const own = isDivided ? [...whole, ...heads] : whole;
  // A mask without heads is replicated where the rest is sharded by heads.
  if (own.length > 0) return { factors: own, must: !takesHeads || heads.length > 0 };
  const elsewhere = ofFamilies(takes.elsewhere);
  // Operands of attention without heads (a mask) need not have the layout of the rest.
  return { factors: elsewhere, must: elsewhere.length > 0 && takes[families.place] === undefined };
}

/** The factors that are left to an axis where an operator has none that its role takes. */
function leftFactors(
  part: AxisPart,
  usable: readonly Factor[],
  request: RoleRequest,
  rule: FactorRule,
): readonly Factor[] {
  const { leaves, cutsWeights, cutsWindows } = axisRole(part.name, request.roles);
  const others = usable.filter((factor) => !isLeft(factor.name, leaves, request));
  const cuttable = (factor: Factor) => canBeCut(factor, part.size, request, rule);
  // A recurrence can be sharded by its batch only: better that than the same steps on every rank.
  if (leaves.length > 0 && isHeavy(request) && !others.some(cuttable)) return usable;
  const cutting = cutsWeights ? others.filter((factor) => cutsWeight(factor, request, rule) && cuttable(factor)) : [];
  if (cutting.length === 0) return others;
  return others.filter((factor) => cutting.includes(factor) || (cutsWindows && isMadeByWindows(factor, rule)));
}

/** Whether a factor is of families that an axis leaves to others. */
export function isLeft(factor: string, leaves: readonly FactorFamily[], { families }: RoleRequest): boolean {
  return leaves.some((family) => families.factors[family].has(factor));
}

/** Whether the ranks that experts are sharded over divide the experts of an operator. */
export function canTakeExperts(usable: readonly Factor[], { mesh, families, axes }: RoleRequest): boolean {
  const ranks = axesSize(mesh, mesh.experts ?? []);
  return (
    axes === 'roles' &&
    ranks > 1 &&
    usable.some(({ name, size }) => families.factors.expert.has(name) && size % ranks === 0)
  );
}

/** Whether so many parts divide a factor, or it may be padded until they do; and windows reach no further than the next shard. */
export function canBeCut(factor: Factor, parts: number, { operator }: RoleRequest, rule: FactorRule): boolean {
  const isDivided =
    factor.size % parts === 0 ||
    (factor.size > parts && mayBePadded(factor.name, operator, rule, operatorEntry(operator)));
  return isDivided && borderProblem(rule, factor.name, parts) === null;
}

/** Whether windows make the positions of a factor: images are large where kernels are small. */
function isMadeByWindows({ name }: Factor, rule: FactorRule): boolean {
  return [...rule.factors.values()].some(({ halo }) => halo?.of === name);
}

function isHeavy({ operator }: RoleRequest): boolean {
  return HEAVY.has(operatorEntry(operator).family);
}

/**
 * Whether a factor is a dimension of a weight matrix that is multiplied, or of a table that is looked up. Operands that are only
 * added or compared (biases, masks) follow the tensors that they are added to.
 */
function cutsWeight(factor: Factor, { weights, operator }: RoleRequest, rule: FactorRule): boolean {
  const { family, parameterInputs } = operatorEntry(operator);
  if (!HEAVY.has(family) && family !== 'indexing') return false;
  // Operands of an attention besides fused projections are masks or biases, even where they are constant.
  const multiplies = (operand: number) => family !== 'attention' || (parameterInputs?.includes(operand) ?? false);
  return rule.inputs.some(
    (dims, operand) =>
      weights[operand] &&
      multiplies(operand) &&
      (operator.inputs[operand]?.shape.length ?? 0) >= 2 &&
      dims?.some((names) => names.includes(factor.name)),
  );
}
