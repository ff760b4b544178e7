/**
 * @file Cutting tensors into the shards that factors give, and joining them again.
 */
import type { DimensionFactors, FactorRule } from '../../../src/ir/factor-rule.js';
import type { Values } from './one-node.js';

/** How many shards each sharded factor has. */
export type ShardCounts = Readonly<Record<string, number>>;

/** A rank: its index on every sharded factor. */
export type Rank = Readonly<Record<string, number>>;

/** All ranks of an assignment. */
export function ranksOf(shards: ShardCounts): readonly Rank[] {
  return Object.entries(shards).reduce<readonly Rank[]>(
    (ranks, [factor, count]) =>
      ranks.flatMap((rank) => Array.from({ length: count }, (_, index) => ({ ...rank, [factor]: index }))),
    [{}],
  );
}

/** A rank's shard of a tensor whose dimensions have the factors given. */
export function cut(
  value: Values,
  dims: readonly DimensionFactors[],
  rule: FactorRule,
  shards: ShardCounts,
  rank: Rank,
): Values {
  const places = placesOf(value, dims, rule, shards, rank);
  return { dtype: value.dtype, shape: places.shape, data: places.indices.map((index) => value.data[index] ?? 0) };
}

/** The whole tensor from all ranks' shards; every rank writes its own, so replicas must agree where they are compared. */
export function join(
  byRank: readonly Values[],
  shape: readonly number[],
  dims: readonly DimensionFactors[],
  rule: FactorRule,
  shards: ShardCounts,
): Values {
  const [first] = byRank;
  const data = new Array<number>(shape.reduce((product, size) => product * size, 1)).fill(Number.NaN);
  const whole: Values = { dtype: first?.dtype ?? 'float32', shape, data };
  for (const [position, rank] of ranksOf(shards).entries()) {
    const { indices } = placesOf(whole, dims, rule, shards, rank);
    for (const [index, place] of indices.entries()) data[place] = byRank[position]?.data[index] ?? Number.NaN;
  }
  return whole;
}

/** Flat indices into the whole tensor of a rank's shard, in the shard's row-major order, and the shard's shape. */
function placesOf(value: Values, dims: readonly DimensionFactors[], rule: FactorRule, shards: ShardCounts, rank: Rank) {
  const shape: number[] = [];
  let indices: number[] = [0];
  for (const [dimension, names] of dims.entries()) {
    const size = value.shape[dimension] ?? 1;
    const pieces =
      names.length === 0 ? [{ size, from: 0, count: size }] : names.map((name) => piece(rule, shards, rank, name));
    let own = [0];
    for (const { size: whole, from, count } of pieces)
      own = own.flatMap((base) => Array.from({ length: count }, (_, index) => base * whole + from + index));
    shape.push(own.length);
    indices = indices.flatMap((base) => own.map((index) => base * size + index));
  }
  return { shape, indices };
}

function piece(rule: FactorRule, shards: ShardCounts, rank: Rank, name: string) {
  const size = rule.factors.get(name)?.size ?? 1;
  const count = size / (shards[name] ?? 1);
  return { size, from: (rank[name] ?? 0) * count, count };
}
