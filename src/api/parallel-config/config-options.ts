/**
 * @file What a configuration of MindFormers' means as options of autopar, as data; and what of it a program cannot be made for
 * yet, a sentence each.
 */
import type { Interleave } from '../../partition/sharded-graph.js';
import type { ScheduleKind } from '../../schedule/schedule.js';
import type { SpMethod } from '../../sharding-propagation/roles.js';
import { DEFAULTS } from './config-keys.js';
import { checkConfig, keyText, pinsDegrees } from './config-rules.js';
import type {
  ConfigKey,
  ConfigRemark,
  ConfigSearchMode,
  ContextParallelAlgo,
  DatasetStrategy,
  ParallelConfig,
  PipelineScheduler,
} from './parallel-config.js';

export interface ConfigOptions {
  readonly mode: 'data' | 'semi-auto' | 'auto' | 'hybrid';
  /** Degrees that are pinned; those left out are free. */
  readonly degrees: Partial<Record<'dp' | 'tp' | 'pp' | 'sp' | 'ep', number>>;
  /** Devices that the pinned degrees use, where they fix all of them; null where every device is used. */
  readonly devices: number | null;
  /** Megatron's sequence parallelism: `on` and `off` where the file says, `auto` otherwise. */
  readonly tpSequence: 'on' | 'off' | 'auto';
  /** Micro-batches of a pipeline; 1 without one. */
  readonly microBatches: number;
  /** What a pipeline runs, and the chunks of its stages; null where the file does not say, or names what is not there. */
  readonly schedule: ScheduleKind | null;
  readonly virtualStages: number | null;
  /** How sp shards attention; null where the file does not say, or cuts no sequence. */
  readonly spMethod: SpMethod | null;
  /** Steps whose gradients are added up before weights change. */
  readonly gradientAccumulation: number;
  /** Parts of a micro-batch, the communication of one behind what the other computes. */
  readonly interleave: Interleave;
  /** Gradient reductions joined to one; null where the file does not say. */
  readonly gradientBuckets: number | null;
  readonly gradientsMean: boolean;
  readonly searchMode: 'auto' | ConfigSearchMode;
  /** The ZeRO level of the parallel optimizer, 0 where it is switched off; null where the file does not say. */
  readonly zero: 0 | 1 | 2 | 3 | null;
  /** What is kept outside of the devices, as `--offload` says it; null where the file does not say. */
  readonly offload: string | null;
  readonly saveFile: string | null;
  readonly loadFile: string | null;
  readonly allToAll: boolean;
  readonly fullBatch: boolean;
  readonly datasetStrategy: DatasetStrategy | null;
  /** Whether the embedding's table is whole over tp; null where the file does not say. */
  readonly vocabEmbDp: boolean | null;
  /** What training recomputes, as `--recompute` has it; null where the file does not say. */
  readonly recompute: 'full' | 'selective' | 'none' | null;
  /** What the file says without effect here, for the report. */
  readonly remarks: readonly ConfigRemark[];
  /** What the file asks for and no program can be made for yet; planning goes on without it. */
  readonly notLowered: readonly ConfigRemark[];
}

/**
 * The options; with the number of devices the rules about it are checked too.
 * @throws AutoparError (input) `config-rule`
 */
export function optionsOf(config: ParallelConfig, devices?: number): ConfigOptions {
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
    microBatches: !alone && config.pipelineStage > 1 ? config.microBatchNum : 1,
    ...(alone ? { schedule: null, virtualStages: null } : scheduleOf(config)),
    spMethod: !alone && config.contextParallel > 1 ? METHODS[config.contextParallelAlgo ?? 'hybrid_cp'] : null,
    gradientAccumulation: config.gradientAccumulationSteps,
    interleave: !alone && config.modelParallel > 1 && config.microBatchInterleaveNum === HALVES ? HALVES : 1,
    gradientBuckets: given.has('gradientAggregationGroup') ? config.gradientAggregationGroup : null,
    gradientsMean: config.gradientsMean,
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

/** MindSpore's algorithms of context parallelism by the names that they have here. */
const METHODS: Readonly<Record<ContextParallelAlgo, SpMethod | null>> = {
  colossalai_cp: 'gather',
  ulysses_cp: 'ulysses',
  hybrid_cp: null,
};

/** MindSpore's schedules by the names that they have here; the others are not there. */
const SCHEDULES: Partial<Record<PipelineScheduler, ScheduleKind>> = { gpipe: 'f-then-b', '1f1b': '1f1b' };

function scheduleOf(config: ParallelConfig): Pick<ConfigOptions, 'schedule' | 'virtualStages'> {
  const { pipelineStage, pipelineScheduler, ppInterleaveNum, given } = config;
  const isSaid = given.has('pipelineScheduler') || interleaves(config);
  if (pipelineStage === 1 || !isSaid) return { schedule: null, virtualStages: null };
  if (interleaves(config)) return { schedule: 'interleaved-1f1b', virtualStages: ppInterleaveNum };
  return { schedule: SCHEDULES[pipelineScheduler] ?? null, virtualStages: null };
}

/** Of both, the whole layer goes before its attention. */
function recomputeOf({ given, recompute, selectRecompute }: ParallelConfig): ConfigOptions['recompute'] {
  if (recompute === true) return 'full';
  if (selectRecompute === true) return 'selective';
  return given.has('recompute') || given.has('selectRecompute') ? 'none' : null;
}

/** Only 1F1B interleaves chunks. */
function interleaves({ pipelineScheduler, pipelineInterleave, ppInterleaveNum }: ParallelConfig): boolean {
  return pipelineInterleave && ppInterleaveNum > 1 && pipelineScheduler === '1f1b';
}

/** In a pipeline MindFormers cuts the table whatever vocab_emb_dp says. */
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

/** Expert parallelism lies on other axes' ranks and multiplies nothing. */
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
      { key: 'use_parallel', line: given.get('useParallel') ?? null, says: 'one device: all else is without effect' },
    ];
  if (config.searchMode !== null && parallelMode !== 'auto')
    remark('searchMode', 'it holds in parallel_mode 2 (auto) only');
  if (parallelMode === 'auto')
    for (const key of ['dataParallel', 'modelParallel', 'contextParallel'] as const)
      if (config[key] > 1) remark(key, 'in parallel_mode 2 (auto) degrees are searched; --dp, --tp and --sp pin them');
  if (given.has('useSeqParallel') && config.useSeqParallel && modelParallel === 1)
    remark('useSeqParallel', 'the sequence is cut over model-parallel ranks, and there is one');
  if (config.microBatchInterleaveNum > 1 && modelParallel === 1)
    remark('microBatchInterleaveNum', 'it hides the communication of model parallelism, and there is none');
  if (given.has('microBatchNum') && config.microBatchNum > 1 && config.pipelineStage === 1)
    remark(
      'microBatchNum',
      'micro-batches are those of a pipeline; without one, runner_config.gradient_accumulation_steps counts',
    );
  if (given.has('contextParallelAlgo') && config.contextParallel === 1)
    remark('contextParallelAlgo', 'it is of a sequence that is cut, and context_parallel is 1');
  for (const key of ['pipelineScheduler', 'pipelineInterleave', 'ppInterleaveNum'] as const)
    if (given.has(key) && config.pipelineStage === 1 && config[key] !== DEFAULTS[key])
      remark(key, 'it is of a pipeline, and pipeline_stage is 1');
  if (config.pipelineStage > 1 && !interleaves(config)) {
    if (config.ppInterleaveNum > 1)
      remark('ppInterleaveNum', 'chunks are interleaved where pipeline_interleave is True and pipeline_scheduler 1f1b');
    else if (config.pipelineInterleave)
      remark(
        'pipelineInterleave',
        'a stage has one chunk: pp_interleave_num of the model, or --virtual-stages, gives it more',
      );
  }
  for (const key of ['optimizerLevel', 'gradientAccumulationShard'] as const)
    if (given.has(key) && config[key] !== DEFAULTS[key] && !config.enableParallelOptimizer)
      remark(key, 'it is of the parallel optimizer, and enable_parallel_optimizer is False');
  if (given.has('vocabEmbDp') && config.vocabEmbDp && config.pipelineStage > 1)
    remark('vocabEmbDp', 'with pipeline_stage above 1 MindFormers sets it to False, and so is it here');
  if (config.recompute === true && config.selectRecompute !== false)
    remark('selectRecompute', 'recompute: True goes before it: layers recompute all that they do');
  if (given.has('gradientsMean') && !config.gradientsMean && (used ?? 1) > 1)
    remark('gradientsMean', 'gradients are those of the loss of the whole batch: of a mean the mean, of a sum the sum');
  if (given.has('fullBatch') && !config.fullBatch && (used ?? 1) > 1)
    remark('fullBatch', 'inputs are handed over whole, and every rank takes its part');
  if (config.fullBatch && config.datasetStrategy !== null)
    remark('datasetStrategy', 'full_batch: True goes before it, as in MindFormers');
  if (devices !== undefined && used !== null && used < devices)
    remark('dataParallel', `the degrees use ${used} of the ${devices} devices; the others are left out`);
  return remarks;
}

function notLowered(config: ParallelConfig): readonly ConfigRemark[] {
  const asked: readonly (readonly [ConfigKey, boolean, string])[] = [
    [
      'pipelineScheduler',
      config.pipelineStage > 1 && SCHEDULES[config.pipelineScheduler] === undefined,
      `there is no schedule ${config.pipelineScheduler}; 1f1b is planned unless --schedule says another`,
    ],
    [
      'contextParallelAlgo',
      config.contextParallel > 1 && config.contextParallelAlgo === 'hybrid_cp',
      'heads and keys are not exchanged over parts of one axis yet: what costs less of the two is planned',
    ],
    [
      'gradientAccumulationSteps',
      config.gradientAccumulationSteps > 1,
      'there are no gradients before training is compiled',
    ],
    [
      'recompute',
      config.recompute === 'some',
      'layers are not counted by stage; --recompute full:LAYERS names those that recompute',
    ],
    [
      'selectRecompute',
      config.selectRecompute === 'some' && config.recompute !== true,
      'operators are not named by patterns; --recompute selective:LAYERS or annotations (recompute: true) name them',
    ],
    [
      'microBatchInterleaveNum',
      config.microBatchInterleaveNum > HALVES && config.modelParallel > 1,
      'a micro-batch is interleaved in two halves, not in more parts: it runs whole',
    ],
  ];
  return asked.flatMap(([key, is, says]) =>
    is ? [{ key: keyText(key), line: config.given.get(key) ?? null, says }] : [],
  );
}
