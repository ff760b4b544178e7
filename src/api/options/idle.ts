/**
 * @file Options that would have no effect together with others, per verb: each is refused with a hint, on the command line and
 * in JavaScript.
 */
import { AutoparError } from '../../ir/error.js';
import type { NestedCompileOptions } from '../compile.js';
import type { InspectOptions } from '../inspect.js';
import type { WriteModelOptions } from '../models/write-model.js';
import type { RunCompiledOptions } from '../run.js';
import type { SimulateOptions } from '../simulate.js';
import type { TrainOptions } from '../train.js';
import type { VerifyOptions } from '../verify.js';

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
  says: () => '--force replaces the file of --write-model, and there is none',
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
    says: () => '--seed is of random weights and of the inputs to verify with, and there are neither',
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
    says: (options) => `--axes free is for a search, and ${howPropagated(options)} searches nothing`,
    hint: 'propagation puts axes where pins and the batch carry them: leave out --axes, or complete by search',
  },
  {
    option: 'tpSequence',
    when: (options) => isShardedAlong(options) && (options.axes === 'free' || isPropagated(options)),
    says: (options) =>
      `--tp-sequence ${options.tpSequence} says what tp shards in a search, and ` +
      (options.axes === 'free'
        ? '--axes free lets every axis shard everything'
        : `${howPropagated(options)} searches nothing`),
    hint: ONE,
  },
  {
    option: 'solver',
    when: (options) => isPropagated(options) || options.searchMode === 'dynamic_programming',
    says: (options) =>
      '--solver is for integer programs, and ' +
      `${isPropagated(options) ? howPropagated(options) : '--search-mode dynamic_programming'} has none`,
    hint: 'leave it out, or use --search-mode ilp',
  },
  {
    option: 'meshes',
    when: isPropagated,
    says: (options) =>
      `--meshes gives each stage axes of its own, and ${howPropagated(options)} carries pins over one mesh`,
    hint: 'leave one of the two out, or complete by search',
  },
  {
    option: 'meshes',
    when: ({ mode }) => mode === 'data',
    says: () => '--meshes gives each stage axes of its own, and --mode data shards the batch of all alike',
    hint: ONE,
  },
  {
    option: 'capacityFactor',
    when: ({ dispatch }) => dispatch === undefined,
    says: ({ capacityFactor }) =>
      `--capacity-factor ${capacityFactor} says how many tokens experts take, and nothing sends them`,
    hint: 'add --dispatch padded',
  },
  {
    option: 'microBatch',
    when: ({ training }) => training === undefined,
    says: () => '--micro-batch is an option of training',
    hint: 'add --train',
  },
  {
    option: 'bucket',
    when: ({ training, zero }) => training === undefined && zero !== 3,
    says: () => '--bucket is of gradients, and of weights that --zero 3 cuts; nothing is trained, and no weight is cut',
    hint: 'add --train or --zero 3, or leave it out',
  },
  {
    option: 'gradientSync',
    when: ({ training }) => training === undefined,
    says: ({ gradientSync }) => `--gradient-sync ${gradientSync} is of gradients, and nothing is trained`,
    hint: 'add --train, or leave it out',
  },
  {
    option: 'interleave',
    when: ({ training, interleave }) => training === undefined && interleave === 2,
    says: () => '--interleave 2 cuts micro-batches in halves, which are of training, and nothing is trained',
    hint: 'add --train, or leave it out',
  },
  {
    option: 'gradientSync',
    when: ({ gradientSync, zero }) => gradientSync === 'parameter-server' && (zero ?? 0) > 0,
    says: ({ zero }) =>
      `--gradient-sync parameter-server keeps optimizer state on one rank, and --zero ${zero} cuts it over all`,
    hint: ONE,
  },
  {
    option: 'gradientSync',
    when: ({ gradientSync, meshes }) => gradientSync === 'parameter-server' && meshes !== undefined,
    says: ({ meshes }) =>
      `--gradient-sync parameter-server has the same rank of each stage update, and --meshes '${meshes}' gives ` +
      'stages other ranks of dp',
    hint: ONE,
  },
  {
    option: 'within',
    when: ({ objective }) => objective !== 'devices',
    says: ({ within, objective }) =>
      `--within ${within} is the time that --objective devices allows, and the objective is ${objective ?? 'time'}`,
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
    says: () => 'precision beside training is of inference',
    hint: 'say it in training: training.precision',
  },
];

/** A pipeline option without a pipeline. */
function ofPipelines<Options extends { readonly pp?: number }>(
  option: keyof Options & ('schedule' | 'virtualStages'),
  isAlone: (options: Options) => boolean,
): Idle<Options> {
  const name = option === 'schedule' ? '--schedule' : '--virtual-stages';
  return {
    option,
    when: isAlone,
    says: ({ pp }) => `${name} is about a pipeline, and there is none${pp === 1 ? ' with --pp 1' : ''}`,
    hint: 'add --pp 2 or more stages, or leave it out',
  };
}

export const SIMULATE_IDLE: readonly Idle<SimulateOptions>[] = [
  ofFamilies(({ generate }) => generate === undefined),
  ofWrittenFile,
  ofPipelines('schedule', ({ pp = 1 }) => pp === 1),
  ofPipelines('virtualStages', ({ pp = 1 }) => pp === 1),
  {
    option: 'gradientBytes',
    when: ({ loss }) => loss === undefined,
    says: () => '--gradients is an option of training',
    hint: 'add --train',
  },
];

const IN_WORDS = {
  inputs: 'inputs',
  seed: 'seed',
  threadsPerRank: 'threads-per-rank',
  offloadDir: 'offload-dir',
} as const;

const ofRandomInputs: Idle<{ readonly seed?: number; readonly inputs?: string }> = {
  option: 'seed',
  when: ({ inputs }) => inputs !== undefined,
  says: () => '--seed is of random inputs, and --inputs gives others',
  hint: ONE,
};

const ofThreads: Idle<Pick<RunCompiledOptions, 'threadsPerRank' | 'backend'>> = {
  option: 'threadsPerRank',
  when: ({ backend = 'cpu' }) => backend !== 'cpu',
  says: ({ backend }) => `--threads-per-rank is of kernels on the CPU, and the backend is ${backend}`,
  hint: ONE,
};

export const RUN_IDLE: readonly Idle<RunCompiledOptions>[] = [
  ofRandomInputs,
  ...(['inputs', 'seed', 'threadsPerRank', 'offloadDir'] as const).map(
    (option): Idle<RunCompiledOptions> => ({
      option,
      when: ({ backend }) => backend === 'emulated',
      says: () => `--${IN_WORDS[option]} is of ranks that compute, and --backend emulated waits in their place`,
      hint: ONE,
    }),
  ),
  ofThreads,
  {
    option: 'link',
    when: ({ backend }) => backend !== 'emulated',
    says: ({ backend }) => `--link is of emulated ranks, and the backend is ${backend ?? 'cpu'}`,
    hint: 'add --backend emulated, or leave it out',
  },
];
export const TRAIN_IDLE: readonly Idle<TrainOptions>[] = [
  {
    option: 'epochs',
    when: ({ steps }) => steps !== undefined,
    says: () => '--epochs and --steps both say when training ends',
    hint: ONE,
  },
  {
    option: 'seed',
    when: ({ inOrder }) => inOrder === true,
    says: () => '--seed is of the order of samples, and --in-order reads them as they stand in the files',
    hint: ONE,
  },
  {
    option: 'evalEvery',
    when: ({ evalData }) => evalData === undefined,
    says: () => '--eval-every says when evaluation data are evaluated, and there are none',
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
    throw new AutoparError('bad-option', 'usage', says(options), {}, hint);
  }
}
