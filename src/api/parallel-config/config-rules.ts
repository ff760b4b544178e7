/**
 * @file The rules that a configuration must obey: among its own keys, against the devices, and against the model.
 */
import { AutoparError } from '../../ir/error.js';
import type { Graph } from '../../ir/graph.js';
import { checkArguments } from '../options/kinds.js';
import { CONFIGURATION, GRAPH } from '../options/results.js';
import { KEY_ROWS } from './config-keys.js';
import type { ConfigKey, ParallelConfig } from './parallel-config.js';
import { wordEmbedding } from './word-embedding.js';

/**
 * Checks the keys against each other and, where the number of devices is known, against it.
 * @throws AutoparError (input) `config-rule` with the keys, their values, and the rule
 */
export function checkConfig(config: ParallelConfig, devices?: number): void {
  for (const rule of RULES) {
    const broken = rule(config, devices);
    if (broken) throw breaks(config, broken);
  }
}

/** Prices of the model that the rules use. */
export interface ModelPricing {
  /** Seconds that the model's layers take in a step on one stage's devices, where the caller knows. */
  readonly layersSeconds?: number;
}

/**
 * Checks the configuration against the model. Sizes that model_parallel does not divide are padded, and layers that stages do
 * not divide are distributed unevenly. Both are allowed (MindFormers rejects them). Returns a warning for each, one sentence
 * with the cost.
 */
export function checkAgainstModel(config: ParallelConfig, graph: Graph, pricing: ModelPricing = {}): readonly string[] {
  checkArguments('checkAgainstModel', { config: [config, CONFIGURATION], graph: [graph, GRAPH] });
  const { modelParallel } = config;
  const warnings: string[] = [];
  const embedding = wordEmbedding(graph);
  if (embedding && modelParallel > 1 && pinsDegrees(config)) {
    const { table, vocabulary, hidden } = embedding;
    const keptWhole = config.vocabEmbDp && config.given.has('vocabEmbDp');
    warnings.push(...padded('hidden size', hidden, table, modelParallel));
    if (!keptWhole) warnings.push(...padded('vocabulary', vocabulary, table, modelParallel));
  }
  return [...warnings, ...unevenStages(config, graph, pricing)];
}

/** A warning with the cost of padding a size; empty if the degree divides it. */
function padded(what: string, size: number, table: string, modelParallel: number): readonly string[] {
  if (size % modelParallel === 0) return [];
  const whole = Math.ceil(size / modelParallel) * modelParallel;
  const more = ((whole / size - 1) * 100).toPrecision(2);
  return [
    `model_parallel ${modelParallel} does not divide the ${what} ${size} (of ${table}): it is padded to ${whole} ` +
      'where it is sharded, ' +
      `${more} % more work and memory there`,
  ];
}

/** Model chunks per stage: two for zero_bubble_v, else the interleaved chunks, which only 1F1B has. */
export function chunksOf({
  pipelineStage,
  pipelineScheduler,
  pipelineInterleave,
  ppInterleaveNum,
}: ParallelConfig): number {
  if (pipelineStage === 1) return 1;
  if (pipelineScheduler === 'zero_bubble_v') return 2;
  return pipelineInterleave && pipelineScheduler === '1f1b' ? ppInterleaveNum : 1;
}

/** Whether the degrees of the file are fixed; in auto mode they are searched. */
export function pinsDegrees({ useParallel, parallelMode }: ParallelConfig): boolean {
  return useParallel && (parallelMode === 'semi-auto' || parallelMode === 'hybrid');
}

function unevenStages({ pipelineStage }: ParallelConfig, graph: Graph, pricing: ModelPricing): readonly string[] {
  const layers = new Set(graph.nodes.flatMap(({ layer }) => layer ?? [])).size;
  if (pipelineStage === 1 || layers === 0 || layers % pipelineStage === 0) return [];
  const fullest = Math.ceil(layers / pipelineStage);
  const even = layers / pipelineStage;
  const slower = (fullest / even - 1) * 100;
  const stages = Array.from(
    { length: pipelineStage },
    (_, stage) => Math.floor(((stage + 1) * layers) / pipelineStage) - Math.floor((stage * layers) / pipelineStage),
  );
  const { layersSeconds } = pricing;
  const price =
    layersSeconds === undefined
      ? ''
      : `, ${((layersSeconds / layers) * (fullest - even) * 1e3).toPrecision(3)} ms of each step`;
  return [
    `pipeline_stage ${pipelineStage} does not divide the ${layers} layers: stages have ${range(stages)} layers, ` +
      'and all wait for the fullest, ' +
      `which has ${fullest} where even stages had ${Number(even.toFixed(2))}; that is ${slower.toFixed(0)} % more time${price}`,
  ];
}

function range(counts: readonly number[]): string {
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  return least === most ? `${least}` : `${least} or ${most}`;
}

interface BrokenRule {
  /** The keys that break the rule, the main one first. */
  readonly keys: readonly ConfigKey[];
  readonly sentence: string;
  readonly hint: string;
}

type ConfigRule = (config: ParallelConfig, devices: number | undefined) => BrokenRule | null;

const RULES: readonly ConfigRule[] = [
  fitsDevices,
  enoughMicroBatches,
  countsFitStages,
  dataModeShardsTheBatchOnly,
  dataModeFeedsParts,
  expertsDivideRanks,
  standsAlone,
  inputsFitDevices,
];

function fitsDevices(config: ParallelConfig, devices: number | undefined): BrokenRule | null {
  if (devices === undefined || !pinsDegrees(config)) return null;
  const factors = (
    [
      ['data_parallel', config.dataParallel],
      ['model_parallel', config.modelParallel],
      ['pipeline_stage', config.pipelineStage],
      ['context_parallel', config.contextParallel],
    ] as const
  ).filter(([name, degree]) => name !== 'context_parallel' || degree > 1);
  const product = factors.reduce((total, [, degree]) => total * degree, 1);
  if (product <= devices) return null;
  return {
    keys: ['dataParallel', 'modelParallel', 'pipelineStage', 'contextParallel'],
    sentence:
      `${factors.map(([name, degree]) => `${name} ${degree}`).join(' · ')} is ${product}, more than the ` +
      `${devices} devices`,
    hint: 'lower one of them, or plan for more devices: their product may not exceed --devices',
  };
}

function enoughMicroBatches({ useParallel, pipelineStage, microBatchNum }: ParallelConfig): BrokenRule | null {
  if (!useParallel || pipelineStage === 1 || microBatchNum >= pipelineStage) return null;
  return {
    keys: ['microBatchNum', 'pipelineStage'],
    sentence:
      `micro_batch_num ${microBatchNum} is less than pipeline_stage ${pipelineStage}: some stages would ` +
      'never work at the same time as others',
    hint: `set micro_batch_num to at least ${pipelineStage}; more of them waste less time at the ends`,
  };
}

/** Layers that recompute are counted by stage, and by chunk where stages have several. */
function countsFitStages(config: ParallelConfig): BrokenRule | null {
  const { pipelineStage } = config;
  const chunks = chunksOf(config);
  for (const key of ['recompute', 'selectRecompute'] as const) {
    const counts = config[key];
    if (typeof counts !== 'object') continue;
    const lists = counts.every((count) => typeof count === 'number') ? [counts] : (counts as readonly number[][]);
    if (lists.length === chunks && lists.every(({ length }) => length === pipelineStage)) continue;
    const needed = chunks === 1 ? `${pipelineStage} numbers` : `${chunks} lists of ${pipelineStage} numbers`;
    return {
      keys: [key, 'pipelineStage'],
      sentence:
        `${keyText(key)} is ${JSON.stringify(counts)}, and pipeline_stage ${pipelineStage}` +
        `${chunks > 1 ? ` of ${chunks} chunks a stage` : ''} has ${chunks * pipelineStage} parts`,
      hint: `give ${needed}, the layers of each part that recompute, or True for all layers`,
    };
  }
  return null;
}

function dataModeShardsTheBatchOnly(config: ParallelConfig): BrokenRule | null {
  if (!config.useParallel || config.parallelMode !== 'data') return null;
  const keys = (['modelParallel', 'pipelineStage', 'contextParallel'] as const).filter((key) => config[key] > 1);
  const [key] = keys;
  if (key === undefined) return null;
  return {
    keys,
    sentence: `${keyText(key)} is ${config[key]}, and parallel_mode 0 (data) shards the batch only`,
    hint: 'set it to 1, or parallel_mode to 1 (semi-auto) or 2 (auto)',
  };
}

function dataModeFeedsParts({
  useParallel,
  parallelMode,
  fullBatch,
  datasetStrategy,
}: ParallelConfig): BrokenRule | null {
  if (!useParallel || parallelMode !== 'data' || !(fullBatch || datasetStrategy === 'full_batch')) return null;
  return {
    keys: fullBatch ? ['fullBatch'] : ['datasetStrategy'],
    sentence:
      `${fullBatch ? 'full_batch: True' : 'dataset_strategy: full_batch'} in parallel_mode 0 (data): ` +
      'every rank would compute the same full batch',
    hint: 'set full_batch to False; it belongs to parallel_mode 1 and 2',
  };
}

function expertsDivideRanks(config: ParallelConfig): BrokenRule | null {
  const { expertParallel, dataParallel, contextParallel } = config;
  const ranks = dataParallel * contextParallel;
  if (!pinsDegrees(config) || ranks % expertParallel === 0) return null;
  return {
    keys: ['expertParallel', 'dataParallel'],
    sentence:
      `expert_parallel ${expertParallel} does not divide ` +
      `data_parallel${contextParallel > 1 ? ' · context_parallel' : ''} ${ranks}: experts are on data-parallel ` +
      'ranks',
    hint: `choose a divisor of ${ranks}`,
  };
}

function standsAlone(
  { useParallel, parallelMode, given }: ParallelConfig,
  devices: number | undefined,
): BrokenRule | null {
  if (devices === undefined || devices === 1) return null;
  if (useParallel && parallelMode !== 'stand-alone') return null;
  const key = useParallel || !given.has('useParallel') ? 'parallelMode' : 'useParallel';
  return {
    keys: [key],
    sentence:
      `${key === 'useParallel' ? 'use_parallel: False' : 'parallel_mode STAND_ALONE'} is for one device, ` +
      `not for ${devices}`,
    hint: 'set use_parallel to True and a parallel_mode from 0 to 3, or plan for --devices 1',
  };
}

function inputsFitDevices({ datasetStrategy }: ParallelConfig, devices: number | undefined): BrokenRule | null {
  if (devices === undefined || datasetStrategy === null || typeof datasetStrategy === 'string') return null;
  const large = datasetStrategy.find((counts) => counts.reduce((product, count) => product * count, 1) > devices);
  if (!large) return null;
  return {
    keys: ['datasetStrategy'],
    sentence: `dataset_strategy cuts an input into (${large.join(', ')}), more parts than the ${devices} devices`,
    hint: 'the counts of an input may not multiply to more than the devices',
  };
}

/** The key as files have it: `parallel_config.model_parallel`. */
export function keyText(key: ConfigKey): string {
  return KEY_ROWS.find((row) => row.key === key)?.path.at(-1) ?? key;
}

function breaks({ file, given }: ParallelConfig, { keys, sentence, hint }: BrokenRule): AutoparError {
  const line = keys.map((key) => given.get(key)).find((found) => typeof found === 'number');
  const where = { ...(file === null ? {} : { file }), ...(typeof line === 'number' ? { line } : {}) };
  return new AutoparError('config-rule', 'input', sentence, where, hint);
}
