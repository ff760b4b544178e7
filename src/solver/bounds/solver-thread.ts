/**
 * @file The thread of solve-apart.ts.
 */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { type Answer, NoAssignment } from '../problem.js';
import { boundedSearch } from './bounded-search.js';
import { companionAt } from './companion.js';
import { loadSolver } from './integer-solvers.js';
import type { SolveMessage, Task } from './solve-apart.js';

const { problem, effort, solver, port } = workerData as Task & { readonly port?: MessagePort };
const send = (message: SolveMessage) => parentPort?.postMessage(message);
try {
  const integer = solver === 'none' ? null : await loadSolver(solver);
  const better = (answer: Answer) => send({ kind: 'better', answer });
  send({ kind: 'done', answer: boundedSearch(problem, effort, integer, better, port ? companionAt(port) : null) });
} catch (error) {
  if (error instanceof NoAssignment) send({ kind: 'impossible', message: error.message });
  else send({ kind: 'failed', error });
}
port?.close();
