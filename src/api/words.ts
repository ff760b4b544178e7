/**
 * @file Imports of the command line for reading options: their values, and parsers of their words. It loads no implementation of
 * a verb, so that a command starts fast; verbs.ts is the other such file. Commands that need more load index.ts.
 */
export { TOKEN_TYPES } from '../data/data-file.js';
export { LAYER_RECOMPUTE_KINDS } from '../ir/autodiff/recompute-names.js';
export { BLOCK_DOMAIN } from '../ir/blocks/block.js';
export { AutoparError, EXIT } from '../ir/error.js';
export { offer } from '../ir/nearest.js';
export { shellWord } from '../ir/shell-word.js';
export { multipleWritten } from '../search/figures.js';
export { AXIS_ORDER } from '../sharding-propagation/mesh.js';
export { listedDegrees, namedDegrees, PARALLEL_AXES } from '../sharding-propagation/roles.js';
export { COMPUTING_BACKENDS, RUN_BACKENDS } from './execution/backends.js';
export { LISTEN } from './execution/interruption.js';
export { DISPATCHES, dispatchIn } from './models/dispatch.js';
export { GRADIENT_REDUCTIONS } from './models/gradient-reduction.js';
export { FAMILY_NAMES } from './models/model-families.js';
export { BATCH_STATISTICS } from './models/statistics-parts.js';
export { refuseIdle } from './options/idle.js';
export { OBJECTIVES } from './requests/compile-options.js';
export { checkDegrees } from './requests/degrees.js';
export { isPlanPath } from './requests/plan-path.js';
export { readRecompute } from './requests/recompute-words.js';
export {
  checkedOffload,
  GRADIENT_SYNCS,
  PREFERENCES,
  pricedOffload,
  requestIn,
} from './requests/requests.js';
export { PIPELINE_SCHEDULES, SCHEDULE_KINDS } from './requests/schedule-kinds.js';
export { SEARCH_MODES, SOLVERS, SP_METHODS, SP_ORDERS, TP_SEQUENCES } from './requests/search-modes.js';
export { TARGETS } from './requests/targets.js';
export { checkTraining, LOSSES, OPTIMIZERS } from './requests/training-request.js';
