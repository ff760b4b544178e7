/**
 * @file Options of a plan in words, beside degrees and stages: `--zero 1`, `--recompute full`. Each word stands for
 * layouts, clones or places that the plan then states for operators and tensors; plan.json keeps the words in `requested`,
 * for people.
 */

import { withoutUndefined } from '../ir/without-undefined.js';
import type { BucketLimit } from '../partition/buckets.js';
import type { Interleave } from '../partition/sharded-graph.js';
import type { SpMethod, SpOrder, TpSequence } from '../sharding-propagation/roles.js';
import { offloadParts } from './offload-words.js';

/** By option; the search decides options that are left out. */
export interface PlanRequest {
  /** The ZeRO level, what dp shards besides: 1 the optimizer's state, 2 gradients, 3 parameters. */
  readonly zero?: 0 | 1 | 2 | 3;
  /** Synchronisation of gradients over ranks of the data axes: all of them update, or the first alone (server.ts). */
  readonly gradientSync?: GradientSync;
  /** How sp shards attention. */
  readonly spMethod?: SpMethod;
  /** Whether tp shards norms along the sequence. */
  readonly tpSequence?: TpSequence;
  /**
   * In which order a ring has positions; in zig-zag order, where attention is causal and the sequence long enough, if left out.
   */
  readonly spOrder?: SpOrder;
  /** Recomputation in the backward: a kind, and the layers that recompute where not all do (`full:0-3,6`). */
  readonly recompute?: string;
  /** State kept outside of the devices: `none`, `all`, or parts with their memory, `optimizer:host,activations:disk`. */
  readonly offload?: string;
  /** Collectives on gradients and parameters start in messages of at most so many bytes, while the backward still runs. */
  readonly bucket?: number;
  /** The same limit by their number, as configurations state it. */
  readonly bucketMembers?: number;
  /** 2: micro-batches run as two halves, the communication of each overlaps with the compute of the other. */
  readonly interleave?: Interleave;
  /** Which of the plans that are as fast as predictions can tell is taken (search/preference.ts). */
  readonly prefer?: Preference;
  /** Share of the memory limit that a plan should leave free, from 0 to below 1. */
  readonly headroom?: number;
}

export const PREFERENCES = ['simple', 'fastest'] as const;
export type Preference = (typeof PREFERENCES)[number];

export const GRADIENT_SYNCS = ['all-reduce', 'parameter-server'] as const;
export type GradientSync = (typeof GRADIENT_SYNCS)[number];

/** The options of a request. */
const REQUESTS = [
  'zero',
  'gradientSync',
  'spMethod',
  'tpSequence',
  'spOrder',
  'recompute',
  'offload',
  'bucket',
  'bucketMembers',
  'interleave',
  'prefer',
  'headroom',
] as const satisfies readonly (keyof PlanRequest)[];

/** The options among others that are requests in words. */
export function requestIn(options: PlanRequest): PlanRequest {
  return Object.fromEntries(REQUESTS.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])));
}

/** Whether the first rank of the data axes alone updates. */
export function isServed({ gradientSync }: PlanRequest = {}): boolean {
  return gradientSync === 'parameter-server';
}

/**
 * Whether a step stores results that depend on its parameters alone for all its micro-batches (ir/passes/once-a-step.ts): not
 * where parameters are sharded, sent by a server or kept outside, since devices then hold no whole copy.
 */
export function castsOnce(request: PlanRequest = {}): boolean {
  const { parameters } = offloadParts(request.offload ?? 'none');
  return request.zero !== 3 && parameters === undefined && !isServed(request);
}

/** The limit of a bucket, as requested. */
export function bucketLimit({ bucket, bucketMembers }: PlanRequest = {}): BucketLimit {
  return withoutUndefined({ bucketBytes: bucket, bucketMembers });
}
