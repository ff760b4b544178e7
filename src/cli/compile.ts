/**
 * @file `autopar compile`: model and cluster in, plan and program out.
 */

import type { CompileOptions, DegreeOptions, DispatchOptions, ExitKind, Mode } from '../api/index.js';
import { compile } from '../api/verbs.js';
import {
  DISPATCHES,
  dispatchIn,
  OBJECTIVES,
  PREFERENCES,
  requestIn,
  SEARCH_MODES,
  SOLVERS,
  SP_METHODS,
  SP_ORDERS,
  TARGETS,
  TP_SEQUENCES,
  withoutUndefined,
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
    ProgramFlags,
    Pick<CompileOptions, 'cluster' | 'mode' | 'stages' | 'meshes' | 'bucket' | 'interleave' | 'gradientSync'>,
    Pick<CompileOptions, 'prefer' | 'headroom' | 'objective' | 'within' | 'memory' | 'axes' | 'complete'>,
    Pick<CompileOptions, 'searchMode' | 'solver' | 'timeLimit' | 'top'>,
    Pick<CompileOptions, 'output' | 'planOnly' | 'target' | 'verify' | 'seed'> {
  readonly report?: string;
  readonly annotations?: string;
  readonly config?: string;
  readonly init?: 'random';
}

/** How tokens reach experts. */
const dispatchOptions: readonly CommandOption[] = [
  {
    flags: '--dispatch <padded|variable>',
    says: 'token dispatch to top-k experts: padded or filled slots (default: as in the model)',
    parse: choiceAmong(DISPATCHES),
  },
  {
    flags: '--capacity-factor <f>',
    says: 'expert capacity over its even share; drops excess tokens (default: no dropping)',
    parse: nonNegative,
  },
];

const MODES: readonly Mode[] = ['auto', 'semi-auto', 'data', 'hybrid'];

export const compileCommand: Command<CompileFlags> = {
  name: 'compile',
  says: 'plan a model and write the sharded program',
  arguments: [{ name: '[model]', says: 'ONNX file; or --model' }],
  options: [
    { flags: '-o, --output <dir>', says: 'folder to write (default: ./<model file stem>.autopar)' },
    { flags: '--report <file>', says: 'HTML page of the step, operators, reasons and compared plans' },
    writeModelOption,
    { flags: '--force', says: 'replace a folder with other files, and the --write-model file' },
    { flags: '--plan-only', says: 'write plan.json without a program' },
    {
      flags: '--target <runtime|torch|onnx|mindspore>',
      says: 'also write torchrun, ONNX or MindSpore files (docs/torch.md, docs/checkpoints.md)',
      parse: choiceAmong(TARGETS),
    },
    { flags: '--verify', says: 'run the program and compare it with the unsharded model' },
    ...modelOptions,
    ...clusterOptions,
    { flags: '--memory <size>', says: 'memory limit per device, such as 80GB', parse: byteSize },
    ...degreeOptions(),
    {
      flags: '--sp-method <gather|ulysses|ring|auto>',
      says: 'sequence-parallel attention: gathered keys, sharded heads, ring, or cheapest (auto)',
      parse: choiceAmong(SP_METHODS),
    },
    {
      flags: '--sp-order <zigzag|contiguous>',
      says: 'position order of a ring (default: zigzag for causal attention)',
      parse: choiceAmong(SP_ORDERS),
    },
    {
      flags: '--tp-sequence <on|off|auto>',
      says: "Megatron's sequence parallelism of norms over tp, or the cheapest (auto)",
      parse: choiceAmong(TP_SEQUENCES),
    },
    ...dispatchOptions,
    {
      flags: '--axes <roles|free>',
      says: 'roles: dp shards the batch only; free: any factor',
      parse: choiceAmong(['roles', 'free']),
    },
    {
      flags: '--mode <mode>',
      says: 'auto (default), semi-auto, data (batch only), hybrid (unpinned operators replicated)',
      parse: choiceAmong(MODES),
    },
    {
      flags: '--annotations <file>',
      says: 'YAML or JSON pins of operators and tensors (docs/annotations.md)',
    },
    {
      flags: '--complete <search|propagate>',
      says: 'complete unpinned operators by search (default) or propagation only',
      parse: choiceAmong(['search', 'propagate']),
    },
    {
      flags: '--search-mode <mode>',
      says: 'auto (default), ilp, dynamic_programming, recursive_programming or sharding_propagation (docs/planner.md)',
      parse: choiceAmong(SEARCH_MODES),
    },
    {
      flags: '--solver <highs|glpk|none>',
      says: 'integer-program solver (default: highs); glpk needs npm install glpk.js',
      parse: choiceAmong(SOLVERS),
    },
    {
      flags: '--time-limit <seconds>',
      says: 'search time; then the best plan so far, or propagation',
      parse: nonNegative,
    },
    {
      flags: '--top <k>',
      says: 'degree combinations to show (default: 1; 5 beside a proposed plan)',
      parse: integerParser(1),
    },
    {
      flags: '--config <file>',
      says: 'MindFormers configuration with parallel sections (docs/reference/mindformers.md)',
    },
    {
      flags: '--objective <what>',
      says: 'minimise time (default), memory, cost (device-seconds), or devices (with --within)',
      parse: choiceAmong(OBJECTIVES),
    },
    {
      flags: '--prefer <simple|fastest>',
      says: 'simple (default): fewest parallelism kinds within 2 % of the fastest',
      parse: choiceAmong(PREFERENCES),
    },
    {
      flags: '--headroom <share>',
      says: 'free device memory (default: 10 % for ≤ 5 % time; 0 with --memory)',
      parse: shareOf,
    },
    { flags: '--within <seconds>', says: 'step time limit for --objective devices', parse: nonNegative },
    ...programOptions({}, RECOMPUTED_LAYERS),
    ...gradientOptions,
    {
      flags: '--stages <layout>',
      says: 'units of each pipeline stage, such as "E t*3 | t*3 H" (see inspect)',
    },
    {
      flags: '--meshes <layout>',
      says: 'mesh of each stage, such as "tp2 | dp2"',
    },
    ...trainingOptions,
    ...parameterOptions,
    {
      flags: '--init <random>',
      says: 'generate weights that the model file lacks',
      parse: choiceAmong(['random']),
    },
    {
      flags: '--seed <n>',
      says: 'seed of random weights and verification inputs (default: 0)',
      parse: integerParser(0),
    },
  ],
  examples: [
    {
      line: 'autopar compile models/llama-tiny.onnx --verify',
      says: "compile for this machine's cores and verify the program",
    },
    {
      line: 'autopar compile models/gpt-tiny.onnx --dp 2 --tp 2 -o gpt.autopar',
      says: 'pin degrees and choose the folder',
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
  return withoutUndefined({
    annotations: annotations === undefined ? undefined : await readAnnotations(annotations),
    config: config === undefined ? undefined : await readParallelConfig(config),
  });
}
