/**
 * @file What may be asked of a plan in words, for the command line.
 */
export { REQUESTS, requestIn } from '../strategy/request.js';
