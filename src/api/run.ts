/**
 * @file run: a compiled program on this machine's ranks.
 */
import { listening } from '../ir/interruption.js';
import { type RunOptions, type RunProgress, type RunResult, runProgram } from '../runtime/run-program.js';
import type { Arrays } from './arrays.js';
import { readRunnable } from './compiled-model.js';
import { randomInputs, readInputs } from './inputs.js';
import { checkLabels, labelBounds } from './labels.js';
import { openCompiled } from './verify.js';

/** What a run gives: outputs, step times, and what each rank did. */
export type RunReport = RunResult;

export interface RunCompiledOptions {
  /** The folder that compile wrote. */
  readonly directory: string;
  /** .npy, .npz, .pb, or a folder; random where not given. */
  readonly inputs?: string;
  readonly seed?: number;
  readonly steps?: number;
  readonly threadsPerRank?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

/** Runs `steps` steps (default 1) after one that is not counted. @throws AutoparError for everything the user can mend. */
export async function runCompiled(options: RunCompiledOptions): Promise<RunReport> {
  const inputs = await arraysFor(options);
  const { program } = await readRunnable(options.directory);
  const runtime: RunOptions = {
    steps: options.steps ?? 1,
    // A step of training changes the weights: none is for warming up.
    warmup: program.state ? 0 : 1,
    ...(options.threadsPerRank === undefined ? {} : { threadsPerRank: options.threadsPerRank }),
    ...(options.signal ? { signal: options.signal } : {}),
    ...(options.onProgress ? { onProgress: (progress) => options.onProgress?.(progressText(progress)) } : {}),
  };
  return listening(options.signal, () => runProgram(options.directory, inputs, runtime));
}

/** Random indices must fit the tables they look up, which only the model tells; given arrays need no model. */
async function arraysFor(options: RunCompiledOptions): Promise<Arrays> {
  if (options.inputs) {
    const { program, plan } = await readRunnable(options.directory);
    const arrays = await readInputs(options.inputs, program.inputs);
    checkLabels(arrays, plan.training, options.inputs);
    return arrays;
  }
  const { imported } = await openCompiled(options.directory, { withValues: false });
  return randomInputs(imported.graph, options.seed ?? 0, labelBounds(imported.training));
}

function progressText(progress: RunProgress): string {
  if (progress.kind === 'loaded') return `rank ${progress.rank} of ${progress.ranks} is ready`;
  return `step ${progress.step + 1} of ${progress.steps}`;
}
