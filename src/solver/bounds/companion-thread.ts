/**
 * @file The companion's thread: it sends its answers to the solver's thread and, so that nothing is lost while that one is inside
 * an integer solver, to the one that waits for both.
 */
import { setPriority } from 'node:os';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import type { LimitedProblem } from '../problem.js';
import { accompany } from './companion.js';

const { problem, seconds, port } = workerData as {
  readonly problem: LimitedProblem;
  readonly seconds: number;
  readonly port: MessagePort;
};
// Where processors are scarce the proof goes first (Linux gives each thread a priority of its own).
if (process.platform === 'linux') setPriority(5);
accompany(problem, port, seconds, (found) => {
  port.postMessage(found);
  parentPort?.postMessage(found);
});
port.close();
