/**
 * @file `autopar compile --plan-only` on a named cluster, of training or with degrees or options of whole steps: these are searched
 * over every dimension that can be priced, and the plan is written without a program.
 */
import type { CompileStepOptions } from '../api/compile-step.js';
import { AutoparError, type ExitKind } from '../ir/error.js';
import type { Context } from './command.js';
import { type DegreeOptions, givenDegrees } from './degrees.js';
import { importOptionsOf, type ModelFlags, modelSource } from './model-options.js';
import type { Output } from './output.js';
import type { StepFlags } from './step-options.js';
import { stepJson, stepLines } from './step-report.js';
import { type TrainingFlags, trainingOf } from './training-options.js';

export interface CompileStepFlags extends DegreeOptions, ModelFlags, TrainingFlags, StepFlags {
  readonly output?: string;
  readonly force?: boolean;
  readonly planOnly?: boolean;
  readonly verify?: boolean;
  readonly cluster?: string;
  readonly memory?: number;
  readonly objective?: CompileStepOptions['objective'];
  readonly top?: number;
  readonly within?: number;
  readonly axes?: string;
  readonly mode?: string;
  readonly annotations?: string;
  readonly config?: string;
  readonly complete?: string;
  readonly searchMode?: string;
  readonly timeLimit?: number;
  readonly solver?: string;
}

/** Options that only a search over operators' strategies knows. */
const OF_OPERATORS = ['axes', 'mode', 'annotations', 'config', 'complete'] as const;

/** Options that only a search over whole steps knows. */
const OF_STEPS = [
  'zero',
  'recompute',
  'schedule',
  'virtualStages',
  'tpSequence',
  'meshOrder',
  'offload',
  'software',
  'attention',
  'objective',
  'within',
] as const;

/**
 * Whether whole steps are searched: a plan alone, of training, or with degrees or options of whole steps, on a cluster that is named, with
 * nothing said about single operators.
 * @throws AutoparError (usage) for options of whole steps where they are not searched
 */
export function searchesStep(flags: CompileStepFlags): boolean {
  const { planOnly, train, cluster, searchMode = 'auto' } = flags;
  const named = cluster !== undefined && cluster !== 'local';
  const ofOperators = OF_OPERATORS.find((option) => flags[option] !== undefined);
  const stray = OF_STEPS.find((option) => flags[option] !== undefined);
  const isOfSteps = planOnly && named && searchMode === 'auto' && ofOperators === undefined;
  const isPipelined = [flags.pp, flags.sp, flags.ep].some((degree = 1) => degree > 1);
  const isCut = flags.microBatch !== undefined || flags.microBatches !== undefined;
  if (isOfSteps && (train || isPipelined || isCut || stray !== undefined)) return true;
  if (stray === undefined) return false;
  throw new AutoparError(
    'bad-option',
    'usage',
    ofOperators === undefined
      ? `--${dashed(stray)} is searched over with --plan-only --cluster alone: programs have no lowering for it yet`
      : `--${dashed(stray)} contradicts --${dashed(ofOperators)}: whole steps are searched, or operators' strategies`,
    {},
    `autopar simulate prices it without a search; or leave out --${dashed(ofOperators ?? stray)}`,
  );
}

/** Options that say nothing here: refused where a plan would seem to keep them, else noted. */
function checkStep({ within, objective, solver }: CompileStepFlags, output: Output): void {
  if (within !== undefined && objective !== 'devices')
    throw new AutoparError(
      'bad-option',
      'usage',
      `--within ${within} is the time that --objective devices allows, and the objective is ${objective ?? 'time'}`,
      {},
      'add --objective devices, or leave it out',
    );
  if (solver !== undefined)
    output.note("note: --solver is about operators' strategies; whole steps are searched without");
}

function dashed(option: string): string {
  return option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

export async function runCompileStep(
  { output, signal }: Context,
  file: string | undefined,
  flags: CompileStepFlags,
): Promise<ExitKind> {
  checkStep(flags, output);
  // Inference has micro-batches where it has stages.
  const { microBatch, microBatches, ...others } = flags;
  const { training } = await trainingOf(flags.train ? flags : others);
  const source = modelSource(file, flags.model, 'compile');
  const { compileStep } = await import('../api/compile-step.js');
  const { output: directory, force, devices, cluster, memory, objective, top, within, timeLimit } = flags;
  const { zero, recompute, schedule, virtualStages, tpSequence, meshOrder, offload, software, attention } = flags;
  const given = {
    ...{ output: directory, force, devices, cluster, memory, objective, top, within, timeLimit, microBatch },
    ...{
      zero,
      recompute,
      schedule,
      virtualStages,
      tpSequence,
      meshOrder,
      offload,
      software,
      attention,
      microBatches,
    },
  };
  const compiled = await compileStep({
    ...source,
    ...(await importOptionsOf(flags)),
    ...givenDegrees(flags),
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    ...(training ? { training } : {}),
    signal,
    onProgress: (text) => output.progress(text),
  });
  const over = `note: the time limit of ${timeLimit} s was over`;
  if (compiled.search.isUncompared)
    output.note(`${over} before any plan was found: this is the first that fits, compared with no other`);
  else if (compiled.search.isCutOff) output.note(`${over} before the search was: this is the best plan so far`);
  for (const line of stepLines(compiled, output)) output.print(line);
  output.data(stepJson(compiled));
  return 'done';
}
