/**
 * @file The thread of solve-apart.ts.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { loadSolver } from './integer-solvers.js';
import { NoAssignment } from './limited-problem.js';
import { solve } from './solve.js';
import type { Task, Told } from './solve-apart.js';

const { problem, effort, solver } = workerData as Task;
const tell = (told: Told) => parentPort?.postMessage(told);
try {
  const integer = solver === 'none' ? null : await loadSolver(solver);
  tell({ kind: 'done', answer: solve(problem, effort, integer, (answer) => tell({ kind: 'better', answer })) });
} catch (error) {
  if (error instanceof NoAssignment) tell({ kind: 'impossible', message: error.message });
  else tell({ kind: 'failed', error });
}
