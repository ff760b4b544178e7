/**
 * @file Cost and peak bytes of a solution of a contest instance, computed from the instance's numbers alone. The code shares
 * nothing with the solver, sums in BigInt, and counts the bytes at every time.
 */
import type { ContestInstance } from './instance.js';
import { FORBIDDEN } from './instance.js';

export interface Evaluation {
  readonly cost: bigint;
  /** Most bytes alive at one time. */
  readonly peak: bigint;
  /** The fault of the solution; null if it is valid. */
  readonly fault: string | null;
}

/** Evaluates a strategy number per node. */
export function evaluate(instance: ContestInstance, solution: readonly number[]): Evaluation {
  const { costs, usages, intervals, edges, edgeCosts, limit } = instance;
  const none = { cost: 0n, peak: 0n };
  if (solution.length !== costs.length) {
    return { ...none, fault: `${solution.length} strategies for ${costs.length} nodes` };
  }
  let cost = 0n;
  for (let node = 0; node < costs.length; node++) {
    const price = costs[node]?.[solution[node] as number];
    if (price === undefined) return { ...none, fault: `node ${node} has no strategy ${solution[node]}` };
    if (price >= FORBIDDEN) return { ...none, fault: `node ${node}: strategy ${solution[node]} is forbidden` };
    cost += BigInt(price);
  }
  for (let edge = 0; edge < edges.length; edge++) {
    const [i, j] = edges[edge] as readonly [number, number];
    const width = costs[j]?.length ?? 0;
    const price = edgeCosts[edge]?.[(solution[i] as number) * width + (solution[j] as number)] as number;
    if (price >= FORBIDDEN) return { ...none, fault: `edge ${edge} (${i}, ${j}): the pair is forbidden` };
    cost += BigInt(price);
  }
  const changes = new Map<number, bigint>();
  const change = (time: number, bytes: bigint) => changes.set(time, (changes.get(time) ?? 0n) + bytes);
  intervals.forEach(([from, until], node) => {
    if (until <= from) return;
    const bytes = BigInt(usages[node]?.[solution[node] as number] as number);
    change(from, bytes);
    change(until, -bytes);
  });
  let [live, peak] = [0n, 0n];
  for (const time of [...changes.keys()].sort((a, b) => a - b)) {
    live += changes.get(time) as bigint;
    if (live > peak) peak = live;
  }
  const fault = limit !== Infinity && peak > BigInt(limit) ? `takes ${peak} of ${limit} bytes` : null;
  return { cost, peak, fault };
}
