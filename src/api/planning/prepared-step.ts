/**
 * @file A model and a cluster that have been read: the common input of searches over training steps.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import type { ConfigurationSearchOptions } from '../../search/configurations/pricing.js';
import type { SpaceOptions } from '../../search/configurations/space.js';
import type { Preferences } from '../../search/preference.js';
import type { WorkReader } from './step-works.js';

/** The work of a micro-batch's layers over tp. */
export type WorkOfDegrees = (tp: number, microBatch: number) => ModelWork;

/** A model and a cluster that have been read: all that a search needs, also for a changed cluster. */
export interface PreparedStep {
  readonly name: string;
  readonly cluster: Cluster;
  readonly space: SpaceOptions;
  readonly works: WorkOfDegrees;
  readonly read: WorkReader;
  /** Samples that facts and FLOPs are read at: one, or the file's own batch where it cannot be rebuilt at one. */
  readonly sample: number;
  readonly limitBytes: number | null;
  /** The limit was given for tensors alone. */
  readonly limitsTensors: boolean;
  readonly preferences: Preferences;
  readonly searching: Omit<ConfigurationSearchOptions, 'limitBytes'>;
}
