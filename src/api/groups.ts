/**
 * @file groups: the process groups of ranks for given degrees.
 *
 * The mesh is pp × dp × sp × tp from outermost to innermost; ranks are numbered with tp fastest. `ep` is not an axis: it uses
 * the fastest sub-axes of dp · sp whose product is its degree, as in programs. `mp` is all ranks that hold one copy of the model.
 */
import type { Degrees } from '../cost-model/step/configuration.js';
import { badOption, usageError } from '../ir/error.js';
import { AXIS_ORDER, deviceCount, groupsOn, indexOn, type Mesh, makeMesh } from '../sharding-propagation/mesh.js';
import { expertAxes } from '../sharding-propagation/roles.js';
import { checkArguments, object } from './options/kinds.js';

export type { Degrees };

export type GroupKind = 'dp' | 'tp' | 'pp' | 'sp' | 'ep' | 'mp';

export interface ProcessGroups {
  readonly devices: number;
  /** Sorted lists of ranks, in the order of their first rank. */
  readonly groups: Readonly<Record<GroupKind, readonly (readonly number[])[]>>;
}

/** Lists of more ranks than this are not useful, and take minutes to compute. */
const MOST_RANKS = 2 ** 16;

/** @throws AutoparError (usage) `bad-degree`; `bad-devices` for more ranks than can be listed. */
function checkRanks({ pp, dp, sp, tp, ep }: Degrees): void {
  for (const [name, size] of Object.entries({ dp, tp, pp, sp, ep }))
    if (!Number.isSafeInteger(size) || size < 1)
      throw usageError('bad-degree', `${name} ${size} is not a positive whole number`, `give ${name} 1 or more ranks`);
  const ranks = pp * dp * sp * tp;
  if (ranks <= MOST_RANKS) return;
  throw usageError(
    'bad-devices',
    `these degrees make ${ranks} ranks; groups are listed for at most ${MOST_RANKS}`,
    'give smaller degrees: the groups repeat',
  );
}

/** The degrees of each stage, for a pipeline whose stages have meshes of their own. */
export type StageDegrees = readonly Pick<Degrees, 'dp' | 'sp' | 'tp' | 'ep'>[];

/** The mesh of all axes, with the named axes in the given order (outermost first). */
function meshOf(degrees: Degrees, order: readonly string[]): Mesh {
  const others = AXIS_ORDER.filter((axis) => !order.includes(axis));
  return makeMesh([...others, ...order].map((axis) => [axis, degrees[axis as keyof Degrees]] as const));
}

/**
 * The process groups.
 * @param order the mesh's axes, outermost first, if not the default order; axes of one rank may be left out
 * @param stages degrees of stages that differ: dp, sp and tp are then groups within one stage, and there are no groups of mp
 * @throws AutoparError `degrees-do-not-match-devices` (usage) if ep does not divide dp · sp.
 */
export function processGroups(
  degrees: Degrees,
  order: readonly string[] = AXIS_ORDER,
  stages: StageDegrees | null = null,
): ProcessGroups {
  checkArguments('processGroups', { degrees: [degrees, object] });
  checkRanks(degrees);
  if (stages) return groupsOfStages(degrees, order, stages);
  const { dp, sp, ep } = degrees;
  if ((dp * sp) % ep !== 0) {
    throw usageError(
      'degrees-do-not-match-devices',
      `ep ${ep} does not divide dp ${dp} · sp ${sp} = ${dp * sp}`,
      'give --ep a divisor of dp · sp: experts are spread over the ranks of both',
    );
  }
  const mesh = meshOf(degrees, order);
  const over = (...axes: readonly string[]) => sorted(groupsOn(mesh, subAxesOf(mesh, axes)));
  return {
    devices: deviceCount(mesh),
    groups: {
      dp: over('dp'),
      tp: over('tp'),
      pp: over('pp'),
      sp: over('sp'),
      ep: sorted(groupsOn(mesh, ep > 1 ? expertAxes(mesh, ep) : [])),
      mp: over('pp', 'sp', 'tp'),
    },
  };
}

function groupsOfStages(degrees: Degrees, order: readonly string[], stages: StageDegrees): ProcessGroups {
  const { devices, groups } = processGroups(degrees, order);
  const perStage = devices / degrees.pp;
  const own = stages.map((sizes) => processGroups({ ...degrees, ...sizes, pp: 1 }, order).groups);
  const inside = (kind: GroupKind) =>
    own.flatMap((of, stage) => of[kind].map((group) => group.map((rank) => rank + stage * perStage)));
  return {
    devices,
    groups: { dp: inside('dp'), tp: inside('tp'), pp: groups.pp, sp: inside('sp'), ep: inside('ep'), mp: [] },
  };
}

/** A rank's coordinate on every axis. @throws AutoparError `bad-option` (usage) if the rank does not exist. */
export function placeOf(
  degrees: Degrees,
  rank: number,
  order: readonly string[] = AXIS_ORDER,
  stages: StageDegrees | null = null,
): Readonly<Record<string, number>> {
  checkArguments('placeOf', { degrees: [degrees, object] });
  checkRanks(degrees);
  const { pp } = degrees;
  // Only coordinates inside the rank's stage depend on the stage's mesh.
  const mesh = meshOf(
    { ...degrees, ...stages?.[Math.floor(rank / (deviceCount(meshOf(degrees, order)) / pp))] },
    order,
  );
  if (!Number.isSafeInteger(rank) || rank < 0 || rank >= deviceCount(mesh)) {
    throw badOption(
      `--rank ${rank}: there are ${deviceCount(mesh)} ranks, counted from 0`,
      `give --rank a whole number from 0 to ${deviceCount(mesh) - 1}`,
    );
  }
  return Object.fromEntries(AXIS_ORDER.map((axis) => [axis, indexOn(mesh, subAxesOf(mesh, [axis]), rank)]));
}

function subAxesOf(mesh: Mesh, axes: readonly string[]): readonly string[] {
  return mesh.axes.filter(({ name }) => axes.includes(name)).flatMap(({ subAxes }) => subAxes.map(({ name }) => name));
}

function sorted(groups: readonly (readonly number[])[]): readonly (readonly number[])[] {
  return groups
    .map((group) => [...group].sort((left, right) => left - right))
    .sort((left, right) => (left[0] ?? 0) - (right[0] ?? 0));
}
