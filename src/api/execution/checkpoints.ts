/**
 * @file The checkpoints of a training: where they are, which are kept, and from which one a run goes on.
 *
 *     DIR/checkpoints/lock              who trains here
 *     DIR/checkpoints/step-N/           after N steps
 */
import { readdir } from 'node:fs/promises';
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
import { CHECKPOINTS, type CompiledParts, stepsIn } from '../output/folder.js';

/** How far a training is. */
export interface TrainingProgress {
  /** Steps that are done. */
  readonly step: number;
  /** Where the data are read on, and the like. */
  readonly state: Readonly<Record<string, unknown>>;
}

/** A checkpoint to go on from. */
export interface FoundCheckpoint {
  /** The checkpoint's folder. */
  readonly folder: string;
  readonly checkpoint: Checkpoint;
  /** How the run differs from the one that wrote it; empty where it is the same. */
  readonly notes: readonly string[];
}

/** What one checkpoint took. */
export interface Saved {
  readonly folder: string;
  readonly bytes: number;
  readonly seconds: number;
}

/** Checkpoints that are kept where nothing is said. */
const KEPT = 3;

/** The checkpoints of one run, which holds the folder's lock until it is closed. */
export class Checkpoints {
  private constructor(
    private readonly root: string,
    private readonly parts: CompiledParts,
    private readonly keep: number,
    private readonly release: () => Promise<void>,
  ) {}

  /**
   * @param directory what compile wrote, and `parts` what it holds
   * @param keep how many are kept, the newest
   * @throws AutoparError (cannotWrite) `folder-in-use` where another run is at work in the folder
   */
  static async open(directory: string, parts: CompiledParts, keep = KEPT): Promise<Checkpoints> {
    const root = path.join(directory, CHECKPOINTS);
    await makeParents(root);
    const release = await takeLock(path.join(root, 'lock'), 'a training writes checkpoints to this folder');
    try {
      await removeLeftoversIn(root);
      return new Checkpoints(root, parts, keep, release);
    } catch (error) {
      await release();
      throw error;
    }
  }

  /** Lets other runs in. */
  close(): Promise<void> {
    return this.release();
  }

  /**
   * Refuses to begin anew where checkpoints of an earlier run would be overwritten.
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
      'continue it with --resume; to begin anew, remove the folder or compile into another one',
    );
  }

  /**
   * The checkpoint that a run goes on from; `Session.restore` reads its tensors.
   * @param from the checkpoint's folder, or one that holds several, of which the newest is taken; this run's own by default
   * @throws AutoparError (input) `no-checkpoint`, `bad-checkpoint`, `newer-checkpoint`, `checkpoint-mismatch`
   */
  async find(from?: string): Promise<FoundCheckpoint> {
    const folder = await checkpointIn(from ?? this.root);
    const checkpoint = await readManifest(folder);
    return { folder, checkpoint, notes: checkSameModel(checkpoint, this.parts, folder) };
  }

  /**
   * Writes a checkpoint, and removes those that are too many. Checkpoints of later steps are of a run that this one has gone
   * back behind: they go too.
   * @throws AutoparError (cannotWrite); what was there stays, and the session goes on
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
 * The folder of one checkpoint: itself, or the newest in it, in its folder `checkpoints`.
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
  // Counts of what experts are sent are there in some plans alone.
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
 * How this run differs from the one that wrote the checkpoint, where it may.
 * @throws AutoparError `checkpoint-mismatch` (input) where their models differ
 */
export function checkSameModel({ run: there }: Checkpoint, parts: CompiledParts, folder: string): readonly string[] {
  const here = runOf(parts);
  const says = (key: keyof typeof LABELS, value = (run: CheckpointRun) => JSON.stringify(run[key])) =>
    value(there) === value(here) ? [] : [`${LABELS[key]} ${value(here)}, and ${value(there)} in the checkpoint`];
  const names = (run: CheckpointRun) => run.interface.map((text) => text.replace(/ \[.*/, '')).join(', ');
  const isOther = says('interface', names);
  const free = [...differences(there.training, here.training, ''), ...says('microBatches'), ...says('interface')];
  // The same batch, loss and optimizer make the same graph of the same model, unless it was written out for its ranks.
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

/** Of loss and optimizer what is another, each as `optimizer.learningRate is 0.02, and 0.01 in the checkpoint`. */
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
