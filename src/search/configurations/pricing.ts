/**
 * @file What a search over configurations asks: of its caller, and of a cost model.
 */
import type { Degrees, MeshOrder, Offload, StepConfiguration } from '../../cost-model/step/configuration.js';
import type { PricedConfiguration, StageNeed } from './priced.js';

export interface ConfigurationSearchOptions {
  readonly objective: 'time' | 'memory';
  /** Bytes of each device; null for no limit. */
  readonly limitBytes: number | null;
  /** How many combinations of degrees are priced in full, the best included. */
  readonly top: number;
  /** Configurations of at most so many times the best one's seconds are priced too; 1 where it is left out. */
  readonly near?: number;
  /** Seconds that a configuration must beat to be of interest. */
  readonly below?: number;
  readonly signal?: AbortSignal;
  /** Whether the time for it is over: then the best so far is taken. */
  readonly isOver?: () => boolean;
}

/** What the search asks of a cost model. */
export interface Pricing {
  /** Seconds of a step by the closed form of its pipeline: near those of its schedule, simulated. */
  readonly seconds: (configuration: StepConfiguration) => number;
  /** Seconds that the exact price is not below. */
  readonly least: (configuration: StepConfiguration) => number;
  /** Seconds of a step, every action of its schedule simulated where that can be: the price that ranks. */
  readonly exactly: (configuration: StepConfiguration) => Pick<PricedConfiguration, 'seconds' | 'priceLevel'>;
  /** Bytes of the fullest stage, and of the fullest host where something lies there. */
  readonly bytes: (configuration: StepConfiguration) => StageNeed;
  /** The variant with as few layers recomputed as memory allows. */
  readonly fitted: (configuration: StepConfiguration, limitBytes: number | null) => StepConfiguration;
  /**
   * Seconds that no configuration of the same degrees, micro-batch, order of the axes, schedule and chunks takes less than:
   * whatever its ZeRO level, what it recomputes, what is kept on the host, and how its layers are cut into stages.
   */
  readonly atLeast: (configuration: StepConfiguration) => number;
  /** The configuration with its layers shared out among stages as their devices are fast; itself where these are alike. */
  readonly balanced: (configuration: StepConfiguration) => StepConfiguration;
  /** Left out where neither orders of the axes nor the host's memory are searched. */
  readonly placings?: Placings;
}

/** What the search asks of a cost model that knows where axes and state may lie. */
export interface Placings {
  /** Orders of the axes beside the usual one that may be faster for something. */
  readonly orders: (degrees: Degrees) => readonly MeshOrder[];
  /** What the host may hold. */
  readonly offloads: readonly Exclude<Offload, 'none'>[];
}
