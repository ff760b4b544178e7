/**
 * @file `autopar compile --plan-only` on a named cluster, of training or with degrees or options of whole steps: these are
 * searched over every dimension that can be priced, and the plan is written without a program.
 */
import type { DegreeOptions } from '../api/degrees.js';
import { LAYER_RECOMPUTE_KINDS, readRecompute } from '../api/recompute.js';
import { type GradientSync, type Preference, pricedOffload, REQUESTS } from '../api/requests.js';
import { PIPELINE_SCHEDULES } from '../api/schedule-kinds.js';
import type { SpMethod, SpOrder } from '../api/search-modes.js';
import { type CompileStepOptions, compileStep } from '../api/verbs.js';
import { writePage } from '../api/write-page.js';
import { AutoparError, type ExitKind } from '../ir/error.js';
import type { CommandContext } from './command.js';
import { givenDegrees } from './degrees.js';
import { importOptionsOf, type ModelFlags, modelSource } from './model-options.js';
import { factsIn, reportLine } from './plan-page.js';
import { listText } from './quantity.js';
import { searchPage } from './simulate-page.js';
import type { StepFlags } from './step-options.js';
import { stepJson, stepLines } from './step-report.js';
import { type TrainingFlags, trainingOf } from './training-options.js';

export interface CompileStepFlags extends DegreeOptions, ModelFlags, TrainingFlags, StepFlags {
  readonly output?: string;
  readonly report?: string;
  readonly force?: boolean;
  readonly planOnly?: boolean;
  readonly verify?: boolean;
  readonly target?: string;
  readonly cluster?: string;
  readonly memory?: number;
  readonly objective?: CompileStepOptions['objective'];
  readonly top?: number;
  readonly within?: number;
  readonly prefer?: Preference;
  readonly headroom?: number;
  readonly axes?: string;
  readonly mode?: string;
  readonly annotations?: string;
  readonly config?: string;
  readonly complete?: string;
  readonly stages?: string;
  readonly meshes?: string;
  readonly spMethod?: SpMethod;
  readonly spOrder?: SpOrder;
  readonly bucket?: number;
  readonly interleave?: number;
  readonly gradientSync?: GradientSync;
  readonly dispatch?: string;
  readonly moeBalance?: number;
  readonly searchMode?: string;
  readonly timeLimit?: number;
  readonly solver?: string;
  readonly init?: string;
  readonly seed?: number;
}

/** Options that only a search over operators' strategies knows. */
const OF_OPERATORS = [
  ...([
    'axes',
    'mode',
    'annotations',
    'config',
    'complete',
    'stages',
    'meshes',
    'spMethod',
    'spOrder',
    'bucket',
    'interleave',
    'gradientSync',
    'dispatch',
    'moeBalance',
  ] as const),
] as const;

/** What a program has as well: with a plan alone a search over whole steps decides it. */
const OF_PIPELINES = ['schedule', 'virtualStages'] as const;

/** Degrees that above 1 a search over whole steps decides with a plan alone. */
const OF_STEP_DEGREES = ['sp', 'ep'] as const;

/** Options that only a search over whole steps knows. */
const OF_STEPS = [
  'zero',
  'recompute',
  'tpSequence',
  'meshOrder',
  'offload',
  'software',
  'attention',
  'objective',
  'within',
] as const;

/**
 * Whether whole steps are searched: a plan alone, of training, or with degrees or options of whole steps, on a cluster that is
 * named, with nothing said about single operators.
 * @throws AutoparError (usage) for degrees and options of whole steps where they are not searched
 */
export function searchesStep(flags: CompileStepFlags): boolean {
  const { planOnly, train, cluster } = flags;
  const isPlanned = planOnly === true && cluster !== undefined && cluster !== 'local';
  const ofOperators = operatorOptions(flags);
  const degrees = OF_STEP_DEGREES.filter((axis) => (flags[axis] ?? 1) > 1);
  const options = OF_STEPS.filter((option) => flags[option] !== undefined);
  const stray = options.map(dashed);
  const isPipeline = (flags.pp ?? 1) > 1 || OF_PIPELINES.some((option) => flags[option] !== undefined);
  const isCut = flags.microBatch !== undefined || flags.microBatches !== undefined;
  if (isPlanned && ofOperators.length === 0)
    return train === true || isCut || isPipeline || degrees.length > 0 || stray.length > 0;
  if (isPlanned && stray.length > 0) throw contradiction(stray, ofOperators);
  const unlowered = options.filter((option) => !isRequest(option));
  if (unlowered.length > 0) throw withoutProgram(unlowered.map(dashed), ofOperators);
  return false;
}

/** Whether programs have a lowering for what an option asks. */
function isRequest(option: string): boolean {
  return (REQUESTS as readonly string[]).includes(option);
}

/** What says that single operators' strategies are searched, as it was written. */
function operatorOptions(flags: CompileStepFlags): readonly string[] {
  const { searchMode = 'auto' } = flags;
  const given = OF_OPERATORS.flatMap((option) =>
    flags[option] === undefined ? [] : [`${dashed(option)} ${flags[option]}`],
  );
  return searchMode === 'auto' ? given : [...given, `--search-mode ${searchMode}`];
}

/** Of a plan alone, for which one of the two would be searched. */
function contradiction(ofSteps: readonly string[], ofOperators: readonly string[]): AutoparError {
  return new AutoparError(
    'bad-option',
    'usage',
    `${ofSteps[0]} contradicts ${ofOperators[0]}: whole steps are searched, or operators' strategies`,
    {},
    `leave out ${listText(ofOperators)} to search whole steps, or ${listText(ofSteps)} to search operators' strategies; autopar simulate prices a step without a search`,
  );
}

/** Of what only a search over whole steps knows. */
function withoutProgram(ofSteps: readonly string[], ofOperators: readonly string[]): AutoparError {
  const without = ofOperators.length === 0 ? '' : `, without ${listText(ofOperators)}`;
  return new AutoparError(
    'bad-option',
    'usage',
    `${ofSteps[0]} is of a search over whole steps, which --plan-only --cluster makes: a program is planned without it`,
    {},
    `add --plan-only --cluster NxM:ID${without}; or leave out ${listText(ofSteps)}; autopar simulate prices a step without a search`,
  );
}

/** Options of programs and of operators' strategies, and why a search over whole steps has no use for them. */
const IDLE = {
  target: '--target is of programs, and a training step is planned without one',
  verify: '--verify runs a program, and a training step is planned without one',
  init: '--init makes weights of a program, and a training step is planned without one',
  seed: '--seed is of random weights and inputs, and a training step is planned without them',
  solver: '--solver is for sharding plans, and a training step is planned without one',
} as const satisfies Partial<Record<keyof CompileStepFlags, string>>;

/** @throws AutoparError (usage) for an option that would do nothing */
function refuseIdle(flags: CompileStepFlags): void {
  for (const [option, says] of Object.entries(IDLE)) {
    if (flags[option as keyof typeof IDLE] === undefined) continue;
    throw new AutoparError('bad-option', 'usage', says, {}, 'leave it out');
  }
}

/** @throws AutoparError (usage) for a schedule that whole steps are not priced with */
function refuseUnpriced({ schedule }: CompileStepFlags): void {
  if (schedule === undefined || (PIPELINE_SCHEDULES as readonly string[]).includes(schedule)) return;
  throw new AutoparError(
    'bad-option',
    'usage',
    `--schedule ${schedule} is of programs: whole steps are searched over ${PIPELINE_SCHEDULES.join(', ')}`,
    {},
    'leave out --plan-only, or choose one of these',
  );
}

/** An option as it is written. */
function dashed(option: string): string {
  return `--${option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** @throws AutoparError (usage) for what only programs recompute: planning a training step counts layers by stage */
function kindAlone(recompute: string): CompileStepOptions['recompute'] {
  const { kind, layers, exceptLast } = readRecompute(recompute);
  const own = LAYER_RECOMPUTE_KINDS.find((name) => name === kind);
  if (own !== undefined && layers === null && !exceptLast) return own;
  const asks =
    own === undefined ? 'recomputes stages whole' : layers === null ? 'keeps the last micro-batch' : 'names layers';
  throw new AutoparError(
    'bad-option',
    'usage',
    `--recompute ${recompute} ${asks}, and a training step is planned with a kind for all layers`,
    {},
    `give --recompute ${own ?? 'full'}, or leave out --plan-only`,
  );
}

export async function runCompileStep(
  { output, signal }: CommandContext,
  file: string | undefined,
  flags: CompileStepFlags,
): Promise<ExitKind> {
  refuseIdle(flags);
  refuseUnpriced(flags);
  // Inference has micro-batches where it has stages.
  const { microBatch, microBatches, ...others } = flags;
  const { training } = await trainingOf(flags.train ? flags : others);
  const source = modelSource(file, flags.model, 'compile');
  const { output: directory, force, devices, cluster, memory, objective, top, within, timeLimit } = flags;
  const { prefer, headroom } = flags;
  const { zero, recompute, schedule, virtualStages, tpSequence, meshOrder, offload, software, attention, precision } =
    flags;
  const given = {
    ...{ output: directory, force, devices, cluster, memory, objective, top, within, timeLimit, microBatch },
    ...{
      zero,
      recompute: recompute === undefined ? undefined : kindAlone(recompute),
      schedule,
      virtualStages,
      tpSequence,
      meshOrder,
      offload: pricedOffload(offload),
      software,
      attention,
      microBatches,
      prefer,
      headroom,
    },
  };
  const compiled = await compileStep({
    ...source,
    ...(await importOptionsOf(flags)),
    ...givenDegrees(flags),
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
    ...(training ? { training } : precision === undefined ? {} : { precision }),
    signal,
    onProgress: (text) => output.progress(text),
  });
  const over = `note: the time limit of ${timeLimit} s was over`;
  if (compiled.search.isUncompared)
    output.note(`${over} before any plan was found: this is the first that fits, compared with no other`);
  else if (compiled.search.isCutOff) output.note(`${over} before the search was: this is the best plan so far`);
  for (const note of compiled.notes) output.note(`note: ${note}`);
  const lines = stepLines(compiled, output);
  for (const line of lines) output.print(line);
  const json = stepJson(compiled);
  if (flags.report !== undefined) {
    await writePage(flags.report, searchPage(compiled.search, factsIn(lines), json));
    output.print(reportLine(flags.report));
  }
  output.data(json);
  return 'done';
}
