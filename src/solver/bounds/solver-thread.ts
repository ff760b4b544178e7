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
const tell = (told: SolveMessage) => parentPort?.postMessage(told);
try {
  const integer = solver === 'none' ? null : await loadSolver(solver);
  const better = (answer: Answer) => tell({ kind: 'better', answer });
  tell({ kind: 'done', answer: boundedSearch(problem, effort, integer, better, port ? companionAt(port) : null) });
} catch (error) {
  if (error instanceof NoAssignment) tell({ kind: 'impossible', message: error.message });
  else tell({ kind: 'failed', error });
}
port?.close();
