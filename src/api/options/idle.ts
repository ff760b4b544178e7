/**
 * @file Options that would have no effect together with others, per verb: each is refused with a hint, on the command line and
 * in JavaScript.
 */
import { badOption } from '../../ir/error.js';
import type { NestedCompileOptions } from '../compile.js';
import type { InspectOptions } from '../inspect.js';
import type { WriteModelOptions } from '../models/write-model.js';
import type { RunCompiledOptions } from '../run.js';
import type { SimulateOptions } from '../simulate.js';
import type { TrainOptions } from '../train.js';
import type { VerifyOptions } from '../verify.js';
import { dashed } from './option-name.js';

/** An option, and when it would have no effect; messages use the words of the command line. */
export interface Idle<Options> {
  readonly option: keyof Options;
  readonly when: (options: Options) => boolean;
  readonly says: (options: Options) => string;
  readonly hint: string;
}

const ONE = 'leave one of the two out';

/** `--write-model` applies only to generated models. */
function ofFamilies<Options extends WriteModelOptions & { readonly model?: string }>(
  isFile: (options: Options) => boolean,
): Idle<Options> {
  return {
    option: 'writeModel',
    when: isFile,
    says: ({ writeModel, model }) =>
      `--write-model ${writeModel} writes the model of --model, and the model is the file ${model}`,
    hint: 'leave it out, or give --model FAMILY:key=value,… in place of the file',
  };
}

/** `--force` of verbs that write no folder. */
const ofWrittenFile: Idle<WriteModelOptions> = {
  option: 'force',
  when: ({ force, writeModel }) => force === true && writeModel === undefined,
  says: () => '--force replaces the file of --write-model, which is not given',
  hint: 'add --write-model F.onnx, or leave it out',
};

const isPropagated = ({ complete, searchMode }: NestedCompileOptions) =>
  complete === 'propagate' || searchMode === 'sharding_propagation';
const howPropagated = ({ searchMode }: NestedCompileOptions) =>
  searchMode === 'sharding_propagation' ? '--search-mode sharding_propagation' : '--complete propagate';

/** Whether the option states what tp shards along sequences. */
const isShardedAlong = ({ tpSequence = 'auto' }: NestedCompileOptions) => tpSequence !== 'auto';

export const INSPECT_IDLE: readonly Idle<InspectOptions>[] = [
  ofFamilies(({ generate }) => generate === undefined),
  ofWrittenFile,
];

export const COMPILE_IDLE: readonly Idle<NestedCompileOptions>[] = [
  ofFamilies(({ generated }) => generated === undefined),
  {
    option: 'verify',
    when: ({ planOnly }) => planOnly === true,
    says: () => '--verify runs the program, and --plan-only writes none',
    hint: ONE,
  },
  {
    option: 'initRandom',
    when: ({ planOnly }) => planOnly === true,
    says: () => '--init random makes weights of a program, and --plan-only writes none',
    hint: ONE,
  },
  {
    option: 'target',
    when: ({ planOnly, target }) => planOnly === true && (target === 'torch' || target === 'onnx'),
    says: ({ target }) => `--target ${target} writes a program, and --plan-only writes none`,
    hint: ONE,
  },
  {
    option: 'seed',
    when: ({ verify, initRandom }) => !verify && !initRandom,
    says: () => '--seed applies to random weights and to inputs of --verify only',
    hint: 'add --init random or --verify, or leave it out',
  },
  {
    option: 'complete',
    when: ({ complete, searchMode = 'auto' }) =>
      searchMode !== 'auto' && (complete === 'propagate') !== (searchMode === 'sharding_propagation'),
    says: ({ complete, searchMode }) => `--complete ${complete} contradicts --search-mode ${searchMode}`,
    hint: 'give one of the two',
  },
  {
    option: 'axes',
    when: (options) => options.axes === 'free' && isPropagated(options),
    says: (options) => `--axes free applies to a search, and ${howPropagated(options)} does not search`,
    hint: 'propagation places axes from pins and the batch: leave out --axes, or complete by search',
  },
  {
    option: 'tpSequence',
    when: (options) => isShardedAlong(options) && (options.axes === 'free' || isPropagated(options)),
    says: (options) =>
      `--tp-sequence ${options.tpSequence} restricts the roles of tp in a search, and ` +
      (options.axes === 'free' ? '--axes free lifts the roles of axes' : `${howPropagated(options)} does not search`),
    hint: ONE,
  },
  {
    option: 'solver',
    when: (options) => isPropagated(options) || options.searchMode === 'dynamic_programming',
    says: (options) =>
      '--solver applies to integer programs, and ' +
      `${isPropagated(options) ? howPropagated(options) : '--search-mode dynamic_programming'} solves none`,
    hint: 'leave it out, or use --search-mode ilp',
  },
  {
    option: 'meshes',
    when: isPropagated,
    says: (options) =>
      `--meshes gives each stage its own mesh, and ${howPropagated(options)} propagates pins over one mesh`,
    hint: 'leave one of the two out, or complete by search',
  },
  {
    option: 'meshes',
    when: ({ mode }) => mode === 'data',
    says: () => '--meshes gives each stage its own mesh, and --mode data gives all stages one mesh',
    hint: ONE,
  },
  {
    option: 'capacityFactor',
    when: ({ dispatch }) => dispatch === undefined,
    says: ({ capacityFactor }) =>
      `--capacity-factor ${capacityFactor} limits the tokens of --dispatch, which is not given`,
    hint: 'add --dispatch padded',
  },
  {
    option: 'microBatch',
    when: ({ training }) => training === undefined,
    says: () => '--micro-batch applies to training only',
    hint: 'add --train',
  },
  {
    option: 'bucket',
    when: ({ training, zero }) => training === undefined && zero !== 3,
    says: () =>
      '--bucket applies to gradients and to weights that --zero 3 shards, and neither --train nor --zero 3 is given',
    hint: 'add --train or --zero 3, or leave it out',
  },
  {
    option: 'gradientSync',
    when: ({ training }) => training === undefined,
    says: ({ gradientSync }) => `--gradient-sync ${gradientSync} applies to training only`,
    hint: 'add --train, or leave it out',
  },
  {
    option: 'interleave',
    when: ({ training, interleave }) => training === undefined && interleave === 2,
    says: () => '--interleave 2 splits the micro-batches of training, and --train is not given',
    hint: 'add --train, or leave it out',
  },
  {
    option: 'gradientSync',
    when: ({ gradientSync, zero }) => gradientSync === 'parameter-server' && (zero ?? 0) > 0,
    says: ({ zero }) =>
      `--gradient-sync parameter-server stores optimizer state on one rank, and --zero ${zero} shards it over all`,
    hint: ONE,
  },
  {
    option: 'gradientSync',
    when: ({ gradientSync, meshes }) => gradientSync === 'parameter-server' && meshes !== undefined,
    says: ({ meshes }) =>
      `--gradient-sync parameter-server updates on the same rank of each stage, and --meshes '${meshes}' gives ` +
      'stages different ranks of dp',
    hint: ONE,
  },
  {
    option: 'within',
    when: ({ objective }) => objective !== 'devices',
    says: ({ within, objective }) =>
      `--within ${within} limits the time of --objective devices, and the objective is ${objective ?? 'time'}`,
    hint: 'add --objective devices, or leave it out',
  },
  ...(['prefer', 'headroom'] as const).map(
    (option): Idle<NestedCompileOptions> => ({
      option,
      when: ({ objective }) => objective === 'memory',
      says: () =>
        `--${option} chooses among plans by their time, and --objective memory takes the one with the least memory`,
      hint: 'leave out --objective memory, or the option',
    }),
  ),
  {
    option: 'precision',
    when: ({ training }) => training !== undefined,
    says: () => 'precision applies to inference only, and training is given',
    hint: 'set training.precision instead',
  },
];

/** A pipeline option without a pipeline. */
function ofPipelines(option: 'schedule' | 'virtualStages'): Idle<SimulateOptions> {
  return {
    option,
    when: ({ pp = 1 }) => pp === 1,
    says: ({ pp }) => `--${dashed(option)} needs a pipeline, and ${pp === 1 ? '--pp is 1' : '--pp is not given'}`,
    hint: 'add --pp 2 or more stages, or leave it out',
  };
}

export const SIMULATE_IDLE: readonly Idle<SimulateOptions>[] = [
  ofFamilies(({ generate }) => generate === undefined),
  ofWrittenFile,
  ofPipelines('schedule'),
  ofPipelines('virtualStages'),
  {
    option: 'gradientBytes',
    when: ({ loss }) => loss === undefined,
    says: () => '--gradients applies to training only',
    hint: 'add --train',
  },
];

const ofRandomInputs: Idle<{ readonly seed?: number; readonly inputs?: string }> = {
  option: 'seed',
  when: ({ inputs }) => inputs !== undefined,
  says: () => '--seed applies to random inputs, and --inputs gives the inputs',
  hint: ONE,
};

const ofThreads: Idle<Pick<RunCompiledOptions, 'threadsPerRank' | 'backend'>> = {
  option: 'threadsPerRank',
  when: ({ backend = 'cpu' }) => backend !== 'cpu',
  says: ({ backend }) => `--threads-per-rank applies to kernels on the CPU, and the backend is ${backend}`,
  hint: ONE,
};

export const RUN_IDLE: readonly Idle<RunCompiledOptions>[] = [
  ofRandomInputs,
  ...(['inputs', 'seed', 'threadsPerRank', 'offloadDir'] as const).map(
    (option): Idle<RunCompiledOptions> => ({
      option,
      when: ({ backend }) => backend === 'emulated',
      says: () => `--${dashed(option)} applies to ranks that compute, and --backend emulated only waits`,
      hint: ONE,
    }),
  ),
  ofThreads,
  {
    option: 'link',
    when: ({ backend }) => backend !== 'emulated',
    says: ({ backend }) => `--link applies to emulated ranks, and the backend is ${backend ?? 'cpu'}`,
    hint: 'add --backend emulated, or leave it out',
  },
];
export const TRAIN_IDLE: readonly Idle<TrainOptions>[] = [
  {
    option: 'epochs',
    when: ({ steps }) => steps !== undefined,
    says: () => '--epochs and --steps both set the end of training',
    hint: ONE,
  },
  {
    option: 'seed',
    when: ({ inOrder }) => inOrder === true,
    says: () => '--seed shuffles the samples, and --in-order reads them in file order',
    hint: ONE,
  },
  {
    option: 'evalEvery',
    when: ({ evalData }) => evalData === undefined,
    says: () => '--eval-every sets the interval of evaluations, and --eval-data is not given',
    hint: 'add --eval-data F, or leave it out',
  },
  ofThreads,
];
export const VERIFY_IDLE: readonly Idle<VerifyOptions>[] = [ofRandomInputs];

/** @throws AutoparError (usage) `bad-option` for the first option that would have no effect */
export function refuseIdle<Options>(options: Options, rules: readonly Idle<Options>[]): void {
  for (const { option, when, says, hint } of rules) {
    const value = options[option];
    if (value === undefined || value === false || !when(options)) continue;
    throw badOption(says(options), hint);
  }
}
