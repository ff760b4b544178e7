/**
 * @file The names of search modes, integer solvers and methods of sequence parallelism, without the search.
 */
export { SEARCH_MODES, type SearchMode, SOLVERS, type SolverName } from '../../search/search-mode.js';
export { SP_METHODS, SP_ORDERS, TP_SEQUENCES } from '../../sharding-propagation/roles.js';
