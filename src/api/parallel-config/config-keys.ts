/**
 * @file The keys of MindFormers' configuration files that are about parallelism: a table of each key's path, the form of its
 * value, and its default. docs/reference/mindformers.md has the same rows in words; a test compares them.
 */
import { isRecord } from '../../ir/schema-check.js';
import { tupleValues } from '../../sharding-propagation/annotations/tuple-text.js';
import { MOST_DEVICES } from '../../sharding-propagation/mesh.js';
import {
  CONFIG_SEARCH_MODES,
  CONTEXT_ALGORITHMS,
  type CommFusion,
  type ConfigKey,
  type DatasetStrategy,
  FUSED_COLLECTIVES,
  type ParallelMode,
  type ParallelValues,
  PIPELINE_SCHEDULERS,
  type RecomputedCounts,
} from './parallel-config.js';

/** A value of the wrong form: the expected form, and the choices if only certain values are valid. */
interface Unfit {
  readonly expected: string;
  readonly choices?: readonly string[];
}

export type ReadValue<Value> = { readonly value: Value } | Unfit;

/** One key of a file. */
export interface KeyRow<Key extends ConfigKey = ConfigKey> {
  /** Keys from the top of the file: `parallel`, `search_mode`. */
  readonly path: readonly string[];
  readonly key: Key;
  readonly read: (value: unknown) => ReadValue<ParallelValues[Key]>;
}

/** Defaults of keys that a file leaves out. */
export const DEFAULTS: ParallelValues = {
  useParallel: true,
  parallelMode: 'semi-auto',
  gradientsMean: false,
  enableAllToAll: false,
  fullBatch: false,
  datasetStrategy: null,
  searchMode: null,
  enableParallelOptimizer: false,
  optimizerLevel: 1,
  gradientAccumulationShard: false,
  strategySaveFile: null,
  strategyLoadFile: null,
  dataParallel: 1,
  modelParallel: 1,
  pipelineStage: 1,
  pipelineScheduler: '1f1b',
  pipelineInterleave: false,
  ppInterleaveNum: 1,
  contextParallel: 1,
  contextParallelAlgo: null,
  expertParallel: 1,
  useSeqParallel: false,
  microBatchNum: 1,
  gradientAggregationGroup: 4,
  commFusion: null,
  vocabEmbDp: true,
  microBatchInterleaveNum: 1,
  gradientAccumulationSteps: 1,
  recompute: false,
  selectRecompute: false,
  swap: false,
};

export const KEY_ROWS: readonly KeyRow[] = [
  row('use_parallel', 'useParallel', truth),
  row('parallel.parallel_mode', 'parallelMode', mode),
  row('parallel.gradients_mean', 'gradientsMean', truth),
  row('parallel.enable_alltoall', 'enableAllToAll', truth),
  row('parallel.full_batch', 'fullBatch', truth),
  row('parallel.dataset_strategy', 'datasetStrategy', datasetStrategy),
  row('parallel.search_mode', 'searchMode', oneOf(CONFIG_SEARCH_MODES)),
  row('parallel.auto_parallel_search_mode', 'searchMode', oneOf(CONFIG_SEARCH_MODES)),
  row('parallel.enable_parallel_optimizer', 'enableParallelOptimizer', truth),
  row('parallel.parallel_optimizer_config.optimizer_level', 'optimizerLevel', optimizerLevel),
  row('parallel.parallel_optimizer_config.gradient_accumulation_shard', 'gradientAccumulationShard', truth),
  row('parallel.strategy_ckpt_save_file', 'strategySaveFile', path),
  row('parallel.strategy_ckpt_config.save_file', 'strategySaveFile', path),
  row('parallel.strategy_ckpt_load_file', 'strategyLoadFile', path),
  row('parallel.strategy_ckpt_config.load_file', 'strategyLoadFile', path),
  row('parallel_config.data_parallel', 'dataParallel', degree),
  row('parallel_config.model_parallel', 'modelParallel', degree),
  row('parallel_config.pipeline_stage', 'pipelineStage', degree),
  row('parallel.pipeline_config.pipeline_scheduler', 'pipelineScheduler', oneOf(PIPELINE_SCHEDULERS)),
  row('parallel.pipeline_config.pipeline_interleave', 'pipelineInterleave', truth),
  row('model.model_config.pp_interleave_num', 'ppInterleaveNum', degree),
  row('parallel_config.context_parallel', 'contextParallel', degree),
  row('parallel_config.context_parallel_algo', 'contextParallelAlgo', oneOf(CONTEXT_ALGORITHMS)),
  row('parallel_config.expert_parallel', 'expertParallel', degree),
  row('parallel_config.use_seq_parallel', 'useSeqParallel', truth),
  row('parallel_config.micro_batch_num', 'microBatchNum', degree),
  row('parallel_config.gradient_aggregation_group', 'gradientAggregationGroup', degree),
  row('parallel.comm_fusion', 'commFusion', commFusion),
  row('parallel_config.vocab_emb_dp', 'vocabEmbDp', truth),
  row('micro_batch_interleave_num', 'microBatchInterleaveNum', degree),
  row('runner_config.gradient_accumulation_steps', 'gradientAccumulationSteps', degree),
  row('parallel.grad_accumulation_step', 'gradientAccumulationSteps', degree),
  row('recompute_config.recompute', 'recompute', recomputed),
  row('recompute_config.select_recompute', 'selectRecompute', recomputed),
  row('parallel_config.recompute', 'recompute', recomputed),
  row('parallel_config.select_recompute', 'selectRecompute', recomputed),
  row('swap_config.swap', 'swap', truth),
];

/**
 * Keys of the sections `parallel` and `parallel_config` that MindFormers has and a plan does not need, with the reason. The
 * report names them, whatever their value.
 */
export const NOTED_KEYS: Readonly<Record<string, string>> = {
  'parallel.device_num': '--devices or --cluster sets the number of devices',
  'parallel.global_rank': 'a plan is for all ranks',
  'parallel.loss_repeated_mean': 'gradients follow from the model’s own loss',
  'parallel.parameter_broadcast': 'every rank reads its shards of the weights itself',
  'parallel.gradient_fp32_sync': 'gradients are reduced in the type that the model gives them',
  'parallel.communi_parallel_mode': 'the plan decides which communication overlaps',
  'parallel.all_reduce_fusion_config':
    'comm_fusion and parallel_config.gradient_aggregation_group set the buckets of gradient reductions',
  'parallel.auto_pipeline': 'parallel_config.pipeline_stage sets the number of stages; the search cuts them',
  'parallel.pipeline_stages': 'parallel_config.pipeline_stage sets the degree',
  'parallel.pipeline_result_broadcast': 'results are assembled on request',
  'parallel.group_ckpt_save_file': 'autopar groups lists the groups',
  'parallel.optimizer_weight_shard_size': 'state is sharded over all of dp',
  'parallel.optimizer_weight_shard_aggregated_save': 'checkpoints hold shards',
  'parallel.strategy_ckpt_config.only_trainable_params': 'a plan holds all operators',
  'parallel.parallel_optimizer_config.parallel_optimizer_threshold':
    'data-parallel ranks shard all state that they can',
  'parallel.parallel_optimizer_config.optimizer_weight_shard_size': 'state is sharded over all of dp',
  'parallel_config.optimizer_shard': 'deprecated; parallel.enable_parallel_optimizer sets it',
  'parallel_config.mem_coeff': 'it tunes MindSpore’s own search',
  'parallel_config.auto_parallel': 'parallel.parallel_mode sets it',
  'parallel_config.seq_split_num': 'sequences are not split in time',
  'parallel_config.ulysses_degree_in_cp': 'the plan chooses the communication of attention over a sharded sequence',
  'recompute_config.parallel_optimizer_comm_recompute': 'the plan decides when parameters are gathered',
  'recompute_config.select_comm_recompute': 'recompute runs the collectives of its operators again',
  'recompute_config.mp_comm_recompute': 'recompute runs the collectives of its operators again',
  'recompute_config.recompute_slice_activation': 'a layer stores its inputs in the layout in which they arrive',
  'parallel_config.swap': 'the plan or annotations decide what is offloaded to the host',
};

/** Sections in which every key must be known. */
export const SECTIONS = ['parallel', 'parallel_config', 'recompute_config'] as const;

/** Other top-level keys of MindFormers. A key that is close to one of ours and not among them is a misspelling. */
export const OTHER_TOP_KEYS: readonly string[] = [
  'auto_trans_ckpt',
  'auto_tune',
  'autotune_per_step',
  'callbacks',
  'context',
  'data_size',
  'device_num',
  'do_eval',
  'do_predict',
  'do_train',
  'eval_dataset',
  'eval_dataset_task',
  'eval_epoch_interval',
  'eval_step_interval',
  'filepath_prefix',
  'ignore_data_skip',
  'infer_precision_sync',
  'init_start_profile',
  'layer_decay',
  'layer_scale',
  'load_checkpoint',
  'load_ckpt_format',
  'local_rank',
  'loss',
  'lr_scale',
  'lr_scale_factor',
  'lr_schedule',
  'metric',
  'model',
  'moe_config',
  'only_save_strategy',
  'optimizer',
  'output_dir',
  'pipeline',
  'pretrained_model_dir',
  'processor',
  'profile',
  'profile_communication',
  'profile_memory',
  'profile_start_step',
  'profile_stop_step',
  'profiler_level',
  'remote_save_url',
  'resume_training',
  'run_mode',
  'runner_config',
  'runner_wrapper',
  'seed',
  'src_strategy_path_or_dir',
  'swap_config',
  'train_dataset',
  'train_dataset_task',
  'trainer',
  'transform_process_num',
  'use_graceful_exit',
  'use_legacy',
];

function row<Key extends ConfigKey>(
  path: string,
  key: Key,
  read: (value: unknown) => ReadValue<ParallelValues[Key]>,
): KeyRow {
  return { path: path.split('.'), key, read } as KeyRow<Key> as unknown as KeyRow;
}

function truth(value: unknown): ReadValue<boolean> {
  return typeof value === 'boolean' ? { value } : { expected: 'True or False' };
}

function degree(value: unknown): ReadValue<number> {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 1 && value <= MOST_DEVICES
    ? { value }
    : { expected: `a whole number of at least 1 and at most ${MOST_DEVICES}` };
}

/** True, False, layers by stage, or patterns, which select some operators. */
function recomputed(value: unknown): ReadValue<boolean | 'some' | RecomputedCounts> {
  if (typeof value === 'boolean') return { value };
  if (isCounts(value) || (Array.isArray(value) && value.length > 0 && value.every(isCounts))) return { value };
  return typeof value === 'object' || value === 'some'
    ? { value: 'some' }
    : { expected: 'True, False, or a list of layers or operators' };
}

function isCounts(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.length > 0 && value.every((count) => Number.isSafeInteger(count) && count >= 0);
}

function commFusion(value: unknown): ReadValue<CommFusion> {
  const expected =
    'a mapping such as {allreduce: {mode: size, config: 32}}, of allreduce, reducescatter and allgather, mode auto, ' +
    'size or index';
  if (!isRecord(value)) return { expected };
  const { openstate = true, ...collectives } = value;
  const fits = Object.entries(collectives).every(
    ([name, fused]) => FUSED_COLLECTIVES.some((known) => known === name) && isFused(fused),
  );
  return fits && typeof openstate === 'boolean' ? { value: value as CommFusion } : { expected };
}

function isFused(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { mode, config = null, ...others } = value;
  if (Object.keys(others).length > 0) return false;
  if (mode === 'size') return typeof config === 'number' && config > 0 && config <= MOST_MEGABYTES;
  return mode === 'auto' || (mode === 'index' && isCounts(config));
}

/** Far beyond any model's gradients. */
const MOST_MEGABYTES = 2 ** 30;

function path(value: unknown): ReadValue<string | null> {
  return typeof value === 'string' ? { value: value === '' ? null : value } : { expected: 'the path of a file' };
}

const MODES: Readonly<Record<string, ParallelMode>> = {
  '0': 'data',
  '1': 'semi-auto',
  '2': 'auto',
  '3': 'hybrid',
  DATA_PARALLEL: 'data',
  SEMI_AUTO_PARALLEL: 'semi-auto',
  AUTO_PARALLEL: 'auto',
  HYBRID_PARALLEL: 'hybrid',
  STAND_ALONE: 'stand-alone',
  MANUAL_PARALLEL: 'stand-alone',
};

function mode(value: unknown): ReadValue<ParallelMode> {
  const found = typeof value === 'number' || typeof value === 'string' ? MODES[String(value).toUpperCase()] : undefined;
  return found
    ? { value: found }
    : { expected: '0 (data), 1 (semi-auto), 2 (auto), 3 (hybrid) or a name', choices: Object.keys(MODES) };
}

function oneOf<Name extends string>(names: readonly Name[]): (value: unknown) => ReadValue<Name> {
  return (value) => {
    const found = names.find((name) => name === value);
    return found ? { value: found } : { expected: `one of ${names.join(', ')}`, choices: names };
  };
}

function optimizerLevel(value: unknown): ReadValue<1 | 2 | 3> {
  const levels = { level1: 1, level2: 2, level3: 3 } as const;
  const found = Object.entries(levels).find(([name]) => name === value);
  return found ? { value: found[1] } : { expected: 'level1, level2 or level3', choices: Object.keys(levels) };
}

const DATASET_STRATEGIES = ['data_parallel', 'full_batch'] as const;

function datasetStrategy(value: unknown): ReadValue<DatasetStrategy | null> {
  const named = DATASET_STRATEGIES.find((name) => name === value);
  if (named) return { value: named };
  const given = typeof value === 'string' ? tupleValues(value)?.[0] : value;
  const isCounts = (item: unknown): item is readonly number[] =>
    Array.isArray(item) && item.every((count) => Number.isSafeInteger(count) && count >= 1);
  if (Array.isArray(given) && given.length > 0 && given.every(isCounts)) return { value: given };
  return {
    expected: 'data_parallel, full_batch, or split counts per input such as [[4, 1], [4, 1]]',
    ...(typeof value === 'string' ? { choices: DATASET_STRATEGIES } : {}),
  };
}
