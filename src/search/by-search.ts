/**
 * @file Completion by search: a mesh is solved without a limit first; where that plan is too large, again within the limit.
 */
import type { Completion } from './completion.js';
import { fitMemory } from './fit-memory.js';
import { isForbidden, pinConflict } from './pin-conflict.js';
import { searchPins } from './pinned.js';
import type { MeshSearchOptions } from './search-mesh.js';
import { searchMesh } from './search-mesh.js';
import type { SolverName } from './search-mode.js';

/** Completion in a mode; integer programs go to the solver named. */
export function bySearch(mode: MeshSearchOptions['mode'], solver: SolverName): Completion {
  return {
    mode: mode === 'auto' ? 'dynamic_programming' : mode,
    solve: async (graph, mesh, cluster, { pins, ...given }) => {
      const options: MeshSearchOptions = { ...given, pins: searchPins(graph, pins), mode, solver };
      const found = await searchMesh(graph, mesh, cluster, options).catch(async (error: unknown) => {
        throw (isForbidden(error) && (await pinConflict(graph, mesh, cluster, options, pins))) || error;
      });
      return { ...found, within: (limit) => fitMemory(graph, mesh, cluster, options, limit) };
    },
  };
}
