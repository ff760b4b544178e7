/**
 * @file Imports of the command line for reading options: their values, and parsers of their words. It loads no implementation of
 * a verb, so that a command starts fast; verbs.ts is the other such file. Commands that need more load index.ts.
 */
export { FAMILY_NAMES } from '../../models/family-names.js';
export { TOKEN_TYPES } from '../data/data-file.js';
export { LAYER_RECOMPUTE_KINDS } from '../ir/autodiff/recompute-names.js';
export { AutoparError, badOption, EXIT, usageError } from '../ir/error.js';
export type { CodeOf, ErrorCode } from '../ir/error-codes.js';
export { REGION_DOMAIN } from '../ir/fused-regions/fused-region.js';
export { LISTEN } from '../ir/interruption.js';
export { offer } from '../ir/nearest.js';
export { shellWord } from '../ir/shell-word.js';
export { withoutUndefined } from '../ir/without-undefined.js';
export { SCHEDULE_KINDS } from '../schedule/schedule.js';
export { multipleWritten } from '../search/figures.js';
export { SEARCH_MODES, SOLVERS } from '../search/search-mode.js';
export { AXIS_ORDER } from '../sharding-propagation/mesh.js';
export {
  listedDegrees,
  namedDegrees,
  PARALLEL_AXES,
  SP_METHODS,
  SP_ORDERS,
  TP_SEQUENCES,
} from '../sharding-propagation/roles.js';
export { GRADIENT_SYNCS, PREFERENCES, requestIn } from '../strategy/request.js';
export { COMPUTING_BACKENDS, RUN_BACKENDS } from './execution/backends.js';
export { DISPATCHES, dispatchIn } from './models/dispatch.js';
export { GRADIENT_REDUCTIONS } from './models/gradient-reduction.js';
export { BATCH_STATISTICS } from './models/statistics-parts.js';
export { refuseIdle } from './options/idle.js';
export { camelCase, dashed } from './options/option-name.js';
export { OBJECTIVES } from './requests/compile-options.js';
export { checkDegrees } from './requests/degrees.js';
export { checkedOffload, pricedOffload } from './requests/offload.js';
export { isPlanPath } from './requests/plan-path.js';
export { readRecompute } from './requests/recompute-words.js';
export { TARGETS } from './requests/targets.js';
export { checkTraining, LOSSES, OPTIMIZERS } from './requests/training-request.js';
