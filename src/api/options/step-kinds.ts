/**
 * @file The kinds of the options of a model and of a step, which verbs take and source.json stores.
 */

import { LAYER_RECOMPUTE_KINDS } from '../../ir/autodiff/recompute-names.js';
import { SCHEDULE_KINDS } from '../../schedule/schedule.js';
import { SEARCH_MODES, SOLVERS } from '../../search/search-mode.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import { TP_SEQUENCES } from '../../sharding-propagation/roles.js';
import { PREFERENCES } from '../../strategy/request.js';
import { DISPATCHES } from '../models/dispatch.js';
import { GRADIENT_REDUCTIONS } from '../models/gradient-reduction.js';
import type { ImportOptions } from '../models/import.js';
import { BATCH_STATISTICS } from '../models/statistics-parts.js';
import type { WriteModelOptions } from '../models/write-model.js';
import { LOSSES, OPTIMIZERS, type Training } from '../requests/training-request.js';
import type { SimulateOptions } from '../simulate.js';
import {
  amount,
  either,
  finite,
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
  record,
  share,
  signal,
  text,
  texts,
} from './kinds.js';

/** A tensor, or what fills an input: a number, a boolean. */
const fixedValue = either(object, either(finite, flag));

/** Options of importing that models from the command line take. */
export const reading = {
  dims: record(integerFrom(1)),
  shapes: record(numbers),
  globalBatch: integerFrom(1),
  constants: record(fixedValue),
  weights: texts,
  dispatch: oneOf(...DISPATCHES),
  capacityFactor: amount,
};
export const importing = {
  ...reading,
  fusedRegions: flag,
  blocks: flag,
  sharesSequence: flag,
  sharesExperts: flag,
  stacksExperts: flag,
  forTraining: flag,
  keepsParameters: flag,
} satisfies KindsOf<ImportOptions>;
export const parameters = { tie: texts, untie: texts, trainable: texts, frozen: texts };
export const preferring = { prefer: oneOf(...PREFERENCES), headroom: share };
const degree = integerFrom(1);
const axisOrder: OptionKind = {
  expected: `an array of ${AXIS_ORDER.map((axis) => `"${axis}"`).join(', ')}, in any order`,
  holds: (value) =>
    texts.holds(value) && [...(value as readonly string[])].sort().join() === [...AXIS_ORDER].sort().join(),
};
export const degrees = { dp: degree, tp: degree, pp: degree, sp: degree, ep: degree };

export const loss = options<Training['loss']>({
  kind: oneOf(...LOSSES),
  output: text,
  ignoreIndex: integer,
  classWeights: numbers,
  labelSmoothing: amount,
  moeBalance: amount,
});

export const recipe = oneOf('fp32', 'fp16', 'bf16');

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
export const training = options<Training>(trained);

export const mode = oneOf('auto', 'semi-auto', 'data', 'hybrid');
export const axes = oneOf('roles', 'free');
export const searchMode = oneOf(...SEARCH_MODES);
export const solver = oneOf(...SOLVERS);

export const writing = { writeModel: text, force: flag } satisfies KindsOf<WriteModelOptions>;

export const simulating = {
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

/** A training step as it is stored. */
export const STORED_TRAINING = having(
  options<Training>({ ...trained, loss: having(loss, 'kind'), optimizer: having(optimizer, 'kind') }),
  'loss',
  'optimizer',
);
