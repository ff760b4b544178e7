/**
 * @file What a training run does with checkpoints: where it begins, when it writes one, and that it goes on where it cannot.
 */
import type { Dataset } from '../../data/dataset.js';
import type { LastBatch } from '../../data/sampler.js';
import { AutoparError } from '../../ir/error.js';
import type { Session } from '../../runtime/session.js';
import { Checkpoints, type Saved } from '../execution/checkpoints.js';
import type { CompiledParts } from '../output/folder.js';
import { checkpointRecord, recordedState, type TrainingState } from './state.js';

export interface CheckpointOptions {
  /** Writes a checkpoint after every so many steps; behind the last step one is written in any case. */
  readonly checkpointEvery?: number;
  /** How many checkpoints are kept, the newest; 3 by default. */
  readonly keep?: number;
  /**
   * Goes on from a checkpoint: the newest in the folder, or in another one, or a checkpoint's own folder; whatever plan wrote it.
   * What it says of the order of samples holds.
   */
  readonly resume?: boolean | string;
  /** Called with what the user should know while the run goes on. */
  readonly onNote?: (text: string) => void;
}

/** Of a run's options those that a checkpoint has to do with. */
interface TrainingRunOptions extends CheckpointOptions {
  readonly directory: string;
  readonly seed?: number;
  readonly inOrder?: boolean;
  readonly lastBatch?: LastBatch;
}

/** The checkpoints of a run. */
export interface Checkpointing {
  /** The checkpoint's folder that the run goes on from; null where it begins anew. */
  readonly from: string | null;
  /** Where it goes on. */
  readonly resumed: TrainingState | null;
  /** Puts the ranks in the state of the checkpoint. */
  readonly restore: (session: Session) => Promise<void>;
  /**
   * Behind a step: writes a checkpoint where one is due. Where the disk is full the run goes on without, unless it is over.
   * @throws AutoparError (cannotWrite) for the last one
   */
  readonly after: (session: Session, state: TrainingState, steps: number) => Promise<void>;
  /** The last one that was written. */
  readonly last: () => Saved | null;
  /** Lets other runs in. */
  readonly close: () => Promise<void>;
}

/** A run that writes none. */
export const WITHOUT_CHECKPOINTS: Checkpointing = {
  from: null,
  resumed: null,
  restore: async () => undefined,
  after: async () => undefined,
  last: () => null,
  close: async () => undefined,
};

/**
 * Takes the folder's lock, and finds the checkpoint that the run goes on from.
 * @throws AutoparError `folder-in-use`, `checkpoints-there`; what `Checkpoints.find` throws
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
          last = await checkpoints.save(session, { step, state: checkpointRecord(state) });
        } catch (error) {
          if (step === steps || !(error instanceof AutoparError) || error.exit !== 'cannotWrite') throw error;
          onNote?.(`warning: this checkpoint was not written, and the last one stays: ${error.message}`);
        }
      },
      last: () => last,
      close: () => checkpoints.close(),
    };
  } catch (error) {
    await checkpoints.close();
    throw error;
  }
}

/** @throws AutoparError `bad-option` (usage) where an option says another order of samples than the checkpoint */
function checkOrder(options: TrainingRunOptions, { order, lastBatch }: TrainingState): void {
  const said = [
    ['--seed', options.seed, order.seed],
    ['--in-order', options.inOrder, order.inOrder],
    ['--last-batch', options.lastBatch, lastBatch],
  ] as const;
  for (const [option, here, there] of said) {
    if (here === undefined || here === there) continue;
    throw new AutoparError(
      'bad-option',
      'usage',
      `${option} ${here}: the run that is resumed has ${there}, and goes on with the same order of samples`,
      {},
      'leave the option out',
    );
  }
}

/** @throws AutoparError `data-changed` (input), `bad-option` (usage) where no step is left to take */
export function checkResumed({ step, order }: TrainingState, { samples }: Dataset, steps: number): void {
  if (samples !== order.samples)
    throw new AutoparError(
      'data-changed',
      'input',
      `the data have ${samples} samples, and ${order.samples} in the run that is resumed`,
      {},
      'resume on the same data; to train weights further on others, export them and compile the result',
    );
  if (step < steps) return;
  throw new AutoparError(
    'bad-option',
    'usage',
    `the run that is resumed has taken ${step} steps, and ${steps} are asked for in all`,
    {},
    'give more --epochs or --steps: those taken before count',
  );
}
