/**
 * @file Starting the ranks' threads, listening to them, and ending all of them whatever happens.
 */
import { availableParallelism } from 'node:os';
import { setTimeout } from 'node:timers/promises';
import { MessageChannel, Worker } from 'node:worker_threads';
import type { Instruction, Program, ProgramAction } from '../program/program.js';
import { AutoparError, byteLength, elementCount } from '../program/values.js';
import { Control, type RankState } from './control.js';
import { keepFreedMemory } from './freed-memory.js';
import type { PlainError, RankMessage, RankSetup } from './messages.js';
import type { PeerLine } from './shared-memory.js';
import { StallWatch, stallLimits } from './watch.js';

export type RankDone = Extract<RankMessage, { kind: 'done' }>;

export interface LaunchOptions {
  readonly stallSeconds: number;
  readonly signal: AbortSignal | undefined;
  readonly onMessage: (rank: number, message: RankMessage) => void;
}

/**
 * Runs one worker per setup (in order of rank) and gives their last words. Throws AutoparError: `rank-failed` (exit
 * rankFailed) for a rank that throws, ends or stalls; `interrupted`; or what a rank found wrong with a file.
 */
export async function launch(
  program: Program,
  setups: readonly RankSetup[],
  options: LaunchOptions,
): Promise<readonly RankDone[]> {
  const first = setups[0] as RankSetup;
  const control = new Control(first.control, setups.length);
  keepFreedMemory();
  const workers = setups.map(startWorker);
  const ends = workers.map((worker) => new Promise<void>((resolve) => worker.once('exit', () => resolve())));
  try {
    return await listen(program, setups, workers, control, options);
  } finally {
    control.stop();
    await endWorkers(workers, ends, control);
  }
}

/** A thread that is told to stop does so within this time, unless it has stalled or a native call holds it. */
const END_MILLISECONDS = 500;

/** A native call returns within this time, unless it has stalled. */
const NATIVE_MILLISECONDS = 15_000;

/** States in which native code may hold the thread; a finished rank's thread is being torn down. */
const NATIVE: ReadonlySet<RankState> = new Set<RankState>(['loading', 'computing', 'finished']);

/** How often the watch looks. */
const LOOK_MILLISECONDS = 100;

function startWorker(setup: RankSetup): Worker {
  return new Worker(new URL('./rank.js', import.meta.url), {
    name: `autopar rank ${setup.rank}`,
    workerData: setup,
    transferList: [
      ...setup.lines.map((line) => line.port),
      ...new Set(
        Object.values(setup.feeds)
          .flat()
          .map((block) => block.buffer as ArrayBuffer),
      ),
    ],
    execArgv: [],
  });
}

function listen(
  program: Program,
  setups: readonly RankSetup[],
  workers: readonly Worker[],
  control: Control,
  options: LaunchOptions,
): Promise<readonly RankDone[]> {
  return new Promise((resolve, reject) => {
    const done = new Map<number, RankDone>();
    const perCore = workers.length / availableParallelism();
    const limits = stallLimits(options.stallSeconds, largestBytes(program), perCore);
    const watch = new StallWatch(control, workers.length, limits, performance.now());
    const timer = setInterval(() => {
      const stall = watch.look(performance.now());
      if (stall) settle(() => reject(stallFailure(program, setups, control, stall.rank, stall.seconds, stall.all)));
    }, LOOK_MILLISECONDS);
    const settle = (finish: () => void) => {
      clearInterval(timer);
      options.signal?.removeEventListener('abort', interrupted);
      finish();
    };
    const interrupted = () => settle(() => reject(interruption()));
    const failed = (rank: number, error: PlainError) =>
      settle(() => reject(rankFailure(program, setups, control, rank, error)));
    if (options.signal?.aborted) return interrupted();
    options.signal?.addEventListener('abort', interrupted);
    for (const [rank, worker] of workers.entries()) {
      worker.on('message', (message: RankMessage) => {
        options.onMessage(rank, message);
        if (message.kind === 'failed') failed(rank, message.error);
        if (message.kind !== 'done') return;
        done.set(rank, message);
        if (done.size === workers.length) settle(() => resolve(workers.map((_, index) => done.get(index) as RankDone)));
      });
      worker.on('error', (error) => {
        failed(rank, { message: error.message, stack: error.stack ?? '', user: null });
      });
      worker.on('exit', (code) => {
        if (!done.has(rank)) failed(rank, { message: `its thread ended with code ${code}`, stack: '', user: null });
      });
    }
  });
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
 * Lets threads end by themselves: they are done, or have been told to stop and notice at their next instruction. One that
 * does not is ended, but never inside a native call (that would abort the process): for those there is more patience,
 * after which such a thread is left to end when its call returns.
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
  if (error.user) {
    const { code, exit, where, hint } = error.user;
    return new AutoparError(code, exit, error.message, where, hint);
  }
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
  rank: number,
  seconds: number,
  all: boolean,
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
    'all ranks have been stopped; if the machine is merely slow, raise stallSeconds',
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
  if (instruction.kind === 'accumulate') {
    return { what: `accumulate ${instruction.label}`, tensor: instruction.output };
  }
  if (instruction.kind === 'free') return { what: 'free', tensor: instruction.tensors[0] ?? '(none)' };
  return { what: `${instruction.kind} ${instruction.label}`, tensor: instruction.tensor };
}

/** The actions of one stage, in order. */
export function actionsOf(program: Program, stage: number): readonly ProgramAction[] {
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
