/**
 * @file The names of search modes and integer solvers, without the search.
 */
export { SEARCH_MODES, type SearchMode, SOLVERS, type SolverName } from '../search/search-mode.js';
