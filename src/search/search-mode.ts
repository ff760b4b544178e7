/**
 * @file How a plan is looked for: the names that MindSpore's users know, and the integer solvers.
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

/** What `search.mode` of a plan says: how it was found. */
export type UsedMode = Exclude<SearchMode, 'auto'>;

/** Who solves integer programs; `none` leaves them to bounds, branches and local search. */
export const SOLVERS = ['highs', 'glpk', 'none'] as const;

export type SolverName = (typeof SOLVERS)[number];
