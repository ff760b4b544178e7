/**
 * @file When signals of the system are to be listened for, for the command line that does so.
 */
export { LISTEN } from '../../ir/interruption.js';
