/**
 * @file The solver on a thread of its own: it can be interrupted, and the best answer so far is never lost.
 */
import { MessageChannel, Worker } from 'node:worker_threads';
import type { Found } from './companion.js';
import type { IntegerSolver } from './integer-solvers.js';
import { type LimitedProblem, NoAssignment } from './limited-problem.js';
import type { Answer, Effort } from './solve.js';

/** What the thread is given. */
export interface Task {
  readonly problem: LimitedProblem;
  readonly effort: Effort;
  readonly solver: IntegerSolver['name'] | 'none';
  /** Whether another thread looks for better assignments meanwhile: with a limit in seconds alone. */
  readonly accompanied?: boolean;
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
 * Solves on another thread, or two.
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit
 */
export function solveApart(task: Task, { signal, better }: Following = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let best: Answer = { states: null, cost: Infinity, bound: -Infinity };
    const { problem, effort, solver, accompanied } = task;
    const { seconds } = effort;
    const channel = accompanied && seconds !== undefined ? new MessageChannel() : undefined;
    const worker = new Worker(new URL('./solver-thread.js', import.meta.url), {
      workerData: { problem, effort, solver, port: channel?.port1 },
      transferList: channel ? [channel.port1] : [],
    });
    const companion =
      channel &&
      new Worker(new URL('./companion-thread.js', import.meta.url), {
        workerData: { problem, seconds, port: channel.port2 },
        transferList: [channel.port2],
      });
    // A call of an integer solver looks at the clock rarely: past the limit it is not waited for.
    const timer = seconds === undefined ? undefined : setTimeout(() => end(), (seconds + GRACE) * 1000);
    const settle = (finish: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      // A thread that has answered ends by itself: ending one while WebAssembly winds up can hang (nodejs/node#47748). What
      // becomes of it keeps nobody waiting. The companion has no WebAssembly.
      worker.unref();
      void companion?.terminate();
      finish();
    };
    const end = () => {
      void worker.terminate();
      settle(() => resolve(best));
    };
    /** Each thread's bound and assignments hold, so the best of both do. */
    const joined = ({ states, cost, bound }: Answer): Answer => {
      const isBetter = cost < best.cost;
      const least = isBetter ? cost : best.cost;
      return {
        states: isBetter ? states : best.states,
        cost: least,
        bound: Math.min(Math.max(bound, best.bound), least),
      };
    };
    const take = (answer: Answer) => {
      best = joined(answer);
      better?.(best);
    };
    worker.on('message', (told: Told) => {
      if (told.kind === 'better') take(told.answer);
      else if (told.kind === 'done') settle(() => resolve(joined(told.answer)));
      else if (told.kind === 'impossible') settle(() => reject(new NoAssignment(told.message)));
      else if (told.kind === 'failed') settle(() => reject(told.error));
    });
    companion?.on('message', ({ states, cost }: Found) => {
      if (cost < best.cost) take({ states, cost, bound: -Infinity });
    });
    // It only helps: where it has no room, the search goes on without it.
    companion?.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ERR_WORKER_OUT_OF_MEMORY') settle(() => reject(error));
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
