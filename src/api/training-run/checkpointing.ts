/**
 * @file The checkpoints of a training run: where the run starts, when it writes one, and how it continues if writing fails.
 */
import type { Dataset } from '../../data/dataset.js';
import type { LastBatch } from '../../data/sampler.js';
import { AutoparError, badOption } from '../../ir/error.js';
import type { Session } from '../../runtime/session.js';
import { Checkpoints, type Saved } from '../execution/checkpoints.js';
import type { CompiledParts } from '../output/folder.js';
import { checkpointRecord, recordedState, type TrainingState } from './state.js';

/** The options of a run that concern checkpoints. */
export interface TrainingRunOptions {
  /** The folder that compile wrote with --train. */
  readonly directory: string;
  /** Seed of the order of samples; 0 by default. */
  readonly seed?: number;
  /** Read samples in the order of the files. */
  readonly inOrder?: boolean;
  /** How to treat the last samples of an epoch that do not fill a batch; `drop` by default. */
  readonly lastBatch?: LastBatch;
  /** Number of steps between checkpoints; one is always written after the last step. */
  readonly checkpointEvery?: number;
  /** Number of newest checkpoints that are kept; 3 by default. */
  readonly keep?: number;
  /**
   * Resumes from a checkpoint: the newest in the folder or in another one, or the one whose own folder is given. Any plan may
   * have written it. The order of samples is that of the checkpoint.
   */
  readonly resume?: boolean | string;
  /** Called with notes for the user during the run. */
  readonly onNote?: (text: string) => void;
}

/** The checkpoints of a run. */
export interface Checkpointing {
  /** The folder of the checkpoint that the run resumes from; null for a new run. */
  readonly from: string | null;
  /** The state from which it resumes. */
  readonly resumed: TrainingState | null;
  /** Loads the state of the checkpoint into the ranks. */
  readonly restore: (session: Session) => Promise<void>;
  /**
   * Called after a step: writes a checkpoint if one is due. If the disk is full the run continues without it, except after the
   * last step.
   * @throws AutoparError (cannotWrite) after the last step
   */
  readonly after: (session: Session, state: TrainingState, steps: number) => Promise<void>;
  /**
   * Writes a checkpoint of the state in which a run is interrupted; null in a run that writes none.
   * @throws AutoparError (cannotWrite)
   */
  readonly stop: ((session: Session, state: TrainingState) => Promise<Saved>) | null;
  /** The last checkpoint that was written. */
  readonly last: () => Saved | null;
  /** Releases the folder's lock. */
  readonly close: () => Promise<void>;
}

/** Checkpointing of a run that writes none. */
export const WITHOUT_CHECKPOINTS: Checkpointing = {
  from: null,
  resumed: null,
  restore: async () => undefined,
  after: async () => undefined,
  stop: null,
  last: () => null,
  close: async () => undefined,
};

/**
 * Acquires the folder's lock, and finds the checkpoint that the run resumes from.
 * @throws AutoparError `folder-in-use`, `checkpoints-there`; as `Checkpoints.find`
 */
export async function openCheckpointing(parts: CompiledParts, options: TrainingRunOptions): Promise<Checkpointing> {
  const { directory, keep, resume = false, checkpointEvery, onNote } = options;
  const checkpoints = await Checkpoints.open(directory, parts, keep);
  try {
    const found = resume === false ? null : await checkpoints.find(resume === true ? undefined : resume);
    if (!found) await checkpoints.checkNone();
    for (const note of found?.notes ?? []) onNote?.(note);
    const resumed = found && recordedState(found.checkpoint.step, found.checkpoint.state, found.folder);
    if (resumed) checkOrder(options, resumed);
    let last: Saved | null = null;
    const save = async (session: Session, state: TrainingState): Promise<Saved> => {
      last = await checkpoints.save(session, { step: state.step, state: checkpointRecord(state) });
      return last;
    };
    return {
      from: found?.folder ?? null,
      resumed,
      restore: async (session) => {
        if (found) await session.restore(found.folder, found.checkpoint.tensors);
      },
      after: async (session, state, steps) => {
        const { step } = state;
        if (step !== steps && (checkpointEvery === undefined || step % checkpointEvery !== 0)) return;
        try {
          await save(session, state);
        } catch (error) {
          if (step === steps || !(error instanceof AutoparError) || error.exit !== 'cannotWrite') throw error;
          onNote?.(`warning: this checkpoint was not written; the previous one remains: ${error.message}`);
        }
      },
      stop: save,
      last: () => last,
      close: () => checkpoints.close(),
    };
  } catch (error) {
    await checkpoints.close();
    throw error;
  }
}

/** @throws AutoparError `bad-option` (usage) if an option states another order of samples than the checkpoint */
function checkOrder(options: TrainingRunOptions, { order, lastBatch }: TrainingState): void {
  const said = [
    ['--seed', options.seed, order.seed],
    ['--in-order', options.inOrder, order.inOrder],
    ['--last-batch', options.lastBatch, lastBatch],
  ] as const;
  for (const [option, here, there] of said) {
    if (here === undefined || here === there) continue;
    throw badOption(
      `${option} ${here} contradicts the resumed run, which has ${there} and keeps its order of samples`,
      'leave the option out',
    );
  }
}

/** @throws AutoparError `data-changed` (input), `bad-option` (usage) if no steps are left */
export function checkResumed({ step, order }: TrainingState, { samples }: Dataset, steps: number): void {
  if (samples !== order.samples)
    throw new AutoparError(
      'data-changed',
      'input',
      `the data have ${samples} samples, and the data of the resumed run ${order.samples}`,
      {},
      'resume on the same data; to train weights further on others, export them and compile the result',
    );
  if (step < steps) return;
  throw badOption(
    `the resumed run has taken ${step} steps, and ${steps} steps in total are requested`,
    'give more --epochs or --steps: both count the steps before the resume',
  );
}
