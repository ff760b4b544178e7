/**
 * @file What is asked of a plan in words, beside degrees and stages: `--zero 1`, `--recompute full`. Each word stands for layouts,
 * clones or places that the plan then says of operators and tensors; plan.json keeps the words in `requested`, for people.
 */

/** By option; what is left out the search decides. */
export interface Request {
  /** What dp shards besides: 1 the optimizer's state, 2 gradients, 3 parameters. */
  readonly zero?: 0 | 1 | 2 | 3;
  /** Collectives on gradients and parameters start in messages of at most so many bytes, while the backward still runs. */
  readonly bucket?: number;
}

/** Its words. */
export const REQUESTS = ['zero', 'bucket'] as const satisfies readonly (keyof Request)[];

/** What of other options is asked in words. */
export function requestIn(options: Request): Request {
  return Object.fromEntries(REQUESTS.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])));
}
