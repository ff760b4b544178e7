/**
 * @file The options of every public verb and the kinds of their values. They are the options of the command line in camelCase.
 */

import { TOKEN_TYPES } from '../../data/data-file.js';
import { LAYER_RECOMPUTE_KINDS } from '../../ir/autodiff/recompute-names.js';
import { SCHEDULE_KINDS } from '../../schedule/schedule.js';
import { SEARCH_MODES, SOLVERS } from '../../search/search-mode.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { SP_METHODS, SP_ORDERS, TP_SEQUENCES } from '../../sharding-propagation/roles.js';
import { GRADIENT_SYNCS, PREFERENCES } from '../../strategy/request.js';
import type { CalibrateOptions } from '../calibrate.js';
import { COMPUTING_BACKENDS, RUN_BACKENDS } from '../execution/backends.js';
import type { ExportOptions } from '../export-weights.js';
import type { InspectOptions } from '../inspect.js';
import { DISPATCHES } from '../models/dispatch.js';
import { GRADIENT_REDUCTIONS } from '../models/gradient-reduction.js';
import type { ImportOptions } from '../models/import.js';
import { BATCH_STATISTICS } from '../models/statistics-parts.js';
import type { WriteModelOptions } from '../models/write-model.js';
import type { EmitOptions } from '../output/emit.js';
import type { ProgramSource, ProposalRequest, SourceDecisions } from '../output/folder.js';
import type { PlotOptions } from '../plot.js';
import type { ProfileOptions } from '../profile.js';
import type { RehearseOptions } from '../rehearse.js';
import { OBJECTIVES } from '../requests/compile-options.js';
import { TARGETS } from '../requests/targets.js';
import { LOSSES, OPTIMIZERS, type Training } from '../requests/training-request.js';
import type { RunCompiledOptions } from '../run.js';
import type { SimulateOptions } from '../simulate.js';
import type { EvaluateOptions, TrainOptions } from '../train.js';
import type { VerifyOptions } from '../verify.js';
import type { CompileOptions, PlanningOptions } from './flat-degrees.js';
import {
  amount,
  callback,
  either,
  flag,
  having,
  integer,
  integerFrom,
  type KindsOf,
  numbers,
  type OptionKind,
  object,
  oneOf,
  options,
  orNull,
  record,
  share,
  signal,
  text,
  texts,
} from './kinds.js';

/** Options of importing that models from the command line take. */
const reading = {
  dims: record(integerFrom(1)),
  shapes: record(numbers),
  globalBatch: integerFrom(1),
  constants: record(object),
  weights: texts,
  dispatch: oneOf(...DISPATCHES),
  capacityFactor: amount,
};
const importing = {
  ...reading,
  blocks: flag,
  sharesSequence: flag,
  sharesExperts: flag,
  stacksExperts: flag,
  forTraining: flag,
  keepsParameters: flag,
} satisfies KindsOf<ImportOptions>;
const parameters = { tie: texts, untie: texts, trainable: texts, frozen: texts };
const watched = { signal, onProgress: callback };
const resources = { memory: integerFrom(1), offloadDir: text, onSubstitutes: callback };
const samples = { data: texts, tokenType: oneOf(...TOKEN_TYPES) };
const preferring = { prefer: oneOf(...PREFERENCES), headroom: share };
const degree = integerFrom(1);
const axisOrder: OptionKind = {
  expected: `an array of ${AXIS_ORDER.map((axis) => `"${axis}"`).join(', ')}, in any order`,
  holds: (value) =>
    texts.holds(value) && [...(value as readonly string[])].sort().join() === [...AXIS_ORDER].sort().join(),
};
const degrees = { dp: degree, tp: degree, pp: degree, sp: degree, ep: degree };

const loss = options<Training['loss']>({
  kind: oneOf(...LOSSES),
  output: text,
  ignoreIndex: integer,
  classWeights: numbers,
  labelSmoothing: amount,
  moeBalance: amount,
});

const recipe = oneOf('fp32', 'fp16', 'bf16');

const optimizer = options<Training['optimizer']>({
  kind: oneOf(...OPTIMIZERS),
  learningRate: amount,
  momentum: amount,
  nesterov: flag,
  betas: numbers,
  epsilon: amount,
  weightDecay: amount,
  clipNorm: amount,
  schedule: options<NonNullable<Training['optimizer']['schedule']>>({
    warmup: integerFrom(1),
    shape: oneOf('constant', 'linear', 'cosine'),
    total: integerFrom(1),
    floor: amount,
  }),
});

const trained = {
  loss,
  optimizer,
  decayed: texts,
  undecayed: texts,
  precision: recipe,
  lossScale: either(amount, oneOf('dynamic')),
  gradientReduction: oneOf(...GRADIENT_REDUCTIONS),
  microBatches: integerFrom(1),
  isHeldInFloat32: flag,
  lossAlone: flag,
  trainMode: oneOf('training', 'as-exported'),
  batchStatistics: oneOf(...BATCH_STATISTICS),
  shards: integerFrom(1),
  freezeBatchStatistics: flag,
  dropoutSeed: integerFrom(0),
  ...parameters,
} satisfies KindsOf<Training>;
const training = options<Training>(trained);

const mode = oneOf('auto', 'semi-auto', 'data', 'hybrid');
const axes = oneOf('roles', 'free');
const searchMode = oneOf(...SEARCH_MODES);
const solver = oneOf(...SOLVERS);

const planning = {
  devices: integerFrom(1),
  cluster: text,
  clusterHints: object,
  ...degrees,
  degrees: options<typeof degrees>(degrees),
  schedule: oneOf(...SCHEDULE_KINDS),
  virtualStages: integerFrom(1),
  stages: text,
  meshes: text,
  zero: oneOf(0, 1, 2, 3),
  gradientSync: oneOf(...GRADIENT_SYNCS),
  spMethod: oneOf(...SP_METHODS),
  spOrder: oneOf(...SP_ORDERS),
  tpSequence: oneOf(...TP_SEQUENCES),
  recompute: text,
  offload: text,
  bucket: integerFrom(1),
  bucketMembers: integerFrom(1),
  interleave: oneOf(1, 2),
  ...preferring,
  mode,
  annotations: object,
  config: object,
  memory: integerFrom(1),
  axes,
  complete: oneOf('search', 'propagate'),
  searchMode,
  solver,
  timeLimit: amount,
  top: integerFrom(1),
  ...watched,
} satisfies KindsOf<PlanningOptions>;

const writing = { writeModel: text, force: flag } satisfies KindsOf<WriteModelOptions>;

const simulating = {
  ...importing,
  ...degrees,
  model: text,
  generate: text,
  ...writing,
  cluster: text,
  devices: integerFrom(1),
  memory: integerFrom(1),
  loss,
  training: options<NonNullable<SimulateOptions['training']>>({ loss }),
  microBatch: integerFrom(1),
  microBatches: integerFrom(1),
  meshOrder: axisOrder,
  tpSequence: oneOf(...TP_SEQUENCES),
  zero: oneOf(0, 1, 2, 3),
  recompute: oneOf(...LAYER_RECOMPUTE_KINDS),
  schedule: oneOf(...SCHEDULE_KINDS),
  virtualStages: integerFrom(1),
  stages: text,
  offload: oneOf('none', 'optimizer', 'activations', 'all'),
  precision: oneOf('fp32', 'bf16', 'fp16', 'fp8', 'fp4'),
  software: oneOf('megatron', 'megatron-core', 'eager', 'compiled'),
  gradientBytes: oneOf(2, 4),
  attention: oneOf('fused', 'portable', 'parts'),
  signal,
  trace: text,
} satisfies KindsOf<SimulateOptions>;

interface OptionTables {
  readonly importModel: KindsOf<ImportOptions>;
  readonly inspect: KindsOf<InspectOptions>;
  readonly plan: KindsOf<PlanningOptions>;
  readonly emit: KindsOf<EmitOptions>;
  readonly compile: KindsOf<CompileOptions>;
  readonly simulate: KindsOf<SimulateOptions>;
  readonly run: KindsOf<RunCompiledOptions>;
  readonly train: KindsOf<TrainOptions>;
  readonly evaluate: KindsOf<EvaluateOptions>;
  readonly verify: KindsOf<VerifyOptions>;
  readonly rehearse: KindsOf<RehearseOptions>;
  readonly exportWeights: KindsOf<ExportOptions>;
  readonly plot: KindsOf<PlotOptions>;
  readonly profile: KindsOf<ProfileOptions>;
  readonly calibrate: KindsOf<CalibrateOptions>;
}

/** Public verbs that take options. */
export type Verb = keyof OptionTables;

export const TABLES: OptionTables = {
  importModel: importing,
  inspect: {
    ...importing,
    ...parameters,
    training,
    model: text,
    generate: text,
    ...writing,
    ...watched,
  },
  plan: planning,
  emit: {
    directory: text,
    force: flag,
    planOnly: flag,
    target: oneOf(...TARGETS),
    generated: text,
    randomWeights: orNull(integerFrom(0)),
    constants: record(object),
    weights: texts,
    training,
    decisions: object,
    comparison: object,
    signal,
  },
  compile: {
    ...planning,
    ...reading,
    model: text,
    generate: text,
    generated: text,
    ...writing,
    output: text,
    planOnly: flag,
    target: oneOf(...TARGETS),
    objective: oneOf(...OBJECTIVES),
    within: amount,
    precision: recipe,
    training,
    microBatch: integerFrom(1),
    verify: flag,
    seed: integerFrom(0),
    initRandom: flag,
  },
  simulate: simulating,
  run: {
    directory: text,
    inputs: text,
    seed: integerFrom(0),
    steps: integerFrom(1),
    threadsPerRank: integerFrom(1),
    backend: oneOf(...RUN_BACKENDS),
    link: text,
    trace: text,
    timed: flag,
    ...resources,
    ...watched,
  },
  train: {
    directory: text,
    ...samples,
    epochs: integerFrom(1),
    steps: integerFrom(1),
    lastBatch: oneOf('drop', 'pad'),
    inOrder: flag,
    evalData: texts,
    evalEvery: integerFrom(1),
    trace: text,
    seed: integerFrom(0),
    model: text,
    threadsPerRank: integerFrom(1),
    backend: oneOf(...COMPUTING_BACKENDS),
    ...resources,
    ...watched,
    checkpointEvery: integerFrom(1),
    keep: integerFrom(1),
    resume: either(flag, text),
    onNote: callback,
    onStep: callback,
  },
  evaluate: samples,
  verify: {
    directory: text,
    model: text,
    inputs: text,
    seed: integerFrom(0),
    tensors: flag,
    rtol: amount,
    atol: amount,
    backend: oneOf(...COMPUTING_BACKENDS),
    ...resources,
    ...watched,
  },
  rehearse: {
    directory: text,
    model: text,
    ranks: integerFrom(2),
    memory: integerFrom(1),
    timeLimit: amount,
    seed: integerFrom(0),
    ...watched,
  },
  exportWeights: { directory: text, output: text, checkpoint: text, model: text },
  plot: { runs: texts, output: text },
  profile: { output: text, quick: flag, ...watched, measure: callback },
  calibrate: { files: texts, cluster: text, output: text, ...watched },
};

/** A training step as it is stored. */
export const STORED_TRAINING = having(
  options<Training>({ ...trained, loss: having(loss, 'kind'), optimizer: having(optimizer, 'kind') }),
  'loss',
  'optimizer',
);

/** source.json. */
export const STORED_SOURCE = having(
  options<ProgramSource>({
    format: oneOf('autopar-source'),
    model: text,
    generated: text,
    dims: record(integerFrom(0)),
    globalBatch: orNull(integerFrom(0)),
    randomWeights: orNull(integerFrom(0)),
    constants: flag,
    weights: texts,
    training: STORED_TRAINING,
    decisions: options<SourceDecisions>({
      mode,
      annotations: text,
      config: text,
      axes,
      memoryBytes: amount,
      searchMode,
      solver,
      proposals: options<ProposalRequest>({
        ...simulating,
        ...preferring,
        loss: having(loss, 'kind'),
        memory: amount,
        objective: oneOf('time', 'memory'),
        program: flag,
        top: integerFrom(1),
        timeLimit: amount,
      }),
    }),
  }),
  ...['format', 'model', 'dims', 'globalBatch', 'randomWeights', 'constants'],
);

/** Required options; `generate` can replace `model`. */
export const NEEDED: Readonly<Partial<Record<Verb, readonly string[]>>> = {
  inspect: ['model'],
  compile: ['model'],
  emit: ['directory'],
  run: ['directory'],
  train: ['directory', 'data'],
  evaluate: ['data'],
  verify: ['directory'],
  rehearse: ['directory'],
  exportWeights: ['output'],
  plot: ['runs'],
  calibrate: ['files', 'cluster'],
};

/** The verbs that have an option of this name. */
export function verbsWith(name: string): readonly string[] {
  return Object.entries(TABLES)
    .filter(([, table]: readonly [string, Readonly<Record<string, OptionKind>>]) => Object.hasOwn(table, name))
    .map(([verb]) => verb);
}

/** The path of a property of `training`, at any depth, by its last name: `momentum` is `training.optimizer.momentum`. */
export function trainingPath(name: string, keys = training.keys, path = 'training'): string | null {
  for (const [key, kind] of Object.entries(keys ?? {})) {
    if (key === name) return `${path}.${key}`;
    const inner = kind.keys ? trainingPath(name, kind.keys, `${path}.${key}`) : null;
    if (inner !== null) return inner;
  }
  return null;
}
