/**
 * @file One operator's step: the contributions of its tensors to each factor are joined into one cut per factor.
 *
 *     contributions     x has m on dp, w has n on tp and k on dp          (m·k, k·n)
 *     in order          rounds first, then operands before results of a sum, then larger tensors before smaller ones
 *     joined            m on dp, n on tp; k gets nothing, for dp is taken
 *
 * Every contribution is taken as far as it fits: its longest prefix whose axes no other factor has, that the factor may
 * take, and that shards nothing twice. So where tensors agree the longest common layout results, and where they do not, the
 * layout of the larger tensor wins. Pins come first and let nothing else onto their factors.
 */
import { axesSize, type Mesh, type SubAxis } from '../mesh.js';
import type { PinSource } from '../pin.js';
import { axesOfCut, type Cut, type CutItem, holds, mergeCuts, resizedCut, splitCut, UNCUT } from './cut.js';
import type { OperatorDemands } from './demands.js';
import { type CellSide, mayTake, type OperatorCells } from './operator-cells.js';
import type { Cause } from './reasons.js';

export interface ResolveOptions {
  readonly mesh: Mesh;
  readonly demands: OperatorDemands | undefined;
  /** The current round: pins of later ones limit, but contribute nothing yet. */
  readonly round: number;
  /** Whether the layouts of a sum's results contribute. */
  readonly backward: boolean;
  /** Axes that may not shard factors that are summed over. */
  readonly unsummed?: ReadonlySet<SubAxis>;
}

export interface ResolvedCuts {
  /** By number of the factor. */
  readonly cuts: readonly Cut[];
  /** By axis: the cause of its place on its factor. */
  readonly causes: ReadonlyMap<SubAxis, Cause>;
  /** The earliest round that any of it came from, by axis. */
  readonly rounds: ReadonlyMap<SubAxis, number>;
}

/** No cuts have arrived. */
const NOTHING: ResolvedCuts = { cuts: [], causes: new Map(), rounds: new Map() };

interface Contribution {
  readonly factor: number;
  readonly cut: Cut;
  readonly side: CellSide;
  readonly dimension: number;
  readonly round: number;
  readonly late: boolean;
}

export function resolveCuts(cells: OperatorCells, options: ResolveOptions): ResolvedCuts {
  const { mesh, demands, round, unsummed } = options;
  const found = contributions(cells, options);
  if (found.length === 0 && !demands) return NOTHING;
  const cuts: Cut[] = cells.factors.map(() => UNCUT);
  const causes = new Map<SubAxis, Cause>();
  const rounds = new Map<SubAxis, number>();
  /** By axis: the factor that has it, or is to have it. */
  const holder = new Map<SubAxis, number>();
  for (const [factor, { cut, source, round: own }] of demands?.fixed ?? []) {
    for (const { axes } of cut) for (const axis of axes) holder.set(axis, factor);
    if (own > round) continue;
    cuts[factor] = cut;
    for (const { axes } of cut)
      for (const axis of axes) {
        causes.set(axis, pinned(source));
        rounds.set(axis, own);
      }
  }
  for (const { factor, cut, side, dimension } of found) {
    const own = cells.factors[factor];
    if (!own) continue;
    const limit = limitOf(demands, factor);
    const within = countLimit(demands, factor, cuts, mesh);
    const accept = (item: CutItem) =>
      item.axes.every((axis) => {
        const other = holder.get(axis);
        return (
          (other === undefined || other === factor) &&
          !demands?.without.has(axis) &&
          !(own.contracting && unsummed?.has(axis))
        );
      }) &&
      (limit === null || holds(limit, item)) &&
      mayTake(cells, own, item, mesh) &&
      within(item);
    const before = cuts[factor] ?? UNCUT;
    const after = mergeCuts(before, cut, own.size, accept);
    if (after === before) continue;
    cuts[factor] = after;
    for (const { axes } of after)
      for (const axis of axes) {
        holder.set(axis, factor);
        if (causes.has(axis)) continue;
        causes.set(axis, { kind: 'tensor', tensor: side.tensor, dimension });
        rounds.set(axis, side.cuts?.rounds.get(axis) ?? round);
      }
  }
  return { cuts, causes, rounds };
}

/** The contributions of tensors to factors, those that win first. */
function contributions(cells: OperatorCells, { backward, mesh }: ResolveOptions): readonly Contribution[] {
  const found: Contribution[] = [];
  for (const side of cells.sides) {
    const late = cells.contracts && side.kind === 'result';
    if (late && !backward) continue;
    const tensor = side.cuts;
    if (!tensor || tensor.rounds.size === 0) continue;
    side.dims.forEach((dimension, at) => {
      const cut = tensor.cuts[at] ?? UNCUT;
      if (cut.length === 0 || dimension.factors.length === 0) return;
      splitCut(cut, dimension.sizes).forEach((part, index) => {
        const factor = dimension.factors[index] ?? -1;
        const own = cells.factors[factor];
        if (part.length === 0 || !own?.usable || own.kind === 'blocked') return;
        const rounds = part.flatMap(({ axes }) => axes.map((axis) => tensor.rounds.get(axis) ?? 0));
        const seen = resizedCut(part, dimension.sizes[index] ?? 1, own.size, mesh);
        if (seen.length > 0) found.push({ factor, cut: seen, side, dimension: at, round: Math.min(...rounds), late });
      });
    });
  }
  if (found.length < 2) return found;
  return found.sort(
    (a, b) => a.round - b.round || Number(a.late) - Number(b.late) || b.side.elements - a.side.elements,
  );
}

/** The cut that limits a factor where pins give one. */
function limitOf(demands: OperatorDemands | undefined, factor: number): Cut | null {
  return demands?.fixed.get(factor)?.cut ?? demands?.results.get(factor) ?? null;
}

/** Whether a further item keeps the parts a divisor of the counts that pins ask for and whose axes are not chosen yet. */
function countLimit(
  demands: OperatorDemands | undefined,
  factor: number,
  cuts: readonly Cut[],
  mesh: Mesh,
): (item: CutItem) => boolean {
  const counts = demands?.counts.filter(({ factors }) => factors.includes(factor)) ?? [];
  if (counts.length === 0) return () => true;
  const made = counts.map(({ factors }) =>
    axesSize(
      mesh,
      factors.flatMap((at) => axesOfCut(cuts[at] ?? UNCUT)),
    ),
  );
  return (item) => {
    const more = axesSize(mesh, item.axes);
    const fits = counts.every(({ parts }, index) => parts % ((made[index] ?? 1) * more) === 0);
    if (fits) for (let index = 0; index < made.length; index++) made[index] = (made[index] ?? 1) * more;
    return fits;
  };
}

function pinned(source: PinSource): Cause {
  return { kind: 'pin', source };
}
