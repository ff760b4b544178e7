/**
 * @file Ctrl-C in a training run. Ranks that load end at once; a step that is under way ends, and its state is written as after
 * the last step.
 */
import { AutoparError } from '../../ir/error.js';
import type { Session } from '../../runtime/session.js';
import type { Saved } from '../execution/checkpoints.js';
import type { Checkpointing } from './checkpointing.js';
import type { TrainingState } from './state.js';

/** A signal that is aborted with another one, until it is released. */
export interface FollowingSignal {
  readonly signal: AbortSignal;
  readonly release: () => void;
}

export function following(signal: AbortSignal | undefined): FollowingSignal {
  const own = new AbortController();
  const abort = () => own.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  return { signal: own.signal, release: () => signal?.removeEventListener('abort', abort) };
}

/**
 * Writes the checkpoint of an interrupted run, where it writes any.
 * @param steps the number of steps that the run was to take
 * @returns the error (interrupted) that ends the run: `training-stopped`, or the signal's reason where there is no checkpoint
 */
export async function stopped(
  { stop }: Checkpointing,
  session: Session,
  state: TrainingState,
  steps: number,
  { reason }: AbortSignal,
): Promise<unknown> {
  if (!stop) return reason;
  const at = `interrupted after step ${state.step} of ${steps}`;
  let saved: Saved;
  try {
    saved = await stop(session, state);
  } catch (error) {
    if (!(error instanceof AutoparError) || error.exit !== 'cannotWrite') throw error;
    const message = `${at}, and its checkpoint was not written; the previous one remains: ${error.message}`;
    return new AutoparError('training-stopped', 'interrupted', message, error.where);
  }
  return new AutoparError(
    'training-stopped',
    'interrupted',
    `${at}; its checkpoint is written`,
    { file: saved.folder },
    state.step === steps ? undefined : 'train again with --resume to go on from there',
  );
}
