/**
 * @file What cutting a model into pipeline stages is given: layers with the ways each can run on each sub-mesh, what crosses
 * from layer to layer, the devices, and the schedule. Plain records of seconds and bytes: a table of predicted steps can fill
 * them, and a planner of operators can.
 */
import type { PipelineSchedule } from '../../cost-model/step/configuration.js';

/** One way to run one layer on one sub-mesh: what to recompute, where tensors lie. All figures are of one device. */
export interface LayerPoint {
  /** For people: `recompute full`. */
  readonly name?: string;
  /** Seconds of one micro-batch. */
  readonly forwardSeconds: number;
  /** Both gradients, and what is computed again for them. */
  readonly backwardSeconds: number;
  /** The part of `backwardSeconds` that is the weight gradient, which zero-bubble moves; 0 if left out. */
  readonly weightGradientSeconds?: number;
  /** Seconds once per step: gradients' reduction as far as it is exposed, the optimizer. */
  readonly stepSeconds?: number;
  /** Held for the whole step: parameters, gradients, optimizer state. */
  readonly residentBytes: number;
  /** Kept by each micro-batch from its forward to its backward. */
  readonly savedBytes: number;
  /** Live besides while the layer runs. */
  readonly transientBytes: number;
}

/** A set of devices that one stage can run on, and how it uses them. */
export interface SubMesh {
  /** For people: `dp 2 · tp 4`. */
  readonly name: string;
  readonly devices: number;
  /** The group of devices that it lies in, by number. */
  readonly group: number;
  /** What one device can hold of a stage. */
  readonly memoryBytes: number;
}

/** Alike devices side by side. A stage lies within one group; stages follow one another through the groups in order. */
export interface DeviceGroup {
  readonly name: string;
  readonly devices: number;
}

/** A tensor that one layer makes and later ones read. A cut between them sends it forward, and its gradient back. */
export interface LiveTensor {
  readonly producer: number;
  /** The last layer that reads it. */
  readonly lastReader: number;
  readonly bytes: number;
  /** Of its gradient; `bytes` if left out. */
  readonly gradientBytes?: number;
}

/** What a stage pays once, however many of its layers need it. */
export interface OnceCost {
  readonly forwardSeconds?: number;
  readonly backwardSeconds?: number;
  readonly stepSeconds?: number;
  readonly residentBytes?: number;
  readonly savedBytes?: number;
  readonly transientBytes?: number;
}

/** An input without parameters (a mask, rotary tables): made anew in each stage that reads it, so it crosses no cut. */
export interface SideInput {
  readonly name: string;
  readonly readers: readonly number[];
  /** By sub-mesh. */
  readonly cost: readonly OnceCost[];
}

/** Parameters of several layers (an embedding tied to the head). The home layer's points hold them and their update. */
export interface SharedParameters {
  readonly name: string;
  readonly users: readonly number[];
  /** The user whose stage is their home. */
  readonly home: number;
  /** By sub-mesh: paid by each stage that has a user but not the home: the copy, its gradient, its exchange. */
  readonly copy: readonly OnceCost[];
  /** By sub-mesh: paid by the home's stage where a user lies in another: the exchange of gradients. */
  readonly exchange?: readonly OnceCost[];
}

/** Seconds that bytes take from stage to stage. */
export type Link = (bytes: number) => number;

export interface StageProblem {
  /** The class of each layer, in order; embedding and head are layers. Layers of a class are alike. */
  readonly layers: readonly number[];
  /** By class, by sub-mesh: the ways to run such a layer there; none where it cannot run. */
  readonly tables: readonly (readonly (readonly LayerPoint[])[])[];
  readonly subMeshes: readonly SubMesh[];
  readonly groups: readonly DeviceGroup[];
  readonly tensors: readonly LiveTensor[];
  readonly links: readonly Link[];
  /** The link between stages on two sub-meshes, a number into `links`; 0 if left out. */
  readonly linkOf?: (from: number, to: number) => number;
  /**
   * `exposed` (if left out): a stage computes nothing while it sends. `overlapped`: results travel while stages compute, and no
   * link may be slower than the slowest stage. With few micro-batches in flight (1F1B) stages wait for what travels
   * all the same, so that the first is the better closed form for either.
   */
  readonly transfers?: 'overlapped' | 'exposed';
  readonly sideInputs?: readonly SideInput[];
  readonly shared?: readonly SharedParameters[];
  readonly schedule: {
    readonly kind: PipelineSchedule;
    readonly microBatches: number;
    /** Chunks per stage of interleaved 1F1B. */
    readonly virtualStages?: number;
    /** False: forwards only. */
    readonly training?: boolean;
  };
  /** Whether devices may be left idle; every one is used if left out. */
  readonly idleDevices?: boolean;
  readonly pins?: StagePins;
}

/** What is decided already. */
export interface StagePins {
  readonly stages?: number;
  /** The number of layers before the end of each stage: `[3, 8]` cuts eight layers into three and five. */
  readonly ends?: readonly number[];
  /** The sub-mesh of each stage. */
  readonly subMeshes?: readonly number[];
}

/** Bytes that cross the cut before each layer, forward and back: of every tensor made before it and read from it on. */
export function bytesAcross(problem: Pick<StageProblem, 'layers' | 'tensors'>): {
  readonly forward: Float64Array;
  readonly backward: Float64Array;
} {
  const forward = new Float64Array(problem.layers.length + 1);
  const backward = new Float64Array(problem.layers.length + 1);
  for (const { producer, lastReader, bytes, gradientBytes = bytes } of problem.tensors) {
    for (let cut = producer + 1; cut <= lastReader; cut++) {
      forward[cut] = (forward[cut] as number) + bytes;
      backward[cut] = (backward[cut] as number) + gradientBytes;
    }
  }
  return { forward, backward };
}
