/**
 * @file The pins that leave no plan within the memory, in words.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { AutoparError } from '../ir/error.js';
import type { Graph } from '../ir/graph.js';
import type { Pin, PinSource } from '../sharding-propagation/pin.js';
import { chooseDegrees, type FittingDegrees, type SolvedDegrees } from './choose-degrees.js';
import { timeWritten } from './figures.js';
import { listInWords, smallestConflict } from './smallest-conflict.js';

/** The most operators planned again to find out, in all searches together: some seconds. Beyond, one plan without pins. */
const MOST_OPERATORS = 20_000;

/**
 * A smallest set of pins that leaves no plan that fits, and how fast a plan without them would be.
 * @param pins of every mesh that was tried
 * @param solve plans with some pins; an AutoparError where these leave no plan
 * @returns null where nothing fits without pins either
 */
export async function memoryConflict(
  graph: Graph,
  cluster: Cluster,
  limit: number,
  pins: readonly Pin[],
  solve: (isKept: (pin: Pin) => boolean) => Promise<readonly SolvedDegrees[]>,
): Promise<string | null> {
  const sources = new Map(pins.map(({ source }) => [keyOf(source), source]));
  const fastestWith = async (kept: ReadonlySet<string>): Promise<FittingDegrees | null> => {
    try {
      const solved = await solve(({ source }) => kept.has(keyOf(source)));
      return (await chooseDegrees(graph, cluster, solved, limit, 1)).ranked[0] ?? null;
    } catch (error) {
      if (error instanceof AutoparError) return null;
      throw error;
    }
  };
  if (sources.size === 0) return null;
  const free = await fastestWith(new Set());
  if (!free) return null;
  const without = `without pins, a plan that fits takes ${timeWritten(free.prediction.stepSeconds * 1e9)} a step`;
  if (2 * graph.nodes.length * sources.size > MOST_OPERATORS) return without;
  const set = await smallestConflict(
    [...sources.keys()],
    async (kept) => kept.size > 0 && (await fastestWith(kept)) === null,
  );
  const texts = set.map((key) => sources.get(key)?.text ?? key);
  const leave = texts.length === 1 ? 'leaves' : 'leave';
  return `${listInWords(texts)} ${leave} no plan that fits with these degrees, and ${without}`;
}

function keyOf({ file, line, text }: PinSource): string {
  return JSON.stringify([file, line, text]);
}
