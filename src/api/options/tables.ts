/**
 * @file The options of every public verb and the kinds of their values. They are the options of the command line in camelCase.
 */

import { TOKEN_TYPES } from '../../data/data-file.js';
import type { SessionOptions } from '../../runtime/session.js';
import { SCHEDULE_KINDS } from '../../schedule/schedule.js';
import { SP_METHODS, SP_ORDERS, TP_SEQUENCES } from '../../sharding-propagation/roles.js';
import { GRADIENT_SYNCS } from '../../strategy/request.js';
import type { CalibrateOptions } from '../calibrate.js';
import { COMPUTING_BACKENDS, RUN_BACKENDS } from '../execution/backends.js';
import type { ExportOptions } from '../export-weights.js';
import type { InspectOptions } from '../inspect.js';
import type { ImportOptions } from '../models/import.js';
import type { EmitOptions } from '../output/emit.js';
import type { PlotOptions } from '../plot.js';
import type { ProfileOptions } from '../profile.js';
import type { RehearseOptions } from '../rehearse.js';
import { OBJECTIVES } from '../requests/compile-options.js';
import { TARGETS } from '../requests/targets.js';
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
  integerFrom,
  type KindsOf,
  type OptionKind,
  object,
  oneOf,
  options,
  orNull,
  record,
  signal,
  text,
  texts,
} from './kinds.js';
import {
  axes,
  degrees,
  importing,
  mode,
  parameters,
  preferring,
  reading,
  recipe,
  searchMode,
  simulating,
  solver,
  training,
  writing,
} from './step-kinds.js';

const watched = { signal, onProgress: callback };
const resources = { memory: integerFrom(1), offloadDir: text, onSubstitutes: callback };
const samples = { data: texts, tokenType: oneOf(...TOKEN_TYPES) };

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

export const SESSION = options<SessionOptions>({
  ...resources,
  backend: oneOf(...COMPUTING_BACKENDS),
  threadsPerRank: integerFrom(1),
  stallSeconds: amount,
  emulation: object,
  signal,
  onLoaded: callback,
  fault: object,
  delays: object,
});

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
