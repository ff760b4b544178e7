/**
 * @file The strategies worth considering for one operator, and what each costs.
 *
 * An axis of the mesh shards one factor, or its first sub-axes on one factor and the rest on another or idle (two key
 * heads on tp 4), or on none. Operators that are linear may also pass partial sums through, and what contracting factors
 * leave partial may be left, reduced, or reduced and scattered. Everything legal is enumerated; each candidate is lowered
 * and its nodes are priced, so that costs are those of the lowered graph.
 *
 * Roles (roles.ts): dp shards the batch where the operator has one; tp does only where a heavy operator has nothing else to shard
 * (a recurrence); an operator that multiplies a weight matrix has tp on one of the matrix's dimensions (sharding the sequence
 * instead would repeat the weights). `free` lifts all of this. Sums that are rounded to quantised numbers stay whole, as
 * QLinearConv and QLinearMatMul have it; pins can ask for them to be sharded.
 */

import type { Cluster } from '../cost-model/cluster.js';
import { priceFragment } from '../cost-model/price.js';
import type { Factor, FactorRule } from '../ir/factor-rule.js';
import type { OperatorEntry } from '../ir/operator.js';
import { operatorEntry } from '../ir/ops/index.js';
import { lowerIfLegal, type OperatorContext } from '../partition/lower-operator.js';
import { borderProblem, type FactorSubAxes } from '../sharding-propagation/halo.js';
import { type Layout, mergedOnce } from '../sharding-propagation/layout.js';
import { axesSize, type Mesh, type MeshAxis, type SubAxis, subAxes } from '../sharding-propagation/mesh.js';
import { type OperatorPin, type PinSource, satisfies } from '../sharding-propagation/pin.js';
import { type FactorPieces, pieceName, piecesProblem, refineRule } from '../sharding-propagation/refine.js';
import { type AxisRole, axisParts, axisRole } from '../sharding-propagation/roles.js';
import {
  checkStrategy,
  type PendingReduction,
  pendingPartial,
  type Strategy,
} from '../sharding-propagation/strategy.js';
import { innerPieces, paddedPieces, type SeenCut, type SeenPiece } from './piece-hints.js';
import { unsatisfiable } from './pinned.js';
import { canBeCut, canTakeExperts, factorsFor, HEAVY, isLeft, type RoleRequest } from './role-factors.js';

/** The candidate strategies of operators of one structure. */
export interface CandidateSet {
  readonly strategies: readonly Strategy[];
  /** Integer nanoseconds of each strategy. */
  readonly costs: Float64Array;
  /** [strategy][operand], null for an absent operand. */
  readonly operands: readonly (readonly (Layout | null)[])[];
  /** [strategy][result]. */
  readonly results: readonly (readonly (Layout | null)[])[];
  /** Pinned axes that could not be used, and why. */
  readonly unused: readonly string[];
  /** Whether pins require strategies that roles do not allow. */
  readonly liftsRoles: boolean;
}

export interface CandidateRequest extends RoleRequest {
  readonly cluster: Cluster;
  /** Facts about the surrounding graph that lowering needs; left out where no operand is a weight and every result is read. */
  readonly context?: OperatorContext;
  /** Axes that heavy operators must use where they legally can. */
  readonly pinned: ReadonlySet<string>;
  /** Whether the operator does a good part of the graph's work, whatever its family. */
  readonly heavy: boolean;
  /** Factors that readers see as several pieces (piece-hints.ts). */
  readonly hints: ReadonlyMap<string, readonly SeenPiece[]>;
  /**
   * Whether its result is rounded to quantised numbers: the ranks' partial sums, added in another order, may round to another.
   */
  readonly rounded?: boolean;
  /** The user's pins on the operator. */
  readonly pins?: readonly OperatorPin[];
  /** Merges layouts on this mesh; operators of one search may share it. */
  readonly merged?: (layout: Layout) => Layout;
}

/** Axes on factors, some of which may be seen as pieces. */
interface AxisPlacement {
  readonly axes: FactorSubAxes;
  readonly pieces?: FactorPieces;
}

/** Enumerates and prices an operator's strategies; the replicated one comes first where it is allowed. */
export function candidatesOf(request: CandidateRequest): CandidateSet {
  const { operator, mesh } = request;
  const entry = operatorEntry(operator);
  const rule = entry.rule(operator);
  const linear = entry.linear(operator);
  const legal = (strategy: Strategy) => checkStrategy(rule, strategy, linear, mesh) === null;
  const allPlacements = (asked: CandidateRequest) =>
    [...plainPlacements(asked, entry, rule), ...piecePlacements(asked, entry, rule)].filter((placement) =>
      legal(plainly(placement)),
    );
  const strategiesOf = (placements: readonly AxisPlacement[], asked: CandidateRequest) =>
    placements
      .flatMap((placement) => partialOperandVariants(placement, asked, linear))
      .flatMap((strategy) => pendingVariants(strategy, asked, refineRule(rule, strategy.pieces)))
      .filter(legal)
      .filter((strategy) => (request.pins ?? []).every((pin) => satisfies(pin, strategy, rule, linear, mesh)));
  const all = allPlacements(request);
  const { placements, unused } = enforcePins(all, request, entry, rule);
  const free: CandidateRequest = { ...request, axes: 'free' };
  // Pins may require what roles exclude: then the search widens step by step.
  const [attempt, attempted] = firstFilled([
    () => strategiesOf(placements, request),
    ...((request.pins ?? []).length === 0
      ? []
      : [
          () => strategiesOf(all, request),
          () => strategiesOf(allPlacements(free), free),
          () =>
            strategiesOf(
              everyPlacement(free, entry, rule).filter((placement) => legal(plainly(placement))),
              free,
            ),
        ]),
  ]);
  const priced = pricedStrategies(attempted, request);
  if (priced.strategies.length === 0)
    throw unsatisfiable(
      `${operator.op} ${operator.name}`,
      sourcesOf(request.pins),
      `its rule is ${rule.text}, and no strategy on this mesh satisfies them`,
    );
  return { ...priced, unused, liftsRoles: request.axes === 'roles' && attempt > 1 };
}

/** Candidates of an operator that recomputes another, under that operator's strategies, priced in its own context. */
export function followingCandidates({ strategies }: CandidateSet, request: CandidateRequest): CandidateSet {
  const priced = pricedStrategies(strategies, request);
  if (priced.strategies.length < strategies.length)
    throw new Error(`${request.operator.name} cannot follow the strategies of the operator that it recomputes`);
  return { ...priced, strategies, unused: [], liftsRoles: false };
}

/** The strategies of an operator that can be lowered, with their costs. */
function pricedStrategies(
  all: readonly Strategy[],
  { operator, mesh, cluster, context, merged: only = mergedOnce(mesh) }: CandidateRequest,
): Omit<CandidateSet, 'unused' | 'liftsRoles'> {
  const merged = (layout: Layout | null) => layout && only(layout);
  const strategies: Strategy[] = [];
  const costs: number[] = [];
  const operands: (readonly (Layout | null)[])[] = [];
  const results: (readonly (Layout | null)[])[] = [];
  for (const strategy of all) {
    const lowered = lowerIfLegal(operator, strategy, mesh, context);
    if (!lowered) continue;
    strategies.push(strategy);
    costs.push(priceFragment(lowered.fragment, cluster));
    operands.push(lowered.operandLayouts.map(merged));
    results.push(lowered.resultLayouts.map(merged));
  }
  return { strategies, costs: Float64Array.from(costs), operands, results };
}

function sourcesOf(pins: readonly OperatorPin[] = []): readonly PinSource[] {
  return pins.map(({ source }) => source);
}

/** The first attempt that finds something, by number, and what it finds. */
function firstFilled<Item>(attempts: readonly (() => readonly Item[])[]): readonly [number, readonly Item[]] {
  for (const [number, attempt] of attempts.entries()) {
    const found = attempt();
    if (found.length > 0) return [number, found];
  }
  return [0, []];
}

/** Kinds of factors over which ranks add in another order than one device. */
const REORDERED: ReadonlySet<Factor['kind']> = new Set(['contracting', 'expanded']);

/** Every sub-axis on any factor or on none, in the mesh's order: for pins that split an axis in ways the search would not. */
function everyPlacement(
  { mesh, operator, pins }: CandidateRequest,
  entry: OperatorEntry,
  rule: FactorRule,
): readonly AxisPlacement[] {
  const usable = [...rule.factors.values()].filter((factor) => shardable(factor, entry));
  let all: readonly FactorSubAxes[] = [{}];
  for (const { name, size } of subAxes(mesh)) {
    all = all.flatMap((axes) => [
      axes,
      ...usable
        .filter((factor) => factor.size % (axesSize(mesh, axes[factor.name] ?? []) * size) === 0)
        .map((factor): FactorSubAxes => ({ ...axes, [factor.name]: [...(axes[factor.name] ?? []), name] })),
    ]);
    if (all.length > EVERY_LIMIT)
      throw unsatisfiable(`${operator.op} ${operator.name}`, sourcesOf(pins), 'it has too many strategies to check');
  }
  return all.map((axes): AxisPlacement => ({ axes }));
}

/** Ways to lay sub-axes on factors that are looked through for a pin. */
const EVERY_LIMIT = 200_000;

/** Placements on the operator's own factors, and on the pieces of those that hold a sequence further in. */
function plainPlacements(request: CandidateRequest, entry: OperatorEntry, rule: FactorRule): readonly AxisPlacement[] {
  const { digits } = request.families;
  if (Object.keys(digits).length === 0) return possibleAxes(request, entry, rule).map((axes) => ({ axes }));
  return possibleAxes(request, entry, refineRule(rule, digits))
    .filter((axes) => Object.keys(axes).every((name) => rule.factors.get(name)?.kind !== 'expanded'))
    .map((axes) => ({ axes, pieces: digits }));
}

/** All ways to lay the mesh's axes on the operator's factors. */
function possibleAxes(request: CandidateRequest, entry: OperatorEntry, rule: FactorRule): readonly FactorSubAxes[] {
  const { mesh, rounded } = request;
  const usable = [...rule.factors.values()].filter(
    (factor) => shardable(factor, entry) && !(rounded && REORDERED.has(factor.kind)),
  );
  return axisParts(mesh, canTakeExperts(usable, request))
    .filter((part) => part.size > 1)
    .map((part) => {
      const { factors, must } = factorsFor(part, usable, request, rule);
      return axisPlacements(part, factors, request, rule, must);
    })
    .reduce<readonly FactorSubAxes[]>(
      (all, next) => all.flatMap((axes) => next.flatMap((more) => joins(axes, more, request))),
      [{}],
    )
    .filter((axes) =>
      Object.entries(axes).every(([name, names]) => {
        const factor = rule.factors.get(name);
        return factor !== undefined && canBeCut(factor, axesSize(mesh, names), request, rule);
      }),
    );
}

/**
 * Placements inside the pieces that readers see: fused q, k and v are (3 | 64), and tp cuts each of the three. One factor
 * is seen as pieces at a time.
 */
function piecePlacements(request: CandidateRequest, entry: OperatorEntry, rule: FactorRule): readonly AxisPlacement[] {
  const variants = new Map<string, SeenCut & { readonly factor: string }>();
  for (const [factor, seen] of request.hints) {
    if (request.families.factors.batch.has(factor) || request.families.digits[factor]) continue;
    for (const axis of request.mesh.axes) {
      for (const found of axis.size > 1 ? [innerPieces(seen, axis.size), paddedPieces(seen, axis.size)] : []) {
        if (found) variants.set(`${factor} ${found.sizes.join(' ')} ${found.cut}`, { factor, ...found });
      }
    }
  }
  return [...variants.values()].flatMap(({ factor, sizes, cut }) => {
    const pieces: FactorPieces = { ...request.families.digits, [factor]: sizes };
    if (piecesProblem(rule, pieces) !== null) return [];
    const names = sizes.map((_, index) => pieceName(factor, index));
    return (
      possibleAxes(request, entry, refineRule(rule, pieces))
        .filter((axes) => names.every((name, index) => (axes[name]?.length ?? 0) > 0 === (index === cut)))
        // An expansion names the dimensions by the rule's own factors.
        .filter((axes) => Object.keys(axes).every((name) => rule.factors.get(name)?.kind !== 'expanded'))
        .map((axes): AxisPlacement => ({ axes, pieces }))
    );
  });
}

function shardable(factor: Factor, entry: OperatorEntry): boolean {
  if (factor.size <= 1) return false;
  switch (factor.kind) {
    case 'whole':
    case 'halo':
      return false;
    case 'expanded':
      return entry.expansion !== undefined;
    case 'indexed':
      return entry.indexed !== undefined;
    case 'mask':
      return entry.indexInput !== undefined;
    default:
      return true;
  }
}

/** One axis on none, on one factor, or cut in two: between two factors, or one part idle. */
function axisPlacements(
  axis: MeshAxis,
  factors: readonly Factor[],
  request: CandidateRequest,
  rule: FactorRule,
  used: boolean,
): readonly FactorSubAxes[] {
  const { mesh, hints } = request;
  const names = axis.subAxes.map((sub) => sub.name);
  const fits = (factor: Factor, axes: readonly SubAxis[]) => factor.size % axesSize(mesh, axes) === 0;
  const streaming = streamingPlacements(axis, factors, request, rule);
  const { streams } = axisRole(axis.name, request.roles);
  if (streaming.length > 0 && streams === 'always') return streaming;
  const result: FactorSubAxes[] = used ? [...streaming] : [{}, ...streaming];
  for (const factor of factors) if (canBeCut(factor, axis.size, request, rule)) result.push({ [factor.name]: names });
  for (const major of factors) {
    for (const cut of factorCuts(major, names, mesh, hints)) {
      const [first, rest] = [names.slice(0, cut), names.slice(cut)];
      if (!used) result.push({ [major.name]: first });
      for (const minor of factors) {
        if (minor !== major && fits(minor, rest)) result.push({ [major.name]: first, [minor.name]: rest });
      }
    }
  }
  return result;
}

/** The axis on a factor that streams and, at once, on another of its family. */
function streamingPlacements(
  { name, size, subAxes: own }: MeshAxis,
  factors: readonly Factor[],
  request: CandidateRequest,
  rule: FactorRule,
): readonly FactorSubAxes[] {
  const { roles, axes, families } = request;
  if (axes === 'free' || axisRole(name, roles).streams === 'never') return [];
  const names = own.map((sub) => sub.name);
  const sequences = factors.filter(
    (factor) => families.factors.sequence.has(factor.name) && canBeCut(factor, size, request, rule),
  );
  return sequences
    .filter(({ name: streamed }) => rule.factors.get(streamed)?.streams)
    .flatMap(({ name: streamed }) =>
      sequences
        .filter((beside) => beside.name !== streamed)
        .map((beside): FactorSubAxes => ({ [beside.name]: names, [streamed]: names })),
    );
}

/**
 * Where an axis may be split so that its first part shards a factor: only where the factor cannot take all of it, and then as
 * late as it can. The limit is the piece that its readers see at its major end: two key heads on tp 4 take tp.0, and are
 * replicated over tp.1 rather than sharded into half heads.
 */
function factorCuts(
  factor: Factor,
  names: readonly SubAxis[],
  mesh: Mesh,
  hints: CandidateRequest['hints'],
): readonly number[] {
  const size = majorSize(factor, hints);
  if (size % axesSize(mesh, names) === 0) return [];
  const fits = (cut: number) => size % axesSize(mesh, names.slice(0, cut)) === 0;
  const cuts = names.map((_, index) => index).filter((cut) => cut > 0 && fits(cut));
  return cuts.slice(-1);
}

/** Size of the first piece that readers see of a factor, if it can be cut at all; else the factor's own. */
function majorSize(factor: Factor, hints: CandidateRequest['hints']): number {
  const first = hints.get(factor.name)?.[0];
  return first && !first.whole && first.size > 1 ? first.size : factor.size;
}

/**
 * Placements of two axes together. Where both shard heads of attention, either may be the outer one: heads that tp shards
 * already are exchanged over sp within each shard only.
 */
function joins(
  a: FactorSubAxes,
  b: FactorSubAxes,
  { mesh, families, roles, axes }: CandidateRequest,
): readonly FactorSubAxes[] {
  const both = Object.keys(b).some((factor) => families.factors.heads.has(factor) && a[factor] !== undefined);
  const isEither = both && axes === 'roles' && mesh.axes.some(({ name }) => takesHeads(axisRole(name, roles)));
  return isEither ? [join(a, b), join(b, a)] : [join(a, b)];
}

function takesHeads({ takes }: AxisRole): boolean {
  return takes.attention?.includes('heads') ?? false;
}

function join(a: FactorSubAxes, b: FactorSubAxes): FactorSubAxes {
  const result: Record<string, readonly SubAxis[]> = { ...a };
  for (const [factor, axes] of Object.entries(b)) result[factor] = [...(result[factor] ?? []), ...axes];
  return result;
}

/** Heavy operators use every pinned axis that some placement can use. */
function enforcePins(
  all: readonly AxisPlacement[],
  request: CandidateRequest,
  entry: OperatorEntry,
  rule: FactorRule,
): { readonly placements: readonly AxisPlacement[]; readonly unused: readonly string[] } {
  if (!HEAVY.has(entry.family) && !request.heavy) return { placements: all, unused: [] };
  let placements = all;
  const unused: string[] = [];
  for (const axis of request.mesh.axes) {
    if (axis.size === 1 || !request.pinned.has(axis.name)) continue;
    const names = axis.subAxes.map((sub) => sub.name);
    const using = placements.filter(({ axes }) => {
      const used = new Set(Object.values(axes).flat());
      return names.every((name) => used.has(name)) || isLimitedByHeads(axes, names, request, rule);
    });
    if (using.length > 0) placements = using;
    else unused.push(`${axis.name} ${axis.size} is not used: ${obstacles(rule, axis, request)}`);
  }
  return { placements, unused };
}

/** Whether part of an axis is idle because a factor takes as much of it as the heads that its readers see allow. */
function isLimitedByHeads(
  axes: FactorSubAxes,
  names: readonly SubAxis[],
  { mesh, hints }: CandidateRequest,
  rule: FactorRule,
): boolean {
  return Object.entries(axes).some(([name, taken]) => {
    const factor = rule.factors.get(name);
    if (!factor || !hints.has(name)) return false;
    return factorCuts(factor, names, mesh, hints).some((cut) => taken.join() === names.slice(0, cut).join());
  });
}

/** Why each factor cannot take an axis. */
function obstacles(rule: FactorRule, axis: MeshAxis, request: CandidateRequest): string {
  const { leaves } = axisRole(axis.name, request.roles);
  const reasons = [...rule.factors.values()]
    .filter((factor) => factor.size > 1)
    .map((factor) => {
      if (factor.kind === 'whole' || factor.kind === 'halo') return `factor ${factor.name} may not be sharded`;
      if (factor.size % axis.size !== 0)
        return `factor ${factor.name} of size ${factor.size} is not divisible by ${axis.size}`;
      const border = borderProblem(rule, factor.name, axis.size);
      if (border) return border;
      const isOthers = request.axes === 'roles' && isLeft(factor.name, leaves, request);
      if (!isOthers) return `factor ${factor.name} is taken`;
      const whose = request.families.factors.batch.has(factor.name)
        ? "the batch, which is dp's"
        : 'the sequence, which --tp-sequence off replicates';
      return `factor ${factor.name} is ${whose}`;
    });
  return reasons.length > 0 ? reasons.join(', ') : 'the operator has no factor of size above 1';
}

/** A placement with nothing passed through and nothing reduced. */
function plainly(placement: AxisPlacement): Strategy {
  return { ...placement, partialOperands: null, pending: { kind: 'none' } };
}

/**
 * The placement alone, and with partial sums passed through over axes that shard no factor; of an axis that experts are spread
 * over, over the part beside them: their gradients are partial over it.
 */
function partialOperandVariants(
  placement: AxisPlacement,
  request: CandidateRequest,
  linear: readonly (readonly number[])[],
): readonly Strategy[] {
  const used = new Set(Object.values(placement.axes).flat());
  const unused = axisParts(request.mesh, true).filter(
    ({ size, subAxes }) => size > 1 && subAxes.every(({ name }) => !used.has(name)),
  );
  const idle = request.mesh.axes.flatMap(({ name }) => {
    const own = unused.filter(({ axis }) => axis === name);
    return own.length > 0 ? [own.flatMap((part) => part.subAxes.map((sub) => sub.name))] : [];
  });
  const plain = plainly(placement);
  const sets = linear
    .map((operands, set) => ({ operands: operands.filter((operand) => request.operator.inputs[operand] != null), set }))
    .filter(({ operands }) => operands.some((operand) => !request.weights[operand]));
  const idleGroups = idle.length > 1 ? [...idle, idle.flat()] : idle;
  return [
    plain,
    ...sets.flatMap(({ set }) => idleGroups.map((axes): Strategy => ({ ...plain, partialOperands: { set, axes } }))),
  ];
}

/** Variants with partial sums left, reduced or scattered. Maxima and minima are always reduced: nothing passes them through. */
function pendingVariants(strategy: Strategy, request: CandidateRequest, rule: FactorRule): readonly Strategy[] {
  const { pieces: _, ...unrefined } = strategy;
  const pending = pendingPartial(rule, unrefined);
  if (pending.length === 0) return [strategy];
  const reduced: PendingReduction = { kind: 'all-reduce' };
  if (pending.some(({ reduction }) => reduction !== 'sum')) return [{ ...strategy, pending: reduced }];
  const pendingAxes = request.mesh.axes.filter(({ subAxes: own }) =>
    own.some(({ name }) => pending.some(({ axis }) => axis === name)),
  );
  const leaves = request.axes === 'free' ? [] : pendingAxes.flatMap(({ name }) => axisRole(name, request.roles).leaves);
  const targets = [...rule.factors.values()].filter(
    (factor) => factor.size > 1 && !isLeft(factor.name, leaves, request),
  );
  return [
    strategy,
    { ...strategy, pending: reduced },
    ...targets.map((factor): Strategy => ({ ...strategy, pending: { kind: 'scatter', factor: factor.name } })),
  ];
}
