/**
 * @file The solver on a thread of its own: it can be interrupted, and the best answer so far is never lost.
 */
import { MessageChannel, Worker } from 'node:worker_threads';
import { listening } from '../../ir/interruption.js';
import { type Answer, type LimitedProblem, NoAssignment } from '../problem.js';
import type { SearchEffort } from './bounded-search.js';
import type { CompanionAnswer } from './companion.js';
import type { IntegerSolver } from './integer-solvers.js';

/** Input of the thread. */
export interface Task {
  readonly problem: LimitedProblem;
  readonly effort: SearchEffort;
  readonly solver: IntegerSolver['name'] | 'none';
  /** Seconds after which the thread is ended, with its best answer so far: until then it works as without them. */
  readonly within?: number;
  /** Whether another thread looks for better assignments meanwhile: with a limit in seconds alone. */
  readonly accompanied?: boolean;
}

/** Messages of the thread: better answers, the last one, or the reason that there is none. */
export type SolveMessage =
  | { readonly kind: 'better'; readonly answer: Answer }
  | { readonly kind: 'done'; readonly answer: Answer }
  | { readonly kind: 'impossible'; readonly message: string }
  | { readonly kind: 'failed'; readonly error: unknown };

export interface SolveFollowing {
  /** Ends the search: the best answer so far is returned. */
  readonly signal?: AbortSignal;
  readonly better?: (answer: Answer) => void;
}

/** Seconds beyond the user's limit in which the thread may come to its own end. */
const GRACE = 1;

/** Milliseconds that a timer counts at most: a longer one would be over at once. The thread looks at the clock itself. */
const LONGEST_WAIT = 2 ** 31 - 1;

/** Seconds that a thread which has answered has for its end; it takes some hundredths. */
const WIND_UP = 2;

/**
 * Solves on another thread, or two. The caller may end the process as soon as it has the answer, so the answer is passed on when
 * the thread is gone: ending one while WebAssembly winds up can hang (nodejs/node#47748).
 * @throws NoAssignment where every assignment is forbidden, or takes more than the limit
 */
export function solveApart(task: Task, following: SolveFollowing = {}): Promise<Answer> {
  return listening(following.signal, () => solvedByThread(task, following));
}

function solvedByThread(task: Task, { signal, better }: SolveFollowing): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let best: Answer = { states: null, cost: Infinity, bound: 0 };
    let isAnswered = false;
    const { problem, effort, solver, accompanied, within } = task;
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
    const end = () => {
      void worker.terminate();
      answer(() => resolve(best));
    };
    // A call of an integer solver looks at the clock rarely: past the limit it is not waited for.
    const wait = Math.ceil(Math.min(within ?? Infinity, (seconds ?? Infinity) + GRACE) * 1000) + 1;
    const timer = wait > LONGEST_WAIT ? undefined : setTimeout(end, wait);
    /** The first answer counts. Either event passes it on: the thread's end, or the end of the time for it. */
    const answer = (finish: () => void) => {
      if (isAnswered) return;
      isAnswered = true;
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      // The companion has no WebAssembly: it can be ended at any time.
      void companion?.terminate();
      const late = setTimeout(finish, WIND_UP * 1000);
      worker.once('exit', () => {
        clearTimeout(late);
        finish();
      });
      // The process does not wait for a thread that does not end.
      worker.unref();
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
    const take = (found: Answer) => {
      best = joined(found);
      better?.(best);
    };
    worker.on('message', (message: SolveMessage) => {
      if (message.kind === 'better') take(message.answer);
      else if (message.kind === 'done') answer(() => resolve(joined(message.answer)));
      else if (message.kind === 'impossible') answer(() => reject(new NoAssignment(message.message)));
      else if (message.kind === 'failed') answer(() => reject(message.error));
    });
    companion?.on('message', ({ states, cost }: CompanionAnswer) => {
      if (cost < best.cost) take({ states, cost, bound: -Infinity });
    });
    // The companion only helps: where it has no memory, the search goes on without it.
    companion?.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ERR_WORKER_OUT_OF_MEMORY') answer(() => reject(error));
    });
    worker.on('messageerror', (error) => answer(() => reject(error)));
    // After an error the thread ends, too.
    worker.on('error', (error: NodeJS.ErrnoException) =>
      // Where it has no more memory, its last answer is the result.
      answer(() => (error.code === 'ERR_WORKER_OUT_OF_MEMORY' && best.states ? resolve(best) : reject(error))),
    );
    worker.on('exit', (code) => {
      if (isAnswered) return;
      isAnswered = true;
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      void companion?.terminate();
      reject(new Error(`the solver's thread ended without an answer (${code})`));
    });
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
  });
}
