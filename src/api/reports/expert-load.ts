/**
 * @file The load of dispatched experts in a step: tokens that they processed, tokens that were dropped for lack of a slot, slots
 * that stayed empty.
 */
import { isCount } from '../../ir/experts/dispatch-experts.js';
import { numbersOf } from '../../ir/ops/constants.js';
import { indexOn } from '../../sharding-propagation/mesh.js';
import { axesTaking, innerMesh } from '../../sharding-propagation/roles.js';
import type { Plan } from '../../strategy/plan.js';
import type { Arrays } from '../execution/arrays.js';
import { slotsOf } from '../models/dispatch.js';

export interface ExpertLoad {
  /** The layer, by the name of the output that counts its tokens. */
  readonly layer: string;
  /** Tokens that were sent, one for each expert that a token chose and that had a slot left. */
  readonly taken: number;
  /** Choices that found no slot. */
  readonly dropped: number;
  /** Empty slots, as a share of all. */
  readonly padded: number;
  /** Tokens of the rank whose experts have most, and tokens of each rank under an even distribution. */
  readonly fullest: number;
  readonly even: number;
}

/** The load of each layer, from a step's outputs; empty if nothing is dispatched, or if stages have meshes of their own. */
export function expertLoads({ passes, degrees, schedule, meshes }: Plan, outputs: Arrays): readonly ExpertLoad[] {
  if (meshes) return [];
  const slots = slotsOf(passes);
  const counted = Object.entries(outputs).filter(([name]) => isCount(name));
  const { dp, sp, ep } = degrees;
  const mesh = innerMesh({ dp, sp, tp: 1, ep });
  const experts = mesh.experts ?? [];
  const whole = axesTaking(mesh, 'batch').flatMap(({ subAxes }) => subAxes.map(({ name }) => name));
  const rest = whole.filter((name) => !experts.includes(name));
  const ranks = Array.from({ length: dp * sp }, (_, rank) => ({
    group: indexOn(mesh, rest, rank),
    part: indexOn(mesh, experts, rank),
    replica: indexOn(mesh, whole, rank),
  }));
  return counted.map(([layer, value], index) => {
    const [samples = 1, count = 1] = value.shape;
    const capacity = slots[index] ?? 0;
    const asked = numbersOf(value).map(Number);
    const kept = asked.map((tokens) => Math.min(tokens, capacity));
    const inMicroBatch = samples / schedule.microBatches;
    /** Tokens by group of samples and shard of experts. */
    const loads = new Map<string, number>();
    kept.forEach((tokens, at) => {
      const sample = Math.floor(at / count) % inMicroBatch;
      const replica = Math.floor((sample * dp) / inMicroBatch);
      const group = ranks.find((rank) => rank.replica === replica)?.group ?? 0;
      const key = `${group} ${Math.floor(((at % count) * ep) / count)}`;
      loads.set(key, (loads.get(key) ?? 0) + tokens);
    });
    const sum = (values: Iterable<number>) => [...values].reduce((all, each) => all + each, 0);
    const taken = sum(kept);
    return {
      layer: layer.replace(/\/dispatch\/tokens_per_expert.*$/, ''),
      taken,
      dropped: sum(asked) - taken,
      padded: 1 - taken / (capacity * samples * count),
      fullest: Math.max(0, ...loads.values()),
      even: taken / new Set(ranks.map(({ group, part }) => `${group} ${part}`)).size,
    };
  });
}
