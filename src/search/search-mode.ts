/**
 * @file How a plan is searched: the names that MindSpore's users know, and the integer solvers.
 */

/** `auto` picks one of the others. */
export const SEARCH_MODES = [
  'auto',
  'ilp',
  'dynamic_programming',
  'recursive_programming',
  'sharding_propagation',
] as const;

export type SearchMode = (typeof SEARCH_MODES)[number];

/** The values of `search.mode` of a plan: how it was found. */
export type UsedMode = Exclude<SearchMode, 'auto'>;

/** Solvers of integer programs; `none` leaves these to bounds, branches and local search. */
export const SOLVERS = ['highs', 'glpk', 'none'] as const;

export type SolverName = (typeof SOLVERS)[number];
