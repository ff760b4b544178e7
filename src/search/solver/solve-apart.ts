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

/** Seconds that a thread which has answered has for its end; it takes some hundredths. */
const WIND_UP = 2;

/**
 * Solves on another thread. Whoever is answered may end the process at once, so the answer is passed on when the thread is gone:
 * ending one while WebAssembly winds up can hang (nodejs/node#47748).
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit
 */
export function solveApart(task: Task, { signal, better }: Following = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let best: Answer = { states: null, cost: Infinity, bound: -Infinity };
    let isAnswered = false;
    const worker = new Worker(new URL('./solver-thread.js', import.meta.url), { workerData: task });
    const { seconds } = task.effort;
    const end = () => {
      void worker.terminate();
      answer(() => resolve(best));
    };
    // A call of an integer solver looks at the clock rarely: past the limit it is not waited for.
    const timer = seconds === undefined ? undefined : setTimeout(end, (seconds + GRACE) * 1000);
    /** The first answer counts. It is passed on by what comes first: the thread's end, or the time for it. */
    const answer = (finish: () => void) => {
      if (isAnswered) return;
      isAnswered = true;
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      const late = setTimeout(finish, WIND_UP * 1000);
      worker.once('exit', () => {
        clearTimeout(late);
        finish();
      });
      // A thread that does not end keeps nobody waiting.
      worker.unref();
    };
    worker.on('message', (told: Told) => {
      if (told.kind === 'better') {
        best = told.answer;
        better?.(best);
      } else if (told.kind === 'done') answer(() => resolve(told.answer));
      else if (told.kind === 'impossible') answer(() => reject(new NoAssignment(told.message)));
      else if (told.kind === 'failed') answer(() => reject(told.error));
    });
    worker.on('messageerror', (error) => answer(() => reject(error)));
    // After an error the thread ends, too.
    worker.on('error', (error) => answer(() => reject(error)));
    worker.on('exit', (code) => {
      if (isAnswered) return;
      isAnswered = true;
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      reject(new Error(`the solver's thread ended without an answer (${code})`));
    });
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });
}
