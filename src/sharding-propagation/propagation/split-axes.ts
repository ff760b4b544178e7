/**
 * @file Axes for pins that only count parts, as MindSpore's split strategies do: ((4, 2), (2, 1)) gives the numbers of parts,
 * not the axes.
 *
 * Axes that propagation has put on a factor by then stay, where they divide the count. The rest is taken from the axes
 * that the operator does not use yet, in the mesh's order; for factors that are not the batch, dp comes last.
 */
import { borderProblem } from '../halo.js';
import { axesSize, type Mesh, type SubAxis, subAxes } from '../mesh.js';
import type { PinSource } from '../pin.js';
import { dataAxes } from '../roles.js';
import type { CountedFactors } from './claims.js';
import { axesOfCut, type Cut, plainCut, UNCUT } from './cut.js';
import { mayTake, type OperatorCells } from './operator-cells.js';
import { pinCannotBeKept } from './refusals.js';

export interface SplitProblem {
  readonly cells: OperatorCells;
  readonly counts: readonly (CountedFactors & { readonly source: PinSource })[];
  /** The cut of each factor so far. */
  readonly cuts: readonly Cut[];
  /** Factors whose cuts pins have fixed. */
  readonly fixed: ReadonlySet<number>;
  readonly without: ReadonlySet<SubAxis>;
  /** Factors that are the batch. */
  readonly batch: ReadonlySet<string>;
  readonly mesh: Mesh;
}

/** Per counted factor its cut. @throws AutoparError `pin-cannot-be-kept` where the mesh's axes do not make the counts */
export function splitCuts(question: SplitProblem): ReadonlyMap<number, Cut> {
  const { cells, counts, fixed, cuts, mesh, without } = question;
  const parts = partsByFactor(question);
  const chosen = new Map<number, Cut>();
  const kept = new Map<number, Cut>();
  for (const [factor, count] of parts) {
    const present = cuts[factor] ?? UNCUT;
    kept.set(factor, count % axesSize(mesh, axesOfCut(present)) === 0 ? present : UNCUT);
  }
  const used = new Set<SubAxis>([
    ...without,
    ...[...fixed].flatMap((factor) => axesOfCut(cuts[factor] ?? UNCUT)),
    ...[...kept.values()].flatMap(axesOfCut),
  ]);
  for (const [factor, count] of parts) {
    const own = cells.factors[factor];
    if (!own) continue;
    const present = kept.get(factor) ?? UNCUT;
    const axes = [...axesOfCut(present)];
    let rest = count / axesSize(mesh, axes);
    for (const axis of preferredAxes(question, own.name)) {
      if (used.has(axis.name) || rest % axis.size !== 0) continue;
      axes.push(axis.name);
      used.add(axis.name);
      rest /= axis.size;
    }
    const cut = axes.length === axesOfCut(present).length ? present : plainCut(axes, own.size, mesh);
    if (rest !== 1)
      throw refused(question, `factor ${own.name} cannot be in ${count} parts: the axes that are left make none`);
    const border = borderProblem(cells.rule, own.name, axesSize(mesh, axes));
    if (border !== null) throw refused(question, border);
    if (!cut.every((item) => mayTake(cells, own, item, mesh)))
      throw refused(question, `factor ${own.name} of size ${own.size} cannot be in ${count} parts`);
    chosen.set(factor, cut);
  }
  for (const { factors, parts: count, result } of counts) {
    if (result) continue;
    const made = factors.map((factor) => chosen.get(factor) ?? cuts[factor] ?? UNCUT);
    if (axesSize(mesh, made.flatMap(axesOfCut)) !== count)
      throw refused(
        question,
        `${factors.map((factor) => cells.factors[factor]?.name).join(' and ')} cannot be in ${count} parts`,
      );
  }
  return chosen;
}

/** A factor's cut after a scatter adds the axes that are summed over, where that gives a sum's result the parts asked for. */
export function scatteredCut(
  cells: OperatorCells,
  { factors, parts }: CountedFactors,
  cutOf: (factor: number) => Cut,
  mesh: Mesh,
): Cut {
  const [factor = -1, ...others] = factors;
  const own = cells.factors[factor];
  if (!own || others.length > 0) return UNCUT;
  const pending = cells.factors.flatMap(({ contracting }, at) => (contracting ? axesOfCut(cutOf(at)) : [])).sort();
  const axes = [...axesOfCut(cutOf(factor)), ...pending];
  return axesSize(mesh, axes) === parts && own.size % parts === 0 ? plainCut(axes, own.size, mesh) : UNCUT;
}

/** Parts of each factor that is not fixed: a dimension's go to its major factors first. */
function partsByFactor({ cells, counts, fixed, cuts, mesh }: SplitProblem): ReadonlyMap<number, number> {
  const parts = new Map<number, number>();
  // A factor alone in a dimension, or in one that stays whole, is known at once; results of sums give the rest.
  const order = ({ result, ...count }: CountedFactors) => (result ? 2 : isDetermined(count) ? 0 : 1);
  const determinedFirst = [...counts].sort((a, b) => order(a) - order(b));
  for (const count of determinedFirst) {
    let rest = count.parts;
    for (const factor of count.factors) {
      const own = cells.factors[factor];
      if (!own) continue;
      const known = fixed.has(factor) ? axesSize(mesh, axesOfCut(cuts[factor] ?? UNCUT)) : parts.get(factor);
      const only = count.factors.length === 1;
      const taken = known ?? (own.usable || only ? (only ? rest : greatestDivisor(rest, own.size)) : 1);
      if (!fixed.has(factor)) parts.set(factor, taken);
      rest = Math.max(1, Math.floor(rest / taken));
    }
  }
  return parts;
}

function isDetermined({ factors, parts }: Pick<CountedFactors, 'factors' | 'parts'>): boolean {
  return factors.length === 1 || parts === 1;
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b);
}

function preferredAxes(
  { mesh, batch }: SplitProblem,
  factor: string,
): readonly { readonly name: SubAxis; readonly size: number }[] {
  const all = subAxes(mesh);
  if (batch.has(factor)) return all;
  const data = new Set(dataAxes(mesh).flatMap((axis) => axis.subAxes.map((sub) => sub.name)));
  return [...all.filter((axis) => !data.has(axis.name)), ...all.filter((axis) => data.has(axis.name))];
}

function refused({ cells, counts }: SplitProblem, problem: string) {
  const sources = [...new Set(counts.map(({ source }) => source))];
  return pinCannotBeKept(
    `${cells.operator.op} ${cells.node.name}`,
    sources,
    `its rule is ${cells.rule.text}, and ${problem}`,
  );
}
