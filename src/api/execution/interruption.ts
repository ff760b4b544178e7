/**
 * @file Events that start and end the periods in which the command line listens for signals of the system.
 */
export { LISTEN } from '../../ir/interruption.js';
