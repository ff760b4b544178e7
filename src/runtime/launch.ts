/**
 * @file Starts the ranks' threads, receives their messages, and ends all of them in every case.
 */
import { availableParallelism, loadavg } from 'node:os';
import { setTimeout } from 'node:timers/promises';
import { MessageChannel, Worker } from 'node:worker_threads';
import type { Instruction, Program, ProgramAction } from '../program/program.js';
import { AutoparError, byteLength, elementCount } from '../program/values.js';
import { Control, type RankState } from './control.js';
import { keepFreedMemory } from './freed-memory.js';
import {
  type PlainError,
  type RankAnswer,
  type RankCommand,
  type RankMessage,
  type RankSetup,
  userError,
} from './messages.js';
import { withoutTelemetry } from './ort.js';
import type { PeerLine } from './shared-memory.js';
import { LOOK_MILLISECONDS, type Stall, StallWatch, stallLimits } from './watch.js';

export interface LaunchOptions {
  readonly stallSeconds: number;
  readonly signal: AbortSignal | undefined;
  /** Called when a rank has loaded. */
  readonly onLoaded: (rank: number, substitutes: readonly string[]) => void;
}

/** A command to all ranks at once, and the caller that waits for their answers. */
interface PendingCommand {
  readonly answers: Map<number, RankAnswer | null>;
  readonly resolve: (answers: readonly (RankAnswer | null)[]) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * One worker per setup, in order of rank. Any failure ends all of them, and rejects the current command: with AutoparError
 * `rank-failed` (exit rankFailed) for a rank that throws, ends or stalls; `interrupted`; or a rank's error about a file.
 */
export class Ranks {
  private readonly control: Control;
  private readonly workers: readonly Worker[];
  private readonly ends: readonly Promise<void>[];
  private command: PendingCommand | null = null;
  private failure: unknown = null;
  /** Settles when no thread is left; null while they are to run. */
  private ending: Promise<void> | null = null;

  private constructor(
    private readonly program: Program,
    private readonly setups: readonly RankSetup[],
    private readonly options: LaunchOptions,
  ) {
    this.control = new Control((setups[0] as RankSetup).control, setups.length);
    keepFreedMemory();
    this.workers = setups.map(startWorker);
    this.ends = this.workers.map((worker) => new Promise<void>((resolve) => worker.once('exit', () => resolve())));
    for (const [rank, worker] of this.workers.entries()) this.listenTo(rank, worker);
    options.signal?.addEventListener('abort', this.interrupt);
  }

  /** Starts the ranks, and waits until all have loaded. */
  static async start(program: Program, setups: readonly RankSetup[], options: LaunchOptions): Promise<Ranks> {
    if (options.signal?.aborted) throw interruption();
    const ranks = new Ranks(program, setups, options);
    await ranks.asking(() => undefined);
    return ranks;
  }

  /** Sends a command to every rank, and returns their answers in order of rank. One command at a time. */
  async ask(commandOf: (rank: number) => Exclude<RankCommand, { kind: 'close' }>): Promise<readonly RankAnswer[]> {
    const answers = await this.asking(() => {
      for (const [rank, worker] of this.workers.entries()) {
        const command = commandOf(rank);
        worker.postMessage(command, buffersOf(command));
      }
    });
    return answers as readonly RankAnswer[];
  }

  /** Ends all threads. When it settles none is left; the current command fails. */
  async close(): Promise<void> {
    if (this.command) this.fail(closed());
    this.failure ??= closed();
    this.ending ??= this.end();
    await this.ending;
  }

  private readonly interrupt = () => this.fail(interruption());

  private asking(begin: () => void): Promise<readonly (RankAnswer | null)[]> {
    if (this.failure) return Promise.reject(this.failure);
    if (this.command) return Promise.reject(busy());
    for (const worker of this.workers) worker.ref();
    const largest = largestBytes(this.program);
    const limits = () => stallLimits(this.options.stallSeconds, largest, threadsPerCore(this.workers.length));
    const watch = new StallWatch(this.control, this.workers.length, limits, performance.now());
    const timer = setInterval(() => {
      const stall = watch.look(performance.now());
      if (stall) this.fail(stallFailure(this.program, this.setups, this.control, stall));
    }, LOOK_MILLISECONDS);
    return new Promise<readonly (RankAnswer | null)[]>((resolve, reject) => {
      this.command = { answers: new Map(), resolve, reject };
      begin();
    }).finally(() => {
      clearInterval(timer);
      this.command = null;
      // A session that is never closed does not keep the process alive; one that ends is waited for.
      if (!this.ending) for (const worker of this.workers) worker.unref();
    });
  }

  private listenTo(rank: number, worker: Worker): void {
    const failed = (error: PlainError) => this.fail(rankFailure(this.program, this.setups, this.control, rank, error));
    worker.on('message', (message: RankMessage) => {
      if (message.kind === 'failed') return failed(message.error);
      if (message.kind === 'loaded') {
        try {
          this.options.onLoaded(rank, message.substitutes);
        } catch (error) {
          // Whoever asked for the ranks gets the error of their callback.
          return this.fail(error);
        }
      }
      const { command: question } = this;
      question?.answers.set(rank, message.kind === 'answer' ? message.answer : null);
      if (question?.answers.size === this.workers.length)
        question.resolve(this.workers.map((_, index) => question.answers.get(index) ?? null));
    });
    worker.on('error', (error) => failed({ message: error.message, stack: error.stack ?? '', user: null }));
    worker.on('exit', (code) => failed({ message: `its thread ended with code ${code}`, stack: '', user: null }));
  }

  /** The first failure counts. The caller receives it when no rank is left. */
  private fail(error: unknown): void {
    if (this.failure) return;
    this.failure = error;
    this.control.stop();
    this.ending ??= this.end();
    const { command: question } = this;
    void this.ending.then(() => question?.reject(error));
  }

  private async end(): Promise<void> {
    this.options.signal?.removeEventListener('abort', this.interrupt);
    for (const worker of this.workers) {
      worker.ref();
      worker.postMessage({ kind: 'close' } satisfies RankCommand);
    }
    await endWorkers(this.workers, this.ends, this.control);
    this.control.stop();
  }
}

/** The memory of a command's shards, which is transferred to the rank. */
function buffersOf(command: RankCommand): ArrayBuffer[] {
  const shards = command.kind === 'step' ? (command.feeds ?? {}) : command.kind === 'write' ? command.shards : {};
  const buffers = Object.values(shards)
    .flat()
    .map((shard) => shard.buffer as ArrayBuffer);
  return [...new Set(buffers)];
}

/** A thread stops within this time after the stop flag is set, unless it has stalled or a native call holds it. */
const END_MILLISECONDS = 500;

/** A native call returns within this time, unless it has stalled. */
const NATIVE_MILLISECONDS = 15_000;

/** States in which native code may hold the thread; a finished rank's thread is being torn down. */
const NATIVE: ReadonlySet<RankState> = new Set<RankState>(['loading', 'computing', 'finished']);

function startWorker(setup: RankSetup): Worker {
  withoutTelemetry();
  return new Worker(new URL('./rank.js', import.meta.url), {
    name: `autopar rank ${setup.rank}`,
    workerData: setup,
    transferList: setup.lines.map((line) => line.port),
    execArgv: [],
  });
}

/** Threads that want a core at once: so many ranks, or the mean of all programs over the last minute (0 on Windows). */
function threadsPerCore(ranks: number): number {
  return Math.max(ranks, loadavg()[0] ?? 0) / availableParallelism();
}

/** Bytes of the largest tensor that a rank may have to copy or add up. */
function largestBytes(program: Program): number {
  const tensors = program.stages.flatMap((stage) => Object.values(stage.tensors));
  return tensors.reduce(
    (most, { dtype, localShape }) => Math.max(most, byteLength(dtype, elementCount(localShape))),
    0,
  );
}

/**
 * Lets threads end by themselves: they are done, or see the stop flag at their next instruction. A thread that does not end
 * is terminated, but never inside a native call (that would abort the process): such a thread gets more time,
 * and after that it is left to end when its call returns.
 */
async function endWorkers(workers: readonly Worker[], ends: readonly Promise<void>[], control: Control): Promise<void> {
  const left = new Set(workers.keys());
  const all = Promise.all(ends.map((end, rank) => end.then(() => left.delete(rank))));
  const from = performance.now();
  while (left.size > 0 && performance.now() - from < NATIVE_MILLISECONDS) {
    if (performance.now() - from > END_MILLISECONDS) {
      for (const rank of left) if (!NATIVE.has(control.position(rank).state)) void workers[rank]?.terminate();
    }
    await Promise.race([all, setTimeout(LOOK_MILLISECONDS, undefined, { ref: false })]);
  }
  for (const worker of workers) worker.unref();
}

function closed(): AutoparError {
  return new AutoparError('session-closed', 'usage', 'the session is closed', {}, 'open another one');
}

function busy(): AutoparError {
  const message = 'the session is asked while it works on the call before';
  return new AutoparError('session-busy', 'usage', message, {}, 'await that call first, or open a session for each');
}

function interruption(): AutoparError {
  return new AutoparError('interrupted', 'interrupted', 'the run was interrupted; all ranks have been stopped');
}

function rankFailure(
  program: Program,
  setups: readonly RankSetup[],
  control: Control,
  rank: number,
  error: PlainError,
): AutoparError {
  const meant = userError(error);
  if (meant) return meant;
  const place = placeOf(program, setups, control, rank);
  return new AutoparError(
    'rank-failed',
    'rankFailed',
    `rank ${rank} failed ${place.words}: ${error.message}`,
    place.tensor === null ? {} : { tensor: place.tensor },
    'all other ranks have been stopped',
  );
}

function stallFailure(
  program: Program,
  setups: readonly RankSetup[],
  control: Control,
  { rank, seconds, all }: Stall,
): AutoparError {
  const place = placeOf(program, setups, control, rank);
  const time = `${seconds.toFixed(1)} s`;
  return new AutoparError(
    'rank-failed',
    'rankFailed',
    all
      ? `all ranks have been waiting for each other for ${time}; rank ${rank} ${place.words}`
      : `rank ${rank} has made no progress for ${time} ${place.words}, while others wait for it`,
    place.tensor === null ? {} : { tensor: place.tensor },
    'all ranks have been stopped; if the machine is only slow, run fewer programs at a time, or raise stallSeconds (JavaScript)',
  );
}

function placeOf(
  program: Program,
  setups: readonly RankSetup[],
  control: Control,
  rank: number,
): { readonly words: string; readonly tensor: string | null } {
  const { action, instruction: index } = control.position(rank);
  const setup = setups[rank] as RankSetup;
  const phase = setup.actions[action]?.phase;
  const list = phase === undefined ? undefined : setup.stage.phases[phase];
  const instruction = list?.[index];
  if (!list || !instruction) return { words: 'while loading', tensor: null };
  const { what, tensor } = describe(instruction, list);
  const stage = program.stages.length > 1 ? ` of stage ${setup.stageIndex}` : '';
  return { words: `at instruction ${index}${stage} (${what}), tensor ${tensor}`, tensor };
}

function describe(instruction: Instruction, list: readonly Instruction[]): { what: string; tensor: string } {
  if (instruction.kind === 'compute') {
    return { what: `compute ${instruction.label}`, tensor: instruction.outputs[0] ?? '(none)' };
  }
  if (instruction.kind === 'start') {
    return { what: `${instruction.collective.kind} ${instruction.label}`, tensor: instruction.output };
  }
  if (instruction.kind === 'wait') {
    const start = list.find((other) => other.kind === 'start' && other.id === instruction.id);
    return start ? describe(start, list) : { what: 'wait', tensor: '(none)' };
  }
  if (instruction.kind === 'accumulate' || instruction.kind === 'move') {
    return { what: `${instruction.kind} ${instruction.label}`, tensor: instruction.output };
  }
  if (instruction.kind === 'free') return { what: 'free', tensor: instruction.tensors[0] ?? '(none)' };
  return { what: `${instruction.kind} ${instruction.label}`, tensor: instruction.tensor };
}

/** The actions of one stage, in order. */
export function actionsOfStage(program: Program, stage: number): readonly ProgramAction[] {
  return program.schedule.filter((action) => action.stage === stage);
}

/** Lines between rank i of one stage and rank i of another wherever the program sends between them; by rank. */
export function makeLines(program: Program, ranksPerStage: number): readonly (readonly PeerLine[])[] {
  const lines: PeerLine[][] = Array.from({ length: ranksPerStage * program.stages.length }, () => []);
  for (const [low, high] of stagePairs(program)) {
    for (let index = 0; index < ranksPerStage; index++) {
      const { port1, port2 } = new MessageChannel();
      const [up, down] = [new SharedArrayBuffer(4), new SharedArrayBuffer(4)];
      const [lower, upper] = [low * ranksPerStage + index, high * ranksPerStage + index];
      lines[lower]?.push({ peer: upper, port: port1, sent: up, received: down });
      lines[upper]?.push({ peer: lower, port: port2, sent: down, received: up });
    }
  }
  return lines;
}

function stagePairs(program: Program): readonly (readonly [number, number])[] {
  const pairs = new Map<string, readonly [number, number]>();
  for (const [stage, { phases }] of program.stages.entries()) {
    for (const instruction of Object.values(phases).flat()) {
      if (instruction.kind !== 'send' && instruction.kind !== 'recv') continue;
      const pair = [Math.min(stage, instruction.stage), Math.max(stage, instruction.stage)] as const;
      pairs.set(pair.join(), pair);
    }
  }
  return [...pairs.values()];
}
