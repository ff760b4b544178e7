/**
 * @file The smallest set of pins that leaves no plan.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { AutoparError } from '../ir/error.js';
import type { Graph } from '../ir/graph.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Pin, PinSource } from '../sharding-propagation/pin.js';
import { NoAssignment } from '../solver/problem.js';
import { LARGE, solve } from '../solver/solve.js';
import { type MeshOptions, meshProblem } from './mesh-problem.js';
import { searchPins } from './pinned.js';
import { listInWords, smallestConflict } from './smallest-conflict.js';

/** Whether a search ended because every assignment is forbidden. */
export function isForbidden(error: unknown): boolean {
  return error instanceof NoAssignment;
}

/**
 * The error for pins that leave no plan on a mesh; it names a smallest such set. Null where the pins are not the cause.
 */
export async function pinConflict(
  graph: Graph,
  mesh: Mesh,
  cluster: Cluster,
  options: MeshOptions,
  pins: readonly Pin[],
): Promise<AutoparError | null> {
  const leavesNone = async (kept: ReadonlySet<PinSource>): Promise<boolean> => {
    try {
      const own = searchPins(
        graph,
        pins.filter(({ source }) => kept.has(source)),
      );
      const problem = meshProblem(graph, mesh, cluster, { ...options, pins: own }).groups.problem();
      await solve(problem, { work: 0, tables: LARGE });
      return false;
    } catch (error) {
      if (isForbidden(error) || (error instanceof AutoparError && error.code === 'pin-cannot-be-kept')) return true;
      throw error;
    }
  };
  const set = await smallestConflict([...new Set(pins.map(({ source }) => source))], leavesNone);
  const [first] = set;
  if (!first) return null;
  const texts = set.map(({ text }) => text);
  const degrees = mesh.axes.map(({ name, size }) => `${name} ${size}`).join(' · ');
  return new AutoparError(
    'pins-leave-no-plan',
    'noPlan',
    `${listInWords(texts)} ${texts.length === 1 ? 'leaves' : 'leave'} no plan on ${degrees}, whatever the other operators do`,
    { ...(first.file ? { file: first.file } : {}), ...(first.line ? { line: first.line } : {}) },
    'leave it out or request less; an output of the model may be sharded, but not partial',
  );
}
