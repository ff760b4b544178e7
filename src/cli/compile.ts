/**
 * @file `autopar compile`: model and cluster in, plan and program out.
 */

import type {
  CompileOptions,
  DegreeOptions,
  DispatchOptions,
  ExitKind,
  GradientSync,
  Mode,
  Objective,
  Preference,
  SearchMode,
  SolverName,
  Target,
} from '../api/index.js';
import { compile } from '../api/verbs.js';
import {
  DISPATCHES,
  dispatchIn,
  OBJECTIVES,
  PREFERENCES,
  requestIn,
  SCHEDULE_KINDS,
  SEARCH_MODES,
  SOLVERS,
  SP_METHODS,
  SP_ORDERS,
  TARGETS,
  TP_SEQUENCES,
} from '../api/words.js';
import type { Command, CommandContext, CommandOption } from './command.js';
import { resultJson, resultLines } from './compile-report.js';
import { degreeOptions, requestedDegrees } from './degrees.js';
import { clusterOptions } from './machine.js';
import { importOptionsOf, type ModelFlags, modelOptions, modelSource } from './model-options.js';
import { reportPlan } from './plan-page.js';
import { gradientOptions, type ProgramFlags, programOptions, RECOMPUTED_LAYERS } from './step-options.js';
import { parameterOptions } from './training-form-options.js';
import { type TrainingFlags, trainingOf, trainingOptions } from './training-options.js';
import { byteSize, choiceAmong, integerParser, nonNegative, shareOf } from './values.js';
import { type WriteModelFlags, writeModelIn, writeModelOption, writtenModelLines } from './write-model.js';

interface CompileFlags
  extends DegreeOptions,
    DispatchOptions,
    ModelFlags,
    WriteModelFlags,
    TrainingFlags,
    ProgramFlags {
  readonly output?: string;
  readonly report?: string;
  readonly planOnly?: boolean;
  readonly target?: Target;
  readonly verify?: boolean;
  readonly cluster?: string;
  readonly memory?: number;
  readonly prefer?: Preference;
  readonly headroom?: number;
  readonly axes?: 'roles' | 'free';
  readonly mode?: Mode;
  readonly annotations?: string;
  readonly config?: string;
  readonly complete?: 'search' | 'propagate';
  readonly stages?: string;
  readonly meshes?: string;
  readonly bucket?: number;
  readonly interleave?: 1 | 2;
  readonly gradientSync?: GradientSync;
  readonly searchMode?: SearchMode;
  readonly objective?: Objective;
  readonly within?: number;
  readonly solver?: SolverName;
  readonly timeLimit?: number;
  readonly top?: number;
  readonly init?: 'random';
  readonly seed?: number;
}

/** How tokens reach experts. */
const dispatchOptions: readonly CommandOption[] = [
  {
    flags: '--dispatch <padded|variable>',
    says: 'send each token to its top-k experts: all slots, or filled ones (default: as the model has it)',
    parse: choiceAmong('--dispatch', DISPATCHES),
  },
  {
    flags: '--capacity-factor <f>',
    says: 'slots of an expert as a multiple of its even share, dropping tokens beyond (default: none dropped)',
    parse: nonNegative('--capacity-factor'),
  },
];

const MODES: readonly Mode[] = ['auto', 'semi-auto', 'data', 'hybrid'];

export const compileCommand: Command<CompileFlags> = {
  name: 'compile',
  says: 'choose a plan for a model and write the sharded program',
  arguments: [{ name: '[model]', says: 'ONNX file; or --model' }],
  options: [
    { flags: '-o, --output <dir>', says: 'folder to write (default: ./<model file stem>.autopar)' },
    { flags: '--report <file>', says: 'HTML page of the step, operators with reasons, what was compared' },
    writeModelOption,
    { flags: '--force', says: 'replace the folder even if it holds other files, and the file of --write-model' },
    { flags: '--plan-only', says: 'write plan.json and leave the program out' },
    {
      flags: '--target <runtime|torch|onnx|mindspore>',
      says: 'also write a folder for torchrun, ONNX engines or MindSpore (docs/torch.md, docs/checkpoints.md)',
      parse: choiceAmong('--target', TARGETS),
    },
    { flags: '--verify', says: 'run the program and compare it with the unsharded model' },
    ...modelOptions,
    ...clusterOptions,
    { flags: '--memory <size>', says: 'memory limit per device, such as 80GB', parse: byteSize('--memory') },
    ...degreeOptions(),
    {
      flags: '--sp-method <gather|ulysses|ring|auto>',
      says: 'sp in attention: gathered keys and values, heads, keys and values passed round, or the cheapest (auto)',
      parse: choiceAmong('--sp-method', SP_METHODS),
    },
    {
      flags: '--sp-order <zigzag|contiguous>',
      says: 'positions of a ring: in zig-zag order, the default where attention is causal, or in the model’s',
      parse: choiceAmong('--sp-order', SP_ORDERS),
    },
    {
      flags: '--tp-sequence <on|off|auto>',
      says: "Megatron's sequence parallelism: norms along the sequence over tp, or the cheapest (auto)",
      parse: choiceAmong('--tp-sequence', TP_SEQUENCES),
    },
    ...dispatchOptions,
    {
      flags: '--axes <roles|free>',
      says: 'roles: dp shards the batch only, tp the rest; free lifts that',
      parse: choiceAmong('--axes', ['roles', 'free']),
    },
    {
      flags: '--mode <mode>',
      says: 'auto, semi-auto, data (the batch alone) or hybrid (what is not pinned stays whole); default: auto',
      parse: choiceAmong('--mode', MODES),
    },
    {
      flags: '--annotations <file>',
      says: 'YAML or JSON that pins operators and tensors (docs/annotations.md); the rest is completed',
    },
    {
      flags: '--complete <search|propagate>',
      says: 'what is not pinned is completed at least cost, or by propagation alone (default: search)',
      parse: choiceAmong('--complete', ['search', 'propagate']),
    },
    {
      flags: '--search-mode <mode>',
      says: 'auto, ilp, dynamic_programming, recursive_programming or sharding_propagation (docs/planner.md); default: auto',
      parse: choiceAmong('--search-mode', SEARCH_MODES),
    },
    {
      flags: '--solver <highs|glpk|none>',
      says: 'who solves integer programs (default: highs); glpk is installed with npm install glpk.js',
      parse: choiceAmong('--solver', SOLVERS),
    },
    {
      flags: '--time-limit <seconds>',
      says: 'take the best plan found by then, with its gap; without any, one that takes no search',
      parse: nonNegative('--time-limit'),
    },
    {
      flags: '--top <k>',
      says: 'show the k best combinations of degrees (default: 1), and k runners-up of steps by their layers (5)',
      parse: integerParser('--top', 1),
    },
    {
      flags: '--config <file>',
      says: "a MindFormers configuration's parallel sections (docs/reference/mindformers.md)",
    },
    {
      flags: '--objective <what>',
      says: 'least time, memory, cost (device-seconds) or devices (the fewest, --within a time); default: time',
      parse: choiceAmong('--objective', OBJECTIVES),
    },
    {
      flags: '--prefer <simple|fastest>',
      says: 'simple: of plans within 2 % of the fastest the one with fewest kinds of parallelism; default: simple',
      parse: choiceAmong('--prefer', PREFERENCES),
    },
    {
      flags: '--headroom <share>',
      says: 'device memory that a plan should leave free (default: 10 %, at up to 5 % of the time; 0 with --memory)',
      parse: shareOf('--headroom'),
    },
    { flags: '--within <seconds>', says: 'a step may take, for --objective devices', parse: nonNegative('--within') },
    ...programOptions({}, SCHEDULE_KINDS, RECOMPUTED_LAYERS),
    ...gradientOptions,
    {
      flags: '--stages <layout>',
      says: 'what each stage of a pipeline has, such as "E t*3 | t*3 H"; inspect says what the letters are',
    },
    {
      flags: '--meshes <layout>',
      says: 'the mesh of each stage where they differ, such as "tp2 | dp2"',
    },
    ...trainingOptions,
    ...parameterOptions,
    {
      flags: '--init <random>',
      says: 'make up weights that the model file lacks',
      parse: choiceAmong('--init', ['random']),
    },
    {
      flags: '--seed <n>',
      says: 'seed of random weights and verification inputs (default: 0)',
      parse: integerParser('--seed', 0),
    },
  ],
  examples: [
    {
      line: 'autopar compile models/llama-tiny.onnx --verify',
      says: "for this machine's cores, and prove the result right",
    },
    {
      line: 'autopar compile models/gpt-tiny.onnx --dp 2 --tp 2 -o gpt.autopar',
      says: 'with pinned degrees, into a folder of your choice',
    },
  ],
  run: runCompile,
};

async function runCompile(context: CommandContext, [file]: readonly string[], flags: CompileFlags): Promise<ExitKind> {
  const source = modelSource(file, flags.model, 'compile');
  const { output } = context;
  const result = await compile({
    ...source,
    ...(await optionsOf(flags)),
    signal: context.signal,
    onProgress: (text) => output.progress(text),
  });
  for (const note of result.notes) output.note(`note: ${note}`);
  for (const { operator, reason } of result.exceptions) output.note(`note: ${operator}: ${reason}`);
  for (const line of resultLines(result, output, flags.top)) output.print(line);
  for (const line of writtenModelLines(result)) output.print(line);
  const json = resultJson(result);
  output.data(
    flags.report === undefined ? json : await reportPlan(flags.report, result.directory, result, json, output),
  );
  return result.verification && !result.verification.passed ? 'checkFailed' : 'done';
}

async function optionsOf(flags: CompileFlags): Promise<CompileOptions> {
  const { output, planOnly, target, verify, devices, cluster, memory, axes, init, seed } = flags;
  const { mode, complete, searchMode, solver, timeLimit, top, precision, schedule, virtualStages } = flags;
  const { stages, meshes, objective, within } = flags;
  const sizes = { output, planOnly, target, verify, devices, cluster, memory, seed };
  const pipeline = { schedule, virtualStages, stages, meshes };
  const searched = { axes, mode, complete, searchMode, objective, within, solver, timeLimit, top };
  const given = { ...sizes, ...pipeline, ...searched };
  return {
    ...withoutUndefined(given),
    ...writeModelIn(flags),
    ...requestedDegrees(flags),
    ...requestIn(flags),
    ...(await importOptionsOf(flags)),
    ...dispatchIn(flags),
    ...(await trainingOf(flags)),
    ...(precision === undefined || flags.train ? {} : { precision }),
    ...(await decisionsOf(flags)),
    ...(init === 'random' ? { initRandom: true } : {}),
  };
}

/** Reads the files that state decisions made in advance. */
async function decisionsOf({ annotations, config }: CompileFlags): Promise<Partial<CompileOptions>> {
  if (annotations === undefined && config === undefined) return {};
  const { readAnnotations, readParallelConfig } = await import('../api/index.js');
  return {
    ...(annotations === undefined ? {} : { annotations: await readAnnotations(annotations) }),
    ...(config === undefined ? {} : { config: await readParallelConfig(config) }),
  };
}

/** A record without its undefined values, as exact optional properties want it. */
function withoutUndefined<Given extends object>(
  given: Given,
): { [Key in keyof Given]?: Exclude<Given[Key], undefined> } {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as {
    [Key in keyof Given]?: Exclude<Given[Key], undefined>;
  };
}
