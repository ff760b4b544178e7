/**
 * @file groups: which ranks communicate with which, for given degrees.
 *
 * The mesh is pp × dp × sp × tp from outermost to innermost; ranks are numbered with tp fastest. `ep` is no axis: it takes
 * the fastest sub-axes of dp · sp that make its degree, as programs do. `mp` is all ranks that hold one copy of the model.
 */
import { AutoparError } from '../ir/error.js';
import { AXIS_ORDER, deviceCount, groupsOn, indexOn, type Mesh, makeMesh } from '../sharding-propagation/mesh.js';
import { expertAxes } from '../sharding-propagation/roles.js';

export interface Degrees {
  readonly pp: number;
  readonly dp: number;
  readonly sp: number;
  readonly tp: number;
  readonly ep: number;
}

export type GroupKind = 'dp' | 'tp' | 'pp' | 'sp' | 'ep' | 'mp';

export interface ProcessGroups {
  readonly devices: number;
  /** Sorted lists of ranks, in the order of their first rank. */
  readonly groups: Readonly<Record<GroupKind, readonly (readonly number[])[]>>;
}

/** The lists of more ranks than this are no use to anyone, and take minutes. */
const MOST_RANKS = 2 ** 16;

/** @throws AutoparError `bad-devices` (usage) for more ranks than can be listed. */
function checkRanks({ pp, dp, sp, tp }: Degrees): void {
  const ranks = pp * dp * sp * tp;
  if (ranks <= MOST_RANKS) return;
  throw new AutoparError(
    'bad-devices',
    'usage',
    `these degrees make ${ranks} ranks; groups are listed for at most ${MOST_RANKS}`,
    {},
    'give smaller degrees: the pattern repeats',
  );
}

/** The mesh of all axes, in the order of those that are named (outermost first). */
function meshOf(degrees: Degrees, order: readonly string[]): Mesh {
  const others = AXIS_ORDER.filter((axis) => !order.includes(axis));
  return makeMesh([...others, ...order].map((axis) => [axis, degrees[axis as keyof Degrees]] as const));
}

/**
 * The process groups.
 * @param order of the mesh's axes, outermost first, where it is not the usual one; axes of one rank may be left out
 * @throws AutoparError `degrees-do-not-match-devices` (usage) where ep does not divide dp · sp.
 */
export function processGroups(degrees: Degrees, order: readonly string[] = AXIS_ORDER): ProcessGroups {
  checkRanks(degrees);
  const { dp, sp, ep } = degrees;
  if ((dp * sp) % ep !== 0) {
    throw new AutoparError(
      'degrees-do-not-match-devices',
      'usage',
      `ep ${ep} does not divide dp ${dp} · sp ${sp} = ${dp * sp}`,
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

/** A rank's place on every axis. @throws AutoparError `bad-option` (usage) where there is no such rank. */
export function placeOf(
  degrees: Degrees,
  rank: number,
  order: readonly string[] = AXIS_ORDER,
): Readonly<Record<string, number>> {
  checkRanks(degrees);
  const mesh = meshOf(degrees, order);
  if (rank >= deviceCount(mesh)) {
    throw new AutoparError(
      'bad-option',
      'usage',
      `--rank ${rank}: there are ${deviceCount(mesh)} ranks, counted from 0`,
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
