/**
 * @file The strategy of an operator, from the final cuts of its tensors.
 *
 * Sums of an operator are reduced at once: by an all-reduce, or scattered onto the factor on which its result has just those
 * axes. Partial sums are left, and passed through, only where a pin asks for them.
 */
import type { Mesh, SubAxis } from '../mesh.js';
import { satisfies } from '../pin.js';
import {
  checkStrategy,
  type FactorAxes,
  type PendingReduction,
  pendingPartial,
  REPLICATED,
  type Strategy,
} from '../strategy.js';
import { axesOfCut, type Cut, type CutItem, placementOf, restrictCut, splitCut, UNCUT } from './cut.js';
import type { OperatorDemands } from './demands.js';
import type { CellFactor, OperatorCells } from './operator-cells.js';
import { pinCannotBeKept } from './refusals.js';
import { type ResolvedCuts, type ResolveOptions, resolveCuts } from './resolve.js';

/** @throws AutoparError `pin-cannot-be-kept` where no strategy in reach satisfies all pins of the operator */
export function chooseStrategy(cells: OperatorCells, resolved: ResolvedCuts, options: ResolveOptions): Strategy {
  const { demands, mesh } = options;
  if (!demands && resolved.causes.size === 0) return REPLICATED;
  const { rule, entry, operator } = cells;
  const linear = demands || cells.factors.some(({ kind }) => kind !== 'pass') ? entry.linear(operator) : [];
  const legal = (strategy: Strategy) => checkStrategy(rule, strategy, linear, mesh) === null;
  for (const cuts of attempts(cells, resolved, options)) {
    const placed = placementsOf(cells, cuts, mesh);
    for (const strategy of variants(placed, cells, cuts, demands, linear.length)) {
      if (!legal(strategy)) continue;
      if (!demands || demands.pins.every((pin) => satisfies(pin, strategy, rule, linear, mesh))) return strategy;
    }
  }
  if (demands && demands.pins.length > 0) {
    const sources = demands.pins.map(({ source }) => source);
    const reason =
      `its rule is ${rule.text}, and no strategy in reach on this mesh satisfies ` +
      `${sources.length > 1 ? 'them' : 'it'}`;
    throw pinCannotBeKept(`${operator.op} ${cells.node.name}`, sources, reason);
  }
  return REPLICATED;
}

/** Cuts of factors, best first: all that was propagated; then without those that a pinned result or legality forbids. */
function* attempts(cells: OperatorCells, { cuts }: ResolvedCuts, options: ResolveOptions): Generator<readonly Cut[]> {
  yield cuts;
  const { demands } = options;
  const pinned = new Set([...(demands?.results.values() ?? [])].flatMap(axesOfCut));
  if (pinned.size > 0) yield resolveCuts(cells, { ...options, unsummed: pinned }).cuts;
  // One sharded factor fewer at a time: in the end nothing is sharded, which is legal.
  const fixed = demands?.fixed;
  let rest = cuts;
  for (let factor = cuts.length - 1; factor >= 0; factor--) {
    if ((rest[factor] ?? UNCUT).length === 0 || fixed?.has(factor)) continue;
    rest = rest.map((cut, index) => (index === factor ? UNCUT : cut));
    yield rest;
  }
}

function placementsOf(cells: OperatorCells, cuts: readonly Cut[], mesh: Mesh): FactorAxes {
  const expanded = cells.factors.some(({ kind }, at) => kind === 'expanded' && (cuts[at] ?? UNCUT).length > 0);
  const axes: Record<string, readonly SubAxis[]> = {};
  const pieces: Record<string, readonly number[]> = {};
  cells.factors.forEach((factor, at) => {
    const whole = cuts[at] ?? UNCUT;
    if (whole.length === 0) return;
    const inPieces = !expanded && (factor.kind === 'pass' || factor.kind === 'contracting');
    const placement = placementOf(factor.name, inPieces ? whole : majorRun(whole, factor), factor.size, mesh);
    Object.assign(axes, placement.axes);
    if (placement.sizes) pieces[factor.name] = placement.sizes;
  });
  return Object.keys(pieces).length > 0 ? { axes, pieces } : { axes };
}

/** The items that shard a factor from its major end without a gap: all that can be written without pieces. */
function majorRun(cut: Cut, { size }: CellFactor): Cut {
  let end = size;
  return restrictCut(cut, (item: CutItem) => {
    const joins = item.stride * item.size === end;
    if (joins) end = item.stride;
    return joins;
  });
}

/** Strategies with the possible treatments of pending reductions and partial operands, most wanted first. */
function* variants(
  placed: FactorAxes,
  cells: OperatorCells,
  cuts: readonly Cut[],
  demands: OperatorDemands | undefined,
  linearSets: number,
): Generator<Strategy> {
  const plain: Strategy = { ...placed, partialOperands: null, pending: { kind: 'none' } };
  const pending = cells.contracts ? pendingPartial(cells.rule, plain).map(({ axis }) => axis) : [];
  if (pending.length === 0) yield plain;
  else {
    const scatter = scatterOf(cells, cuts, pending);
    if (scatter) yield { ...plain, pending: scatter };
    yield { ...plain, pending: { kind: 'all-reduce' } };
  }
  if (!demands || demands.pins.length === 0) return;
  // Pins may ask for partial sums: left by the factors that are summed over, or carried by a linear operator.
  if (pending.length > 0) {
    for (const { name } of cells.factors) yield { ...plain, pending: { kind: 'scatter', factor: name } };
    yield plain;
  }
  const partial = partialAxes(demands).filter((axis) => !Object.values(placed.axes).flat().includes(axis));
  if (partial.length === 0) return;
  for (let set = 0; set < linearSets; set++) {
    const partialOperands = { set, axes: partial };
    yield { ...plain, partialOperands };
    if (pending.length > 0) yield { ...plain, partialOperands, pending: { kind: 'all-reduce' } };
  }
}

/** Axes over which pinned operands or results are partial. */
function partialAxes({ pins }: OperatorDemands): readonly SubAxis[] {
  const layouts = pins.flatMap((pin) => [...(pin.operands ?? []), ...(pin.results ?? [])]);
  return [
    ...new Set(
      layouts.flatMap((demand) => (demand?.kind === 'layout' ? demand.layout.partial.map(({ axis }) => axis) : [])),
    ),
  ];
}

/** The factor on which the result has just the axes that are pending, after those that the factor has anyway. */
function scatterOf(cells: OperatorCells, cuts: readonly Cut[], pending: readonly SubAxis[]): PendingReduction | null {
  const result = cells.sides.find((side) => side.kind === 'result');
  const tensor = result?.cuts;
  if (!result || !tensor) return null;
  const wanted = [...pending].sort().join();
  for (const [at, dimension] of result.dims.entries()) {
    const parts = splitCut(tensor.cuts[at] ?? UNCUT, dimension.sizes);
    for (const [index, factor] of dimension.factors.entries()) {
      const own = axesOfCut(cuts[factor] ?? UNCUT);
      const here = axesOfCut(parts[index] ?? UNCUT);
      const name = cells.factors[factor]?.name;
      if (
        name !== undefined &&
        here.slice(0, own.length).join() === own.join() &&
        here.slice(own.length).join() === wanted
      )
        return { kind: 'scatter', factor: name };
    }
  }
  return null;
}
