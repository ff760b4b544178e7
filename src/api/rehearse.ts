/**
 * @file rehearse: runs a plan for more devices than this machine has at reduced sizes on ranks of this machine. The plan's own
 * entries are lowered for a smaller model on a smaller mesh, run, and compared with one rank. The kinds of operations of the plan
 * are compared with those of the rehearsal.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { emitProgram } from '../codegen/emit.js';
import type { GeneratedProgram } from '../codegen/program-of.js';
import { interruptible, listening } from '../ir/interruption.js';
import { checkStages } from '../partition/check.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { checkProgram } from '../program/check-program.js';
import type { Program } from '../program/program.js';
import { readProgram } from '../program/reader.js';
import { readPlan } from '../strategy/plan-json.js';
import { compiledModel } from './models/compiled-model.js';
import { loweredOfPlan } from './models/inference-precision.js';
import { readSource } from './output/folder.js';
import { clusterOf, programOfPlan } from './planning/lower-plan.js';
import {
  needOf,
  type RehearsalLimits,
  type RehearsalNeed,
  refuseUnaffordable,
  rehearsalLimits,
  rehearsalOutOfTime,
} from './rehearsal/affordable.js';
import { bigPlan } from './rehearsal/big-plan.js';
import { type Coverage, comparedCoverage } from './rehearsal/compared-coverage.js';
import { type SmallPlan, smallPlan } from './rehearsal/small-plan.js';
import type { ReducedSize } from './rehearsal/smaller-models.js';
import { checkModel } from './rehearsal/stated-model.js';
import { type VerifyResult, verifyCompiled } from './verify.js';

export interface RehearseOptions {
  /** The folder that compile wrote. */
  readonly directory: string;
  /** The model file; by default the path from which it was compiled. */
  readonly model?: string;
  /** Maximum number of ranks of this machine. */
  readonly ranks?: number;
  /** Bytes that all ranks together may need; by default the free memory. */
  readonly memory?: number;
  /** Time limit in seconds; 600 by default. */
  readonly timeLimit?: number;
  /** Seed of random weights and inputs. */
  readonly seed?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (text: string) => void;
}

export interface Rehearsal {
  readonly passed: boolean;
  readonly ranks: number;
  readonly limits: RehearsalLimits;
  /** Predicted memory and time. */
  readonly need: RehearsalNeed;
  readonly reduced: readonly ReducedSize[];
  readonly notes: readonly string[];
  readonly coverage: Coverage;
  /** Errors of the checks of the lowered plan, the lowered rehearsal and its program; with errors the program is not run. */
  readonly problems: readonly string[];
  /** Null if the program was not run. */
  readonly verification: VerifyResult | null;
}

/** Hooks for tests, which change the forms of the plan between the steps. */
export interface RehearsalHooks {
  /** Changes the lowered form of the plan. */
  readonly plan?: (stages: readonly LoweredStage[]) => readonly LoweredStage[];
  /** Changes the lowered form of the rehearsal. */
  readonly lowered?: (stages: readonly LoweredStage[]) => readonly LoweredStage[];
  readonly program?: (program: Program) => Program;
  /** Receives the folder that holds the rehearsal's program, before it is run. */
  readonly folder?: (directory: string) => void;
}

/**
 * @throws AutoparError if the folder cannot be used; (noPlan) `no-rehearsal` if the plan has no form at reduced sizes,
 * `rehearsal-too-large` if it needs more memory or time than the limits
 */
export async function rehearse(options: RehearseOptions, hooks: RehearsalHooks = {}): Promise<Rehearsal> {
  const limits = rehearsalLimits(options);
  let doing = 'reading the plan';
  const onProgress = (text: string) => {
    doing = text;
    options.onProgress?.(text);
  };
  const late = AbortSignal.timeout(Math.min(limits.seconds * 1000, MOST_MILLISECONDS));
  const signal = options.signal ? AbortSignal.any([options.signal, late]) : late;
  const ended = new Promise<never>((_, reject) => {
    late.addEventListener('abort', () => reject(rehearsalOutOfTime(limits, doing)), { once: true });
  });
  const work = rehearsed({ ...options, asked: options.signal, signal, onProgress }, limits, hooks);
  try {
    return await Promise.race([work, ended]);
  } catch (error) {
    // Ranks end and folders go before the error says so.
    await Promise.race([work.catch(() => undefined), setTimeout(MOST_TIDYING, undefined, { ref: false })]);
    // Any step may notice first that the time is over.
    if (late.aborted && !options.signal?.aborted) throw rehearsalOutOfTime(limits, doing);
    throw error;
  }
}

/** Milliseconds after which work that does not notice the end of its time is no longer waited for. */
const MOST_TIDYING = 10_000;

/** The longest delay of a timer. */
const MOST_MILLISECONDS = 2 ** 31 - 1;

/** @param options.asked the caller's own signal; `signal` is aborted at the end of the time too */
async function rehearsed(
  options: RehearseOptions &
    Required<Pick<RehearseOptions, 'signal' | 'onProgress'>> & { readonly asked: AbortSignal | undefined },
  limits: RehearsalLimits,
  hooks: RehearsalHooks,
): Promise<Rehearsal> {
  const { directory, ranks = MOST_RANKS, seed = 0, asked, signal, onProgress } = options;
  const plan = await readPlan(path.join(directory, 'plan.json'));
  const source = await readSource(directory);
  onProgress('lowering the plan');
  const { planned, file, constants } = await compiledModel(directory, source, plan, options.model);
  await interruptible(signal);
  checkModel(plan, planned);
  const big = bigPlan(plan, planned.graph);
  onProgress('reducing the plan');
  const precision = loweredOfPlan(plan);
  const small = await smallPlan(big, { planned, file, constants, source, precision, ranks, seed, signal });
  const cluster = clusterOf(plan);
  const generate = (lowered: readonly LoweredStage[]) =>
    programOfPlan({ lowered, schedule: small.schedule }, small.plan, cluster);
  const generated = generate(small.lowered);
  const need = needOf(small, generated.program, availableParallelism());
  refuseUnaffordable(need, limits);
  const ofPlan = { ...big, lowered: hooks.plan?.(big.lowered) ?? big.lowered };
  const lowered = hooks.lowered?.(small.lowered) ?? small.lowered;
  const coverage = comparedCoverage(ofPlan, { ...small, lowered });
  const ofStages = [
    ...checkStages(ofPlan.lowered).map(({ node, problem }) => `the lowered plan: ${node}: ${problem}`),
    ...checkStages(lowered).map(({ node, problem }) => `the lowered rehearsal: ${node}: ${problem}`),
  ];
  const made = ofStages.length > 0 || lowered === small.lowered ? generated : generate(lowered);
  const program = hooks.program?.(made.program) ?? made.program;
  const flaw = checkProgram(program);
  const problems = [...ofStages, ...(flaw === null ? [] : [`the program of the rehearsal: ${flaw}`])];
  const request = { seed, progress: onProgress, signal, prepare: hooks.folder ?? (() => undefined) };
  const verification =
    problems.length > 0 ? null : await listening(asked, () => run(small, lowered, { ...made, program }, request));
  return {
    passed: verification?.passed === true && coverage.isEqual,
    ranks: small.ranks,
    limits,
    need,
    reduced: small.reduced,
    notes: small.notes,
    coverage,
    problems,
    verification,
  };
}

/** Default maximum number of ranks of a rehearsal. */
const MOST_RANKS = 16;

interface RunRequest {
  readonly seed: number;
  readonly signal: AbortSignal;
  readonly progress: (text: string) => void;
  readonly prepare: (directory: string) => void;
}

/** Writes the program to a temporary folder, and verifies it there. */
async function run(
  small: SmallPlan,
  lowered: readonly LoweredStage[],
  generated: GeneratedProgram,
  { seed, signal, progress, prepare }: RunRequest,
): Promise<VerifyResult> {
  const directory = await mkdtemp(path.join(tmpdir(), 'autopar-rehearsal-'));
  try {
    const folder = path.join(directory, 'program');
    await mkdir(folder);
    await emitProgram(folder, generated, lowered, signal);
    prepare(directory);
    return await verifyCompiled(
      { directory, seed, signal, onProgress: progress },
      {
        imported: small.whole,
        planned: small.planned,
        file: null,
        constants: small.constants,
        program: await readProgram(directory),
      },
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
