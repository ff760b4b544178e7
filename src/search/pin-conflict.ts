/**
 * @file Pins that leave no plan: which of them.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { AutoparError } from '../ir/error.js';
import type { Graph } from '../ir/graph.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Pin, PinSource } from '../sharding-propagation/pin.js';
import { eliminate } from './elimination.js';
import { type MeshOptions, meshProblem } from './mesh-problem.js';
import { searchPins } from './pinned.js';
import { NoAssignment } from './solver/limited-problem.js';

/** Whether a search ended because every assignment is forbidden. */
export function isForbidden(error: unknown): boolean {
  return error instanceof RangeError || error instanceof NoAssignment;
}

/**
 * The refusal of pins that leave no plan on a mesh, which names a smallest set of them that does: each in turn is left out, and
 * stays out where the others still leave none (deletion filter, Chinneck and Dravnieks 1991). Null where it is not the pins.
 */
export function pinConflict(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: MeshOptions,
  pins: readonly Pin[],
): AutoparError | null {
  const leavesNone = (kept: ReadonlySet<PinSource>): boolean => {
    try {
      const own = searchPins(
        graph,
        pins.filter(({ source }) => kept.has(source)),
      );
      eliminate(meshProblem(graph, mesh, cluster, { ...options, pins: own }).groups.problem());
      return false;
    } catch (error) {
      if (isForbidden(error) || (error instanceof AutoparError && error.code === 'pin-cannot-be-kept')) return true;
      throw error;
    }
  };
  const kept = new Set(pins.map(({ source }) => source));
  if (leavesNone(new Set())) return null;
  for (const source of [...kept]) {
    kept.delete(source);
    if (!leavesNone(kept)) kept.add(source);
  }
  const [first] = kept;
  const texts = [...kept].map(({ text }) => text);
  const degrees = mesh.axes.map(({ name, size }) => `${name} ${size}`).join(' · ');
  return new AutoparError(
    'pins-leave-no-plan',
    'noPlan',
    `${texts.join(' and ')} ${texts.length === 1 ? 'leaves' : 'leave'} no plan on ${degrees}, whatever the rest does`,
    { ...(first?.file ? { file: first.file } : {}), ...(first?.line ? { line: first.line } : {}) },
    'leave it out or ask for less; an output of the model may be cut over ranks, but not be left as partial sums',
  );
}
