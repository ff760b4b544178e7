/**
 * @file Running a compiled program on this machine: a session, several steps on the same inputs, and their time and memory.
 */
import type { Program } from '../program/program.js';
import { programFolder, readProgram } from '../program/reader.js';
import type { ConstantTensor, DType } from '../program/values.js';
import { checkInputs } from './check-run.js';
import {
  type Feeds,
  type Session,
  type SessionOptions,
  type StepOptions,
  type StepResult,
  startSession,
  type UnshardedTensors,
} from './session.js';
import { meanStatistics, type RankStatistics, sumOf } from './statistics.js';

/** Events of a run, for progress displays. */
export type RunProgress =
  | { readonly kind: 'loaded'; readonly rank: number; readonly ranks: number }
  | { readonly kind: 'step'; readonly step: number; readonly steps: number };

export interface RunOptions extends Omit<SessionOptions, 'onLoaded'> {
  /** The program, where it has been read and checked. */
  readonly program?: Program;
  /** Counted steps; 1 by default. All run on the same inputs. */
  readonly steps?: number;
  /** Steps before them that are not counted; 0 by default. */
  readonly warmup?: number;
  /** Local tensors to return whole: names, or every tensor that is a shard of one of the model's. */
  readonly collect?: readonly string[] | 'all';
  /** Whether to list when ranks ran each action and instruction of the last step. */
  readonly trace?: boolean;
  readonly onProgress?: (progress: RunProgress) => void;
}

export interface RunResult {
  /** Whole graph outputs of the last step; none where ranks are emulated. */
  readonly outputs: UnshardedTensors;
  /** Whole collected tensors of the last step, by local tensor. */
  readonly tensors: UnshardedTensors;
  /** Outputs that are one number (a loss), by name: their value in every counted step. */
  readonly history: Readonly<Record<string, readonly number[]>>;
  /** Wall time of each counted step: the longest over the ranks, from barrier to barrier. */
  readonly stepSeconds: readonly number[];
  /** Processor time of the whole process in a counted step, on average; whatever else the machine does counts little. */
  readonly processorSeconds: number;
  readonly ranks: readonly (RankStatistics & { readonly rank: number })[];
  /** Spans of the last step, by rank; empty where no trace was requested. */
  readonly spans: StepResult['spans'];
  /** Resident memory of the whole process when the ranks were done. */
  readonly rssBytes: number;
}

/**
 * Runs the program in `dir` (the output of `compile`, or the folder of program.json itself) on whole inputs (emulated ranks
 * need none). Throws AutoparError: exit input for a bad program, segment, shard or input; rankFailed for a rank that dies or
 * stalls; backendAbsent; interrupted. When it settles, no rank is left.
 */
export async function runProgram(dir: string, inputs: UnshardedTensors, options: RunOptions = {}): Promise<RunResult> {
  const program = options.program ?? (await readProgram(dir));
  if (!options.emulation) checkInputs(program, inputs);
  const session = await startSession(program, await programFolder(dir), {
    ...options,
    onLoaded: (rank, ranks) => options.onProgress?.({ kind: 'loaded', rank, ranks }),
  });
  try {
    return await runSteps(session, inputs, options);
  } finally {
    await session.close();
  }
}

/** Steps one after the other, numbered from `first` to `last` - 1. */
export interface StepLoop {
  readonly first: number;
  readonly last: number;
  /** The inputs of a step: read while the ranks run the step before. Null repeats the inputs of the step before. */
  readonly feed: (step: number) => UnshardedTensors | Feeds | null;
  readonly options: (step: number) => StepOptions;
  /** Ends the loop by throwing. */
  readonly after: (step: number, result: StepResult) => Promise<void> | void;
}

/** Runs steps of a session. Rethrows errors of `feed` and `after`, once the ranks have finished their step. */
export async function eachStep(session: Session, { first, last, feed, options, after }: StepLoop): Promise<void> {
  if (first >= last) return;
  let fed = feed(first);
  for (let step = first; step < last; step++) {
    const running =
      fed && 'byRank' in fed
        ? session.step(undefined, { ...options(step), feeds: fed as Feeds })
        : session.step((fed as UnshardedTensors | null) ?? undefined, options(step));
    const next = step + 1 < last ? attempt(() => feed(step + 1)) : () => null;
    await after(step, await running);
    fed = next();
  }
}

/** Its result or its error, to be had later. */
function attempt<Result>(run: () => Result): () => Result {
  try {
    const result = run();
    return () => result;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

async function runSteps(session: Session, inputs: UnshardedTensors, options: RunOptions): Promise<RunResult> {
  const { warmup = 0, collect = [] } = options;
  const counted = Math.max(1, options.steps ?? 1);
  const numbers = session.program.outputs.filter(isNumber).map(({ name }) => name);
  const history = Object.fromEntries(numbers.map((name): [string, number[]] => [name, []]));
  const stepSeconds: number[] = [];
  let processorSeconds = 0;
  let sums: readonly RankStatistics[] = [];
  let outputs: UnshardedTensors = {};
  let tensors: UnshardedTensors = {};
  let spans: StepResult['spans'] = [];
  const last = warmup + counted;
  await eachStep(session, {
    first: 0,
    last,
    feed: (step) => (step === 0 ? inputs : null),
    options: (step) => (step === last - 1 ? { collect, trace: options.trace === true } : { outputs: numbers }),
    after: (step, result) => {
      options.onProgress?.({ kind: 'step', step, steps: last });
      ({ outputs, tensors, spans } = result);
      if (step < warmup) return;
      stepSeconds.push(result.seconds);
      processorSeconds += result.processorSeconds;
      sums = result.ranks.map((rank, index) => (sums[index] ? sumOf(sums[index], rank) : rank));
      for (const name of numbers) if (result.outputs[name]) history[name]?.push(scalarIn(result.outputs[name]));
    },
  });
  return {
    outputs,
    tensors,
    spans,
    history: Object.fromEntries(Object.entries(history).filter(([, values]) => values.length > 0)),
    stepSeconds,
    processorSeconds: processorSeconds / counted,
    ranks: sums.map((sum, rank) => ({ rank, ...meanStatistics(sum, counted) })),
    rssBytes: process.memoryUsage.rss(),
  };
}

const READERS: Readonly<Partial<Record<DType, (view: DataView) => number>>> = {
  float32: (view) => view.getFloat32(0, true),
  float64: (view) => view.getFloat64(0, true),
};

function isNumber({ dtype, shape }: Session['program']['outputs'][number]): boolean {
  return READERS[dtype] !== undefined && shape.every((size) => size === 1);
}

/** The only number of a tensor. */
export function scalarIn({ dtype, data }: ConstantTensor): number {
  return READERS[dtype]?.(new DataView(data.buffer, data.byteOffset, data.byteLength)) ?? Number.NaN;
}
