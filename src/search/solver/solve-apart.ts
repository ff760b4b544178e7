/**
 * @file The solver on a thread of its own: it can be interrupted, and the best answer so far is never lost.
 */
import { Worker } from 'node:worker_threads';
import type { IntegerSolver } from './integer-solvers.js';
import { type LimitedProblem, NoAssignment } from './limited-problem.js';
import type { Answer, Effort } from './solve.js';

/** What the thread is given. */
export interface Task {
  readonly problem: LimitedProblem;
  readonly effort: Effort;
  readonly solver: IntegerSolver['name'] | 'none';
}

/** What it tells: better answers, the last one, or why there is none. */
export type Told =
  | { readonly kind: 'better'; readonly answer: Answer }
  | { readonly kind: 'done'; readonly answer: Answer }
  | { readonly kind: 'impossible'; readonly message: string }
  | { readonly kind: 'failed'; readonly error: unknown };

export interface Following {
  /** Ends the search: the best answer so far is returned. */
  readonly signal?: AbortSignal;
  readonly better?: (answer: Answer) => void;
}

/** Seconds beyond the user's limit in which the thread may come to its own end. */
const GRACE = 1;

/**
 * Solves on another thread.
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit
 */
export function solveApart(task: Task, { signal, better }: Following = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let best: Answer = { states: null, cost: Infinity, bound: -Infinity };
    const worker = new Worker(new URL('./solver-thread.js', import.meta.url), { workerData: task });
    const { seconds } = task.effort;
    // A call of an integer solver looks at the clock rarely: past the limit it is not waited for.
    const timer = seconds === undefined ? undefined : setTimeout(() => end(), (seconds + GRACE) * 1000);
    const settle = (finish: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      // A thread that has answered ends by itself: ending one while WebAssembly winds up can hang (nodejs/node#47748). What
      // becomes of it keeps nobody waiting.
      worker.unref();
      finish();
    };
    const end = () => {
      void worker.terminate();
      settle(() => resolve(best));
    };
    worker.on('message', (told: Told) => {
      if (told.kind === 'better') {
        best = told.answer;
        better?.(best);
      } else if (told.kind === 'done') settle(() => resolve(told.answer));
      else if (told.kind === 'impossible') settle(() => reject(new NoAssignment(told.message)));
      else if (told.kind === 'failed') settle(() => reject(told.error));
    });
    worker.on('messageerror', (error) => settle(() => reject(error)));
    worker.on('error', (error) => settle(() => reject(error)));
    // Settled already where it told its answer before: then this does nothing.
    worker.on('exit', (code) =>
      settle(() => reject(new Error(`the solver's thread ended without an answer (${code})`))),
    );
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });
}
