/**
 * @file Inputs of a search over configurations: its options, and the interface of a cost model.
 */
import type { Degrees, MeshOrder, Offload, StepConfiguration } from '../../cost-model/step/configuration.js';
import type { PricedConfiguration, StageNeed } from './priced.js';

export interface ConfigurationSearchOptions {
  readonly objective: 'time' | 'memory';
  /** Bytes of each device; null for no limit. */
  readonly limitBytes: number | null;
  /** How many combinations of degrees are priced in full, the best included. */
  readonly top: number;
  /** Configurations within this factor of the best one's seconds are priced too; 1 where it is left out. */
  readonly near?: number;
  /** Seconds that a configuration must beat to be of interest. */
  readonly below?: number;
  readonly signal?: AbortSignal;
  /** Whether the time for it is over: then the best so far is taken. */
  readonly isOver?: () => boolean;
}

/** The cost model, as the search uses it. */
export interface Pricing {
  /** Seconds of a step by the closed form of its pipeline: near those of its schedule, simulated. */
  readonly seconds: (configuration: StepConfiguration) => number;
  /** Lower bound on the seconds of the exact price. */
  readonly least: (configuration: StepConfiguration) => number;
  /** Seconds of a step, every action of its schedule simulated where that can be: the price that ranks. */
  readonly exactly: (configuration: StepConfiguration) => Pick<PricedConfiguration, 'seconds' | 'priceLevel'>;
  /** Bytes of the fullest stage, and of the fullest host where something is offloaded. */
  readonly bytes: (configuration: StepConfiguration) => StageNeed;
  /** The variant with as few layers recomputed as memory allows. */
  readonly fitted: (configuration: StepConfiguration, limitBytes: number | null) => StepConfiguration;
  /**
   * Lower bound on the seconds of all configurations of the same degrees, micro-batch, rank order, schedule and chunks:
   * whatever their ZeRO level, recomputation, offloading, and cut of layers into stages.
   */
  readonly atLeast: (configuration: StepConfiguration) => number;
  /** The configuration with its layers distributed over stages by the speed of their devices; itself where these are alike. */
  readonly balanced: (configuration: StepConfiguration) => StepConfiguration;
  /** Left out where neither orders of the axes nor the host's memory are searched. */
  readonly mappings?: MappingChoices;
}

/** A cost model's choices of axis orders and offloading. */
export interface MappingChoices {
  /** Orders of the axes beside the usual one that may be faster for something. */
  readonly orders: (degrees: Degrees) => readonly MeshOrder[];
  /** Kinds of offloading to the host. */
  readonly offloads: readonly Exclude<Offload, 'none'>[];
}
