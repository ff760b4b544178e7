/**
 * @file run: runs a compiled program on this machine's ranks.
 */
import { listening } from '../ir/interruption.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import { checkPlace } from '../program/atomic.js';
import type { EmulatedLink } from '../runtime/messages.js';
import { type RunOptions, type RunProgress, type RunResult, runProgram } from '../runtime/run-program.js';
import { type RankResources, resourcesOf } from '../runtime/session.js';
import type { Plan } from '../strategy/plan.js';
import type { Arrays } from './execution/arrays.js';
import type { RunBackend } from './execution/backends.js';
import { emulationOf } from './execution/emulation.js';
import { randomInputs, readInputs } from './execution/inputs.js';
import { checkValues, labelBounds } from './execution/labels.js';
import { readRunnable } from './models/compiled-model.js';
import type { CompiledParts } from './output/folder.js';
import { clusterOf } from './planning/lower-plan.js';
import { type ExpertLoad, expertLoads } from './reports/expert-load.js';
import { writeSpans } from './reports/timeline.js';
import { openCompiled } from './verify.js';

export type { OutsideStatistics as OutsideBytes } from '../runtime/statistics.js';

/** The results of a run: outputs, step times, and statistics of each rank. */
export interface RunReport extends RunResult {
  /** `emulated`: ranks waited for the predicted time of their work, and there are no outputs. */
  readonly backend: RunBackend;
  /** The link between emulated ranks. */
  readonly link?: EmulatedLink;
  /** The cluster and step time that the plan was made for, if it is not this machine. */
  readonly planned?: Omit<Plan['cluster'], 'description'> & { readonly stepSeconds: number };
  /** Load of the experts to which tokens are dispatched, in the last step; left out if there are none. */
  readonly experts?: readonly ExpertLoad[];
}

export interface RunCompiledOptions extends Omit<RankResources, 'backend'> {
  /** The folder that compile wrote. */
  readonly directory: string;
  /** .npy, .npz, .pb, or a folder; random by default. */
  readonly inputs?: string;
  readonly seed?: number;
  readonly steps?: number;
  readonly threadsPerRank?: number;
  /** The backend that computes (default: `cpu`); `emulated` waits for the predicted time instead. */
  readonly backend?: RunBackend;
  /** Link between emulated ranks: bandwidth and latency, `10GB/s,20us`; by default that of the plan's cluster. */
  readonly link?: string;
  /** A file for the timeline of the ranks in the last step, for Perfetto and chrome://tracing. */
  readonly trace?: string;
  /** Whether `spans` of the report holds the timeline of the ranks in the last step. */
  readonly timed?: boolean;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

/** Runs `steps` steps (default 1) after a warm-up step. @throws AutoparError for everything the user can fix. */
export async function runCompiled(options: RunCompiledOptions): Promise<RunReport> {
  if (options.trace !== undefined) await checkPlace(options.trace);
  const parts = await readRunnable(options.directory);
  const { program, plan } = parts;
  const { backend = 'cpu', ...others } = options;
  const emulation = backend === 'emulated' ? emulationOf(program, plan, options.link) : undefined;
  const inputs = emulation ? {} : await arraysFor(options, parts);
  const runtime: RunOptions = {
    program,
    steps: options.steps ?? 1,
    // A training step changes the weights: there is no warm-up step.
    warmup: program.state ? 0 : 1,
    trace: options.trace !== undefined || options.timed === true,
    ...withoutUndefined({ threadsPerRank: options.threadsPerRank, emulation, signal: options.signal }),
    ...resourcesOf(backend === 'emulated' ? others : { ...others, backend }),
    ...(options.onProgress ? { onProgress: (progress) => options.onProgress?.(runProgressText(progress)) } : {}),
  };
  const result = await listening(options.signal, () => runProgram(options.directory, inputs, runtime));
  if (options.trace !== undefined) await writeSpans(options.trace, program, result.spans);
  const experts = expertLoads(plan, result.outputs);
  return {
    ...result,
    backend,
    ...(emulation ? { link: emulation.link } : {}),
    ...(clusterOf(plan).local ? {} : { planned: plannedFor(plan) }),
    ...(experts.length > 0 ? { experts } : {}),
  };
}

function plannedFor({ cluster: { nodes, perNode, device }, predicted: { stepSeconds } }: Plan) {
  return { nodes, perNode, device, stepSeconds };
}

/** Reads or draws inputs. Only the model states the tables that random indices must fit; given arrays need no model. */
async function arraysFor(options: RunCompiledOptions, parts: CompiledParts): Promise<Arrays> {
  if (options.inputs) {
    const arrays = await readInputs(options.inputs, parts.program.inputs);
    checkValues(arrays, parts.program.inputs, parts.plan.training, options.inputs);
    return arrays;
  }
  const { imported } = await openCompiled(options.directory, { withValues: false, parts });
  return randomInputs(imported.graph, options.seed ?? 0, labelBounds(imported.training));
}

function runProgressText(progress: RunProgress): string {
  if (progress.kind === 'loaded') return `rank ${progress.rank} of ${progress.ranks} is ready`;
  return `step ${progress.step + 1} of ${progress.steps}`;
}
