/**
 * @file The typed form of MindFormers' parallel configuration: from a YAML file (read-config.ts) or from a program
 * (set-parallel-config.ts). config-options.ts converts it to options of autopar.
 */

/** MindSpore's parallel modes. `stand-alone`: one device. */
export type ParallelMode = 'data' | 'semi-auto' | 'auto' | 'hybrid' | 'stand-alone';

/** MindSpore's search modes, which are a subset of autopar's. */
export const CONFIG_SEARCH_MODES = ['recursive_programming', 'dynamic_programming', 'sharding_propagation'] as const;
export type ConfigSearchMode = (typeof CONFIG_SEARCH_MODES)[number];

/** MindSpore's schedules of a pipeline. */
export const PIPELINE_SCHEDULERS = ['gpipe', '1f1b', 'seqpipe', 'seqvpp', 'seqsmartvpp', 'zero_bubble_v'] as const;
export type PipelineScheduler = (typeof PIPELINE_SCHEDULERS)[number];

/** How MindSpore's attention over a sharded sequence communicates. */
export const CONTEXT_ALGORITHMS = ['colossalai_cp', 'ulysses_cp', 'hybrid_cp'] as const;

export type ContextParallelAlgo = (typeof CONTEXT_ALGORITHMS)[number];

/** How the inputs are sharded: over data-parallel ranks, not at all, or by split counts per input. */
export type DatasetStrategy = 'data_parallel' | 'full_batch' | readonly (readonly number[])[];

/** Collectives that MindSpore fuses into larger messages; the first size that is given applies to all of them. */
export const FUSED_COLLECTIVES = ['allreduce', 'reducescatter', 'allgather'] as const;

/** How MindSpore fuses collectives of one kind: messages of 64 MB, of `config` MB, or by the indices in `config`. */
export interface FusedCollective {
  readonly mode: 'auto' | 'size' | 'index';
  readonly config?: number | readonly number[] | null;
}

export type CommFusion = Partial<Record<(typeof FUSED_COLLECTIVES)[number], FusedCollective>> & {
  readonly openstate?: boolean;
};

/** How many of the first layers of each stage recompute; one list per chunk if stages have several chunks. */
export type RecomputedCounts = readonly number[] | readonly (readonly number[])[];

/** Values of all keys; those that the user left out have the default of MindFormers. */
export interface ParallelValues {
  readonly useParallel: boolean;
  readonly parallelMode: ParallelMode;
  readonly gradientsMean: boolean;
  /** Whether all-to-all may be planned. */
  readonly enableAllToAll: boolean;
  readonly fullBatch: boolean;
  readonly datasetStrategy: DatasetStrategy | null;
  readonly searchMode: ConfigSearchMode | null;
  readonly enableParallelOptimizer: boolean;
  /** State that the parallel optimizer shards: 1 optimizer state, 2 gradients too, 3 weights too. */
  readonly optimizerLevel: 1 | 2 | 3;
  /** The parallel optimizer shards accumulated gradients at level 1 too. */
  readonly gradientAccumulationShard: boolean;
  readonly strategySaveFile: string | null;
  readonly strategyLoadFile: string | null;
  readonly dataParallel: number;
  readonly modelParallel: number;
  readonly pipelineStage: number;
  /** MindSpore's name of the schedule. */
  readonly pipelineScheduler: PipelineScheduler;
  readonly pipelineInterleave: boolean;
  /** Chunks of a stage, where they are interleaved. */
  readonly ppInterleaveNum: number;
  readonly contextParallel: number;
  /** MindSpore's name for the communication of attention over a sharded sequence. */
  readonly contextParallelAlgo: ContextParallelAlgo | null;
  readonly expertParallel: number;
  readonly useSeqParallel: boolean;
  readonly microBatchNum: number;
  readonly gradientAggregationGroup: number;
  readonly commFusion: CommFusion | null;
  /** Whether the embedding table is replicated on every model-parallel rank. */
  readonly vocabEmbDp: boolean;
  readonly microBatchInterleaveNum: number;
  readonly gradientAccumulationSteps: number;
  /** Full recompute: whether layers use it, or how many of them; `some`: patterns select the operators. */
  readonly recompute: boolean | 'some' | RecomputedCounts;
  /** The same for selective recompute, which applies to the operators of attention. */
  readonly selectRecompute: boolean | 'some' | RecomputedCounts;
  /** Activations are offloaded to the host between forward and backward. */
  readonly swap: boolean;
}

export type ConfigKey = keyof ParallelValues;

/** A setting of the file that has no effect here, or not the effect that it seems to have. */
export interface ConfigRemark {
  /** As the file has it: `parallel.search_mode`. */
  readonly key: string;
  readonly line: number | null;
  readonly says: string;
}

export interface ParallelConfig extends ParallelValues {
  /** Null where it does not come from a file. */
  readonly file: string | null;
  /** Keys that the user gave, with their lines. */
  readonly given: ReadonlyMap<ConfigKey, number | null>;
  readonly remarks: readonly ConfigRemark[];
}
