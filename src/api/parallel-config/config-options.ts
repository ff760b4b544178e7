/**
 * @file Converts a MindFormers configuration to options of autopar, as data. Settings that no program can be made for yet are
 * listed, one sentence each.
 */
import type { Interleave } from '../../partition/sharded-graph.js';
import { partAt } from '../../schedule/parts.js';
import type { ScheduleKind } from '../../schedule/schedule.js';
import type { SpMethod, TpSequence } from '../../sharding-propagation/roles.js';
import type { GradientReduction } from '../models/gradient-reduction.js';
import { checkArguments, integerFrom, leftOut } from '../options/kinds.js';
import { CONFIGURATION } from '../options/results.js';
import { DEFAULTS } from './config-keys.js';
import { checkConfig, chunksOf, keyText, pinsDegrees } from './config-rules.js';
import type {
  ConfigKey,
  ConfigRemark,
  ConfigSearchMode,
  ContextParallelAlgo,
  DatasetStrategy,
  ParallelConfig,
  PipelineScheduler,
  RecomputedCounts,
} from './parallel-config.js';
import { FUSED_COLLECTIVES } from './parallel-config.js';

/** A kind for all layers, or for the first ones of each stage: their counts, in the order of the model's parts. */
export type ConfiguredRecompute =
  | 'full'
  | 'selective'
  | 'none'
  | { readonly kind: 'full' | 'selective'; readonly counts: readonly number[] };

export interface ConfigOptions {
  readonly mode: 'data' | 'semi-auto' | 'auto' | 'hybrid';
  /** Degrees that are pinned; those left out are free. */
  readonly degrees: Partial<Record<'dp' | 'tp' | 'pp' | 'sp' | 'ep', number>>;
  /** Devices that the pinned degrees use, where they fix all of them; null where every device is used. */
  readonly devices: number | null;
  /** Megatron's sequence parallelism: `on` and `off` where the file says, `auto` otherwise. */
  readonly tpSequence: TpSequence;
  /** Micro-batches of a pipeline; without a pipeline, the gradient accumulation steps. */
  readonly microBatches: number;
  /** The pipeline schedule, and the chunks per stage; null where the file does not say, or the schedule is not supported. */
  readonly schedule: ScheduleKind | null;
  readonly virtualStages: number | null;
  /** How sp shards attention; null where the file does not say, or shards no sequence. */
  readonly spMethod: SpMethod | null;
  /** Parts of a micro-batch; the communication of one part overlaps the computation of the other. */
  readonly interleave: Interleave;
  /** The most gradient reductions in a bucket, and the most bytes of a bucket; null where the file does not say. */
  readonly gradientBuckets: number | null;
  readonly bucketBytes: number | null;
  /** How gradients of data-parallel ranks are reduced; null where the file does not say. */
  readonly gradientReduction: GradientReduction | null;
  readonly searchMode: 'auto' | ConfigSearchMode;
  /** The ZeRO level of the parallel optimizer, 0 where it is switched off; null where the file does not say. */
  readonly zero: 0 | 1 | 2 | 3 | null;
  /** Tensors that are offloaded, in the words of `--offload`; null where the file does not say. */
  readonly offload: string | null;
  readonly saveFile: string | null;
  readonly loadFile: string | null;
  readonly allToAll: boolean;
  readonly fullBatch: boolean;
  readonly datasetStrategy: DatasetStrategy | null;
  /** Whether the embedding table is replicated over tp; null where the file does not say. */
  readonly vocabEmbDp: boolean | null;
  /** Recompute in training, as for `--recompute`; null where the file does not say. */
  readonly recompute: ConfiguredRecompute | null;
  /** Settings of the file that have no effect here, for the report. */
  readonly remarks: readonly ConfigRemark[];
  /** Settings that no program can be made for yet; planning ignores them. */
  readonly notLowered: readonly ConfigRemark[];
}

/**
 * The options. If the number of devices is given, the rules about it are checked too.
 * @throws AutoparError (input) `config-rule`
 */
export function optionsOf(config: ParallelConfig, devices?: number): ConfigOptions {
  checkArguments('optionsOf', { config: [config, CONFIGURATION], devices: [devices, leftOut(integerFrom(1))] });
  checkConfig(config, devices);
  const { useParallel, parallelMode, given } = config;
  const alone = !useParallel || parallelMode === 'stand-alone';
  const degrees = alone ? { dp: 1, tp: 1 } : degreesOf(config);
  const all = alone || pinsDegrees(config) ? productOf(degrees) : null;
  const mode = alone ? 'auto' : parallelMode;
  return {
    mode,
    degrees,
    devices: all,
    tpSequence:
      given.has('useSeqParallel') && config.modelParallel > 1 ? (config.useSeqParallel ? 'on' : 'off') : 'auto',
    microBatches: !alone && config.pipelineStage > 1 ? config.microBatchNum : config.gradientAccumulationSteps,
    ...(alone ? { schedule: null, virtualStages: null } : scheduleOf(config)),
    spMethod: !alone && config.contextParallel > 1 ? METHODS[config.contextParallelAlgo ?? 'hybrid_cp'] : null,
    interleave: !alone && config.modelParallel > 1 && config.microBatchInterleaveNum === HALVES ? HALVES : 1,
    gradientBuckets: given.has('gradientAggregationGroup') ? config.gradientAggregationGroup : null,
    bucketBytes: bucketOf(config)?.bytes ?? null,
    gradientReduction: given.has('gradientsMean') ? (config.gradientsMean ? 'mean' : 'sum') : null,
    searchMode: parallelMode === 'auto' ? (config.searchMode ?? 'auto') : 'auto',
    zero: alone ? null : zeroOf(config),
    offload: config.given.has('swap') ? (config.swap ? 'activations' : 'none') : null,
    saveFile: config.strategySaveFile,
    loadFile: config.strategyLoadFile,
    allToAll: config.enableAllToAll,
    fullBatch: config.fullBatch,
    datasetStrategy: config.datasetStrategy,
    vocabEmbDp: given.has('vocabEmbDp') ? keepsTableWhole(config) : null,
    recompute: recomputeOf(config),
    remarks: [...config.remarks, ...withoutEffect(config, devices, all)],
    notLowered: alone ? [] : notLowered(config),
  };
}

/** Parts of a micro-batch that are interleaved. */
const HALVES = 2;

/** Accumulated gradients are sharded by their own key, or by the level. */
function zeroOf({ enableParallelOptimizer, optimizerLevel, gradientAccumulationShard, given }: ParallelConfig) {
  if (!enableParallelOptimizer) return given.has('enableParallelOptimizer') ? 0 : null;
  return gradientAccumulationShard && optimizerLevel === 1 ? 2 : optimizerLevel;
}

/** MindSpore's algorithms of context parallelism, with their names here. */
const METHODS: Readonly<Record<ContextParallelAlgo, SpMethod | null>> = {
  colossalai_cp: 'gather',
  ulysses_cp: 'ulysses',
  hybrid_cp: null,
};

/** MindSpore's schedules, with their names here; the others are not supported. */
const SCHEDULES: Partial<Record<PipelineScheduler, ScheduleKind>> = {
  gpipe: 'f-then-b',
  '1f1b': '1f1b',
  zero_bubble_v: 'zbv',
};

function scheduleOf(config: ParallelConfig): Pick<ConfigOptions, 'schedule' | 'virtualStages'> {
  const { pipelineStage, pipelineScheduler, ppInterleaveNum, given } = config;
  const isInterleaved = pipelineScheduler === '1f1b' && chunksOf(config) > 1;
  const isStated = given.has('pipelineScheduler') || isInterleaved;
  if (pipelineStage === 1 || !isStated) return { schedule: null, virtualStages: null };
  if (isInterleaved) return { schedule: 'interleaved-1f1b', virtualStages: ppInterleaveNum };
  return { schedule: SCHEDULES[pipelineScheduler] ?? null, virtualStages: null };
}

/** If both are set, full recompute takes precedence over selective recompute. */
function recomputeOf(config: ParallelConfig): ConfigOptions['recompute'] {
  const { given, recompute, selectRecompute } = config;
  if (recomputes(recompute)) return recompute === true ? 'full' : { kind: 'full', counts: inOrder(recompute, config) };
  if (recomputes(selectRecompute))
    return selectRecompute === true ? 'selective' : { kind: 'selective', counts: inOrder(selectRecompute, config) };
  return given.has('recompute') || given.has('selectRecompute') ? 'none' : null;
}

/** Counts by chunk and stage in the order of the model's parts. */
function inOrder(counts: RecomputedCounts, config: ParallelConfig): readonly number[] {
  const stages = config.pipelineStage;
  const kind = SCHEDULES[config.pipelineScheduler] ?? '1f1b';
  const parts: number[] = [];
  for (const [index, count] of counts.flat().entries())
    parts[partAt(kind, index % stages, Math.floor(index / stages), stages)] = count;
  return parts;
}

function recomputes(said: ParallelConfig['recompute']): said is true | RecomputedCounts {
  return said !== false && said !== 'some';
}

/** MindSpore's threshold of mode auto. */
const AUTO_MEGABYTES = 64;

/** The first bucket size that comm_fusion gives, and whether all of its collectives have the same size. */
function bucketOf({ commFusion }: ParallelConfig): { readonly bytes: number | null; readonly isOne: boolean } | null {
  if (commFusion === null || commFusion.openstate === false) return null;
  const sizes = FUSED_COLLECTIVES.flatMap((name) => {
    const { mode, config } = commFusion[name] ?? { mode: 'index' };
    if (mode === 'index') return [];
    return [(mode === 'size' && typeof config === 'number' ? config : AUTO_MEGABYTES) * 2 ** 20];
  });
  return { bytes: sizes[0] ?? null, isOne: new Set(sizes).size <= 1 };
}

function fusionRemark(config: ParallelConfig): string | null {
  const { commFusion } = config;
  const bucket = bucketOf(config);
  if (commFusion === null) return null;
  if (bucket === null) return 'openstate: False, each reduction is a separate message without --bucket';
  if (FUSED_COLLECTIVES.some((name) => commFusion[name]?.mode === 'index'))
    return 'buckets are set by bytes (mode size) or number (gradient_aggregation_group), not by indices';
  return bucket.isOne ? null : 'gathers and reductions have one bucket size, the first one given';
}

/** In a pipeline MindFormers shards the embedding table, whatever vocab_emb_dp says. */
export function keepsTableWhole({ vocabEmbDp, pipelineStage }: ParallelConfig): boolean {
  return vocabEmbDp && pipelineStage === 1;
}

function degreesOf(config: ParallelConfig): ConfigOptions['degrees'] {
  const { dataParallel, modelParallel, pipelineStage, contextParallel, expertParallel } = config;
  if (config.parallelMode === 'data') return { ...(dataParallel > 1 ? { dp: dataParallel } : {}), tp: 1, pp: 1, sp: 1 };
  if (config.parallelMode === 'auto') return pipelineStage > 1 ? { pp: pipelineStage } : {};
  return {
    dp: dataParallel,
    tp: modelParallel,
    pp: pipelineStage,
    sp: contextParallel,
    ...(expertParallel > 1 ? { ep: expertParallel } : {}),
  };
}

/** Expert parallelism reuses ranks of other axes, so its degree is not a factor. */
function productOf({ dp = 1, tp = 1, pp = 1, sp = 1 }: ConfigOptions['degrees']): number {
  return dp * tp * pp * sp;
}

function withoutEffect(
  config: ParallelConfig,
  devices: number | undefined,
  used: number | null,
): readonly ConfigRemark[] {
  const { given, parallelMode, modelParallel } = config;
  const remarks: ConfigRemark[] = [];
  const remark = (key: ConfigKey, says: string): void => {
    remarks.push({ key: keyText(key), line: given.get(key) ?? null, says });
  };
  if (!config.useParallel)
    return [
      {
        key: 'use_parallel',
        line: given.get('useParallel') ?? null,
        says: 'one device: the other keys have no effect',
      },
    ];
  if (config.searchMode !== null && parallelMode !== 'auto')
    remark('searchMode', 'it applies to parallel_mode 2 (auto) only');
  if (parallelMode === 'auto')
    for (const key of ['dataParallel', 'modelParallel', 'contextParallel'] as const)
      if (config[key] > 1) remark(key, 'in parallel_mode 2 (auto) degrees are searched; --dp, --tp and --sp pin them');
  if (given.has('useSeqParallel') && config.useSeqParallel && modelParallel === 1)
    remark('useSeqParallel', 'it shards the sequence over model-parallel ranks, and model_parallel is 1');
  if (config.microBatchInterleaveNum > 1 && modelParallel === 1)
    remark('microBatchInterleaveNum', 'it hides the communication of model parallelism, and model_parallel is 1');
  if (given.has('microBatchNum') && config.microBatchNum > 1 && config.pipelineStage === 1)
    remark('microBatchNum', 'it needs a pipeline; without one, runner_config.gradient_accumulation_steps applies');
  if (given.has('contextParallelAlgo') && config.contextParallel === 1)
    remark('contextParallelAlgo', 'it needs a sharded sequence, and context_parallel is 1');
  for (const key of ['pipelineScheduler', 'pipelineInterleave', 'ppInterleaveNum'] as const)
    if (given.has(key) && config.pipelineStage === 1 && config[key] !== DEFAULTS[key])
      remark(key, 'it needs a pipeline, and pipeline_stage is 1');
  if (config.pipelineScheduler === 'zero_bubble_v' && config.pipelineStage > 1) {
    if (config.ppInterleaveNum > 2) remark('ppInterleaveNum', 'zero_bubble_v has two chunks a stage');
  } else if (config.pipelineStage > 1 && chunksOf(config) === 1) {
    if (config.ppInterleaveNum > 1)
      remark('ppInterleaveNum', 'it needs pipeline_interleave: True and pipeline_scheduler: 1f1b');
    else if (config.pipelineInterleave)
      remark('pipelineInterleave', 'a stage has one chunk: set pp_interleave_num of the model, or --virtual-stages');
  }
  for (const key of ['optimizerLevel', 'gradientAccumulationShard'] as const)
    if (given.has(key) && config[key] !== DEFAULTS[key] && !config.enableParallelOptimizer)
      remark(key, 'it needs the parallel optimizer, and enable_parallel_optimizer is False');
  if (given.has('vocabEmbDp') && config.vocabEmbDp && config.pipelineStage > 1)
    remark('vocabEmbDp', 'with pipeline_stage above 1 it is False, as in MindFormers');
  if (recomputes(config.recompute) && config.selectRecompute !== false)
    remark('selectRecompute', 'recompute overrides it: layers recompute all operators');
  const fusion = fusionRemark(config);
  if (fusion !== null) remark('commFusion', fusion);
  if (config.gradientAccumulationSteps > 1 && config.pipelineStage > 1)
    remark('gradientAccumulationSteps', 'a pipeline accumulates gradients over its micro-batches, micro_batch_num');
  if (config.fullBatch && config.datasetStrategy !== null)
    remark('datasetStrategy', 'full_batch: True overrides it, as in MindFormers');
  if (devices !== undefined && used !== null && used < devices)
    remark('dataParallel', `the degrees use ${used} of the ${devices} devices; the others are idle`);
  return remarks;
}

function notLowered(config: ParallelConfig): readonly ConfigRemark[] {
  const asked: readonly (readonly [ConfigKey, boolean, string])[] = [
    [
      'pipelineScheduler',
      config.pipelineStage > 1 && SCHEDULES[config.pipelineScheduler] === undefined,
      `schedule ${config.pipelineScheduler} is not supported; 1f1b is planned unless --schedule names another`,
    ],
    [
      'contextParallelAlgo',
      config.contextParallel > 1 && config.contextParallelAlgo === 'hybrid_cp',
      'ulysses and ring cannot share one axis yet: the cheaper of the two is planned',
    ],
    [
      'recompute',
      config.recompute === 'some',
      'patterns of operators are not supported; --recompute full:LAYERS or annotations (recompute: true) select operators',
    ],
    [
      'selectRecompute',
      config.selectRecompute === 'some' && !recomputes(config.recompute),
      'patterns of operators are not supported; --recompute selective:LAYERS or annotations (recompute: true) select operators',
    ],
    [
      'microBatchInterleaveNum',
      config.microBatchInterleaveNum > HALVES && config.modelParallel > 1,
      'a micro-batch can be interleaved in two halves only: it is not split',
    ],
  ];
  return asked.flatMap(([key, is, says]) =>
    is ? [{ key: keyText(key), line: config.given.get(key) ?? null, says }] : [],
  );
}
