/**
 * @file plan.json, the strategy checkpoint: all that codegen would otherwise have to decide.
 */
import type { OptimizerOptions } from '../ir/autodiff/optimizer-options.js';
import type { OuterMemory } from '../ir/graph.js';
import type { OffloadPlaces } from '../partition/offload.js';
import type { ScheduleKind } from '../schedule/schedule.js';
import type { AttentionMethods, SpMethod, SpOrder } from '../sharding-propagation/roles.js';
import type { PendingReduction } from '../sharding-propagation/strategy.js';
import type { PlanRequest } from './request.js';

export const PLAN_VERSION = 2;

/** Levels of prices: a closed form of the pipeline, every action of its schedule, or the sharded graphs themselves. */
export const PRICE_LEVELS = ['estimate', 'simulated', 'lowered'] as const;

export interface Plan {
  readonly format: 'autopar-plan';
  readonly version: typeof PLAN_VERSION;
  readonly model: {
    /** The file's name without its ending. */
    readonly name: string;
    /** SHA-256 of the canonical graph without weight values. */
    readonly fingerprint: string;
    /** The dimensions that were bound, by name or place. */
    readonly dims: Readonly<Record<string, number>>;
    /** The batch it was rebuilt at, or null for the file's own. */
    readonly globalBatch: number | null;
  };
  /** Graph passes with their options, in order. */
  readonly passes: readonly PlanPass[];
  readonly cluster: PlanCluster;
  /** Outermost first. Strategies and layouts are over the axes of a stage: all but pp. */
  readonly mesh: readonly { readonly axis: string; readonly size: number }[];
  /**
   * The mesh of each stage, outermost axis first, where stages differ: `mesh` and `degrees` are then the first stage's, and
   * strategies and layouts are over sub-axes of ranks (`rank.0`) that all stages share (docs/reference/plan.md).
   */
  readonly meshes?: readonly Plan['mesh'][];
  readonly degrees: {
    readonly dp: number;
    readonly tp: number;
    readonly pp: number;
    readonly sp: number;
    readonly ep: number;
  };
  readonly stages: readonly PlanStage[];
  /**
   * Classes of repeated layers whose operators share their strategies. `operators` holds entries for the first layer
   * of a class only; the k-th operator of another layer takes the k-th entry.
   */
  readonly layerClasses: readonly PlanLayerClass[];
  readonly operators: Readonly<Record<string, PlanOperator>>;
  /**
   * Tensors whose layout is not the one that replication gives, in layout text; for operators of layer classes,
   * of the first layer.
   */
  readonly tensors: Readonly<Record<string, string>>;
  /** Reshardings between producer and readers, by tensor: one entry per shared reshard. */
  readonly redistributions: Readonly<Record<string, readonly PlanReshard[]>>;
  /** The training step; null for inference. */
  readonly training: PlanTraining | null;
  readonly schedule: PlanSchedule;
  readonly predicted: PlanPrediction;
  readonly search: {
    readonly mode: string;
    readonly costSeconds: number;
    readonly boundSeconds: number;
    readonly gap: number;
    /** A limit in seconds ended the search, so that the plan depends on the machine. */
    readonly timeLimited?: true;
  };
  readonly pins: readonly string[];
  /** The request in words; left out where there is none. Layouts and places of the plan state it in full. */
  readonly requested?: PlanRequest;
  /** The memory in which each part is kept that is not kept on the devices; left out where none is. */
  readonly places?: OffloadPlaces['parts'];
  /** Data axes whose first rank alone updates parameters; all ranks do where it is left out. */
  readonly server?: readonly string[];
  /** How sp shards sequences; left out where it does not. */
  readonly sequence?: PlanSequence;
  /** Reshardings do without all-to-alls. */
  readonly allToAll?: false;
}

export interface PlanLayerClass {
  /** The first layer. */
  readonly name: string;
  readonly instances: readonly string[];
  /** Operators of one layer; left out by earlier versions. */
  readonly operators?: number;
  /** Stage of each instance; left out where there is one stage, and chunks where each stage has one. */
  readonly stages?: readonly number[];
  readonly chunks?: readonly number[];
  /** For each instance: whether it recomputes the operators that have `recompute`; all do where it is left out. */
  readonly recompute?: readonly boolean[];
}

export interface PlanSequence {
  /** How all attention is sharded; `auto` where that differs, the requested method where sp shards none. */
  readonly method: SpMethod;
  /** Number of attentions with each method; left out by earlier versions. */
  readonly attentions?: AttentionMethods;
  /** Which positions a rank has. */
  readonly order: SpOrder;
  /** Positions of the longest sequence. */
  readonly positions: number;
  /** The time of each method, where each was planned alone. */
  readonly why?: string;
}

export interface PlanTraining {
  readonly loss: {
    readonly kind: string;
    /** The output of the model that it is computed from, where that was given. */
    readonly output?: string;
    /** The input that holds labels: classes from 0 on, or the label that does not count. */
    readonly labels?: { readonly input: string; readonly classes: number; readonly ignoreIndex: number | null };
    readonly labelSmoothing?: number;
    /** Weight of the load-balancing loss of experts. */
    readonly moeBalance?: number;
  };
  readonly optimizer: OptimizerOptions;
  /** Number of weights that are trained. */
  readonly trained: number;
  /** The format of the 16-bit computation, and the loss scale; left out for float32. */
  readonly precision?: string;
  readonly lossScale?: number | 'dynamic';
  /** Gradients of data-parallel ranks are added up; left out where they are averaged. */
  readonly gradientReduction?: 'sum';
  /** Steps give their loss, and none of the model's outputs. */
  readonly lossAlone?: true;
}

export interface PlanSchedule {
  /** `single`: one stage. */
  readonly kind: 'single' | ScheduleKind;
  /** Halves count one each, where there are some. */
  readonly microBatches: number;
  /** Micro-batches that run at a time, as halves of one: communication of each overlaps the other's compute. One if left out. */
  readonly interleave?: 2;
  /** Samples of a rank of dp. */
  readonly microBatch?: number;
  /** Samples of a step, where it has several micro-batches. */
  readonly batch?: number;
  /** Model chunks per stage, where more than one. */
  readonly virtualStages?: number;
  /** Most bytes of a bucket of collectives on gradients and parameters; left out where each is a message of its own. */
  readonly bucketBytes?: number;
  /** Most of them in a bucket. */
  readonly bucketMembers?: number;
  readonly recompute?: {
    /**
     * Where recomputation begins: from the inputs of the operators' stage and chunk; from those of their layer if left out.
     */
    readonly from?: 'stage';
    /** The last micro-batch of a step stores the activations that the others recompute. */
    readonly exceptLast?: true;
    /** The backward gathers activations again that the forward gathered. */
    readonly gathers?: true;
  };
}

export interface PlanPass {
  readonly name: string;
  readonly options?: Readonly<Record<string, string | number | boolean>>;
}

export interface PlanCluster {
  readonly nodes: number;
  readonly perNode: number;
  readonly device: string;
  /** The description in a cluster file, where there is one: all that prices depend on. */
  readonly description?: object;
}

export interface PlanStage {
  /** Number of operators of the stage. */
  readonly operators: number;
  readonly devices: number;
}

export interface PlanOperator {
  /** Stage; for a layer that repeats, the stage of its first instance. */
  readonly stage: number;
  /** Chunk of the stage; the first where it is left out. */
  readonly chunk?: number;
  readonly strategy: Readonly<Record<string, readonly string[]>>;
  /** Factors seen as several, `n` as `n.0`, `n.1`, …: their sizes, major to minor. */
  readonly pieces?: Readonly<Record<string, readonly number[]>>;
  /** Axes over which partial sums pass through, by the set of operands that they come with. */
  readonly partial?: { readonly set: number; readonly axes: readonly string[] };
  /** The reduction of the partial sums that it makes; they are left to its readers where it is left out. */
  readonly reduction?: PendingReduction;
  /** Whether the backward runs it again instead of storing its results; for forward operators. */
  readonly recompute: boolean;
  /** Where it runs, and its weights, gradients and state are kept; on the device if left out. */
  readonly place?: 'device' | 'host';
}

/** One resharding of a tensor, shared by `readers` (`operator:operand`, or `output` for a graph output). */
export interface PlanReshard {
  readonly readers: readonly string[];
  readonly layout: string;
  readonly steps: readonly string[];
}

export interface PlanOutside {
  readonly peakBytes: number;
  readonly storedBytes: number;
  readonly loadedBytes: number;
}

export interface PlanPrediction {
  readonly stepSeconds: number;
  /** The level of the price; left out by earlier versions. */
  readonly priceLevel?: (typeof PRICE_LEVELS)[number];
  /** The format that most of the arithmetic is priced in; left out by earlier versions. */
  readonly precision?: string;
  /** Per stage. */
  readonly peakBytes: readonly number[];
  /** Seconds by kind: compute, and each collective kind and axis, e.g. `all-reduce(tp)`; of buckets the exposed time. */
  readonly parts: Readonly<Record<string, number>>;
  /** Seconds of collectives in buckets that overlap with compute, and are in no part. */
  readonly hiddenSeconds?: number;
  readonly flopsPerRank: number;
  readonly flopsTotal: number;
  /** Bytes that one rank receives. */
  readonly bytesCommunicated: number;
  /** Bytes that a rank of each stage receives; left out for one stage, and by earlier versions. */
  readonly receivedBytes?: readonly number[];
  /**
   * Per stage, by memory, in bytes: the most that a rank keeps there, the bytes that it moves there from its device in a step,
   * and the bytes that it moves back. Left out where all is kept on the devices.
   */
  readonly outside?: readonly Readonly<Record<OuterMemory, PlanOutside>>[];
}
