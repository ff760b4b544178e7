/**
 * @file What a search over configurations asks: of its caller, and of a cost model.
 */
import type { Degrees, MeshOrder, Offload, StepConfiguration } from '../../cost-model/step/configuration.js';
import type { Need } from './priced.js';
import type { Combination, Placing } from './space.js';

export interface SearchOptions {
  readonly objective: 'time' | 'memory';
  /** Bytes of each device; null for no limit. */
  readonly limitBytes: number | null;
  /** How many combinations of degrees are priced in full beside the best. */
  readonly top: number;
  readonly signal?: AbortSignal;
  /** Whether the time for it is over: then the best so far is taken. */
  readonly isOver?: () => boolean;
}

/** What the search asks of a cost model. */
export interface Pricing {
  /** Seconds of a step. */
  readonly seconds: (configuration: StepConfiguration) => number;
  /** Bytes of the fullest stage, and of the fullest host where something lies there. */
  readonly bytes: (configuration: StepConfiguration) => Need;
  /** The variant with as few layers recomputed as memory allows. */
  readonly fitted: (configuration: StepConfiguration, limitBytes: number | null) => StepConfiguration;
  /**
   * Seconds that no variant of these degrees with this micro-batch beats, whatever the order of the axes; `lightest` does least
   * of all variants.
   */
  readonly atLeast: (combination: Combination, lightest: StepConfiguration) => number;
  /**
   * The same, closer to what the best variant takes, and dearer; of the order that is given, and with `freely` whatever memory
   * holds. What is not above `enough` is not worked out further, and may be above what a variant takes; `Number.MAX_VALUE` while
   * nothing was found.
   */
  readonly closer: (lightest: StepConfiguration, enough: number, freely?: 'freely') => number;
  /**
   * The same of one variant and others like it: no more than `variantAtLeast`, and cheap; no closer than that it is above
   * `enough`.
   */
  readonly roughly: (configuration: StepConfiguration, enough?: number) => number;
  /** The same of one variant, whatever of it recomputes; infinite where memory holds it in no way. */
  readonly variantAtLeast: (configuration: StepConfiguration) => number;
  /** Left out where neither orders of the axes nor the host's memory are searched. */
  readonly placings?: Placings;
}

/** What the search asks of a cost model that knows where axes and state may lie. */
export interface Placings {
  /** Orders of the axes beside the usual one that may be faster for something, and whether tp, sp and ep lie as usual in them. */
  readonly orders: (degrees: Degrees) => readonly { readonly order: MeshOrder; readonly isSameInside: boolean }[];
  /** Seconds that no variant beats wherever tp, sp and ep lie as usual, whatever lies on the host. */
  readonly anywhere: (lightest: StepConfiguration) => number;
  /** Whether a step may take less, by so many seconds, with its norms whole on every rank of tp than along the sequence. */
  readonly gainsWhole: (lightest: StepConfiguration, seconds: number) => boolean;
  /** What may lie on the host. */
  readonly offloads: readonly Exclude<Offload, 'none'>[];
}

/** Degrees with one micro-batch, one order of the axes, and what lies on the host. */
export interface Candidate {
  readonly combination: Combination;
  readonly microBatch: number;
  readonly placing: Placing;
  /** Seconds that none of its variants beats, however its layers are cut. */
  readonly atLeast: number;
}
