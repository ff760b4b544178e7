/**
 * @file The checkpoints of a training run: their folders, which ones are kept, and from which one a run resumes.
 *
 *     DIR/checkpoints/lock              the process that trains here
 *     DIR/checkpoints/step-N/           after N steps
 */
import { readdir, rmdir } from 'node:fs/promises';
import path from 'node:path';
import { byteLength } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { isCount } from '../../ir/experts/dispatch-experts.js';
import { elementCount } from '../../ir/graph.js';
import { makeParents, removeFolderAtomic, syncFolder, writeFolderAtomic } from '../../program/atomic.js';
import { type Checkpoint, type CheckpointRun, readManifest, writeManifest } from '../../program/checkpoint.js';
import { removeLeftoversIn } from '../../program/leftovers.js';
import { takeLock } from '../../program/lock.js';
import type { Session } from '../../runtime/session.js';
import { dispatchOf } from '../models/dispatch.js';
import { CHECKPOINTS, type CompiledParts, stepsIn, TRAINING_LOCK, TRAINING_WRITES } from '../output/folder.js';

/** Progress of a training run. */
export interface TrainingProgress {
  /** Completed steps. */
  readonly step: number;
  /** Position in the data, and other state of the run. */
  readonly state: Readonly<Record<string, unknown>>;
}

/** A checkpoint to resume from. */
export interface FoundCheckpoint {
  /** The checkpoint's folder. */
  readonly folder: string;
  readonly checkpoint: Checkpoint;
  /** Differences between the run and the one that wrote the checkpoint; empty if there are none. */
  readonly notes: readonly string[];
}

/** Size and write time of one checkpoint. */
export interface Saved {
  readonly folder: string;
  readonly bytes: number;
  readonly seconds: number;
}

/** Number of checkpoints that are kept by default. */
const KEPT_CHECKPOINTS = 3;

/** The checkpoints of one run, which holds the folder's lock until it is closed. */
export class Checkpoints {
  private constructor(
    private readonly root: string,
    private readonly parts: CompiledParts,
    private readonly keep: number,
    private readonly release: () => Promise<void>,
  ) {}

  /**
   * @param directory the folder that compile wrote; `parts` are its contents
   * @param keep number of newest checkpoints to keep
   * @throws AutoparError (cannotWrite) `folder-in-use` if another run uses the folder
   */
  static async open(directory: string, parts: CompiledParts, keep = KEPT_CHECKPOINTS): Promise<Checkpoints> {
    const root = path.join(directory, CHECKPOINTS);
    await makeParents(root);
    const release = await takeLock(path.join(directory, TRAINING_LOCK), TRAINING_WRITES);
    try {
      await removeLeftoversIn(root);
      return new Checkpoints(root, parts, keep, release);
    } catch (error) {
      await release();
      throw error;
    }
  }

  /** Releases the folder's lock; a folder that has no checkpoint, since the run was refused, is removed. */
  async close(): Promise<void> {
    await this.release();
    await rmdir(this.root).catch(() => undefined);
  }

  /**
   * Refuses to start a new run that would overwrite checkpoints of an earlier run.
   * @throws AutoparError (usage) `checkpoints-there`
   */
  async checkNone(): Promise<void> {
    const last = (await stepsIn(this.root)).at(-1);
    if (last === undefined) return;
    throw new AutoparError(
      'checkpoints-there',
      'usage',
      `${this.root} has checkpoints of an earlier run, the last after step ${last}`,
      { file: this.root },
      'continue it with --resume; to start again, remove the folder or compile into another one',
    );
  }

  /**
   * The checkpoint that a run resumes from; `Session.restore` reads its tensors.
   * @param from the checkpoint's folder, or a folder of several checkpoints, of which the newest is used; by default this run's
   * @throws AutoparError (input) `no-checkpoint`, `bad-checkpoint`, `newer-checkpoint`, `checkpoint-mismatch`
   */
  async find(from?: string): Promise<FoundCheckpoint> {
    const folder = await checkpointIn(from ?? this.root);
    const checkpoint = await readManifest(folder);
    return { folder, checkpoint, notes: checkSameModel(checkpoint, this.parts, folder) };
  }

  /**
   * Writes a checkpoint, and removes the oldest beyond the number to keep. Checkpoints of later steps are of a run that this
   * one has rolled back: they are removed too.
   * @throws AutoparError (cannotWrite); existing checkpoints stay, and the session continues
   */
  async save(session: Session, { step, state }: TrainingProgress): Promise<Saved> {
    const from = performance.now();
    const folder = path.join(this.root, `step-${step}`);
    let bytes = 0;
    await writeFolderAtomic(folder, async (temporary) => {
      const tensors = await session.save(temporary);
      bytes = bytesOf(tensors);
      const { format, version } = HEAD;
      await writeManifest(temporary, { format, version, step, state, run: runOf(this.parts), tensors });
      await syncFolder(temporary);
    });
    await syncFolder(this.root);
    const seconds = (performance.now() - from) / 1000;
    const steps = await stepsIn(this.root);
    const kept = steps.filter((other) => other <= step).slice(-this.keep);
    for (const old of steps) if (!kept.includes(old)) await removeFolderAtomic(path.join(this.root, `step-${old}`));
    return { folder, bytes, seconds };
  }
}

const HEAD = { format: 'autopar-checkpoint', version: 1 } as const;

/**
 * The folder of one checkpoint: the folder itself, or the newest checkpoint in it or in its folder `checkpoints`.
 * @throws AutoparError `no-checkpoint` (input)
 */
export async function checkpointIn(folder: string): Promise<string> {
  const names = await readdir(folder).catch((): string[] => []);
  if (names.includes('manifest.json')) return folder;
  const root = names.includes(CHECKPOINTS) ? path.join(folder, CHECKPOINTS) : folder;
  const last = (await stepsIn(root)).at(-1);
  if (last !== undefined) return path.join(root, `step-${last}`);
  throw new AutoparError(
    'no-checkpoint',
    'input',
    `${folder} holds no checkpoint`,
    { file: folder },
    'write some with: autopar train DIR --data FILE --checkpoint-every STEPS',
  );
}

function bytesOf(tensors: Checkpoint['tensors']): number {
  return Object.values(tensors).reduce((sum, { dtype, shape }) => sum + byteLength(dtype, elementCount(shape)), 0);
}

function runOf({ plan, program }: CompiledParts): CheckpointRun {
  const { inputs, outputs } = program;
  // Only some plans have outputs that count the tokens sent to experts.
  const read = outputs.filter(({ name }) => !isCount(name));
  const values = [...inputs, ...read].map(({ name, dtype, shape }) => `${name} ${dtype} [${shape.join(', ')}]`);
  return {
    model: program.model.name,
    fingerprint: program.model.fingerprint,
    interface: [...new Set(values)],
    microBatches: inputs.find(({ microBatches }) => microBatches)?.microBatches?.count ?? 1,
    training: { ...plan.training, ...dispatchOf(plan.passes) },
    passes: plan.passes,
  };
}

/**
 * The permitted differences between this run and the one that wrote the checkpoint.
 * @throws AutoparError `checkpoint-mismatch` (input) if their models differ
 */
export function checkSameModel({ run: there }: Checkpoint, parts: CompiledParts, folder: string): readonly string[] {
  const here = runOf(parts);
  const says = (key: keyof typeof LABELS, value = (run: CheckpointRun) => JSON.stringify(run[key])) =>
    value(there) === value(here) ? [] : [`${LABELS[key]} ${value(here)}, and ${value(there)} in the checkpoint`];
  const names = (run: CheckpointRun) => run.interface.map((text) => text.replace(/ \[.*/, '')).join(', ');
  const isOther = says('interface', names);
  const free = [...differences(there.training, here.training, ''), ...says('microBatches'), ...says('interface')];
  // The same batch, loss and optimizer give the same graph for the same model, unless passes rewrote it for its ranks.
  const isSame = [undefined, JSON.stringify(here.passes)].includes(there.passes && JSON.stringify(there.passes));
  if (isOther.length === 0 && free.length === 0 && isSame && there.fingerprint !== here.fingerprint)
    isOther.push(`operators, shapes or constants of ${here.model} are not those of ${there.model}`);
  if (isOther.length === 0) return free;
  throw new AutoparError(
    'checkpoint-mismatch',
    'input',
    `the checkpoint is of another model: ${isOther.join('; ')}`,
    { file: folder },
    'resume with a program of the model that wrote it',
  );
}

/** Differences in loss and optimizer, each as `optimizer.learningRate is 0.02, and 0.01 in the checkpoint`. */
function differences(there: unknown, here: unknown, at: string): readonly string[] {
  const [before, now] = [there, here].map((value) => (typeof value === 'object' && value !== null ? value : null));
  if (before && now)
    return [...new Set([...Object.keys(before), ...Object.keys(now)])].flatMap((key) =>
      differences(Reflect.get(before, key), Reflect.get(now, key), at === '' ? key : `${at}.${key}`),
    );
  const [was, is] = [there, here].map((value) => (value === undefined ? 'not given' : JSON.stringify(value)));
  return was === is ? [] : [`${at} is ${is}, and ${was} in the checkpoint`];
}

const LABELS = {
  microBatches: 'micro-batches are',
  interface: 'inputs and outputs are',
} as const satisfies Partial<Record<keyof CheckpointRun, string>>;
