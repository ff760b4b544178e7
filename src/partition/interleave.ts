/**
 * @file A micro-batch in two halves, one list of instructions for both. While a collective of one half is under way the other
 * half computes: where one waits, the other continues,
 *
 *     first half     compute, start 0 |                   | wait 0, compute, start 2 |                   | wait 2, …
 *     second half                     | compute, start 1  |                          | wait 1, compute, … |
 *
 * For the computation, halves are separate micro-batches: each has its tensors, and is added to sums in its order. The order
 * of instructions within a half is that of a micro-batch which runs alone.
 */
import type { OrderedInstruction, SecondHalf } from './ordered-list.js';
import type { ListRuns } from './program-phases.js';
import type { Interleave, ShardedGraph } from './sharded-graph.js';

/** The graph whose micro-batches run two at a time, where `interleave` is 2. */
export function inHalves(graph: ShardedGraph, interleave: Interleave = 1): ShardedGraph {
  return interleave === 1 || !graph.microBatches ? graph : { ...graph, interleave };
}

/** The marks of the micro-batches that one run of a list works on. */
export function halvesIn(
  runs: ListRuns,
  { interleave = 1 }: Pick<ShardedGraph, 'interleave'>,
): readonly { readonly half?: SecondHalf }[] {
  return runs === 'micro' && interleave > 1 ? [{}, { half: 1 }] : [{}];
}

/**
 * The instructions of a list for both halves of a micro-batch, for a graph that has halves; otherwise unchanged. Collectives that
 * start only in the last micro-batch start behind the second half. Numbers of collectives and buckets are those of both.
 * @param items instructions with data about them
 */
export function forHalves<Item extends { readonly instruction: OrderedInstruction }>(
  items: readonly Item[],
  runs: ListRuns,
  { interleave = 1 }: Pick<ShardedGraph, 'interleave'>,
): readonly Item[] {
  if (interleave === 1) return items;
  if (runs === 'step') return items.map((item) => ({ ...item, instruction: numbered(item.instruction, 1) }));
  const first = turnsOf(items.filter(({ instruction }) => !isLast(instruction)));
  const second = turnsOf(items);
  return second.flatMap((turn, index) => [
    ...(first[index] ?? []).map((item) => ({ ...item, instruction: numbered(item.instruction, 0) })),
    ...turn.map((item) => ({ ...item, instruction: { ...numbered(item.instruction, 1), half: 1 as const } })),
  ]);
}

function isLast(instruction: OrderedInstruction): boolean {
  return instruction.kind === 'start' && instruction.last === true;
}

/** Instructions up to the next that waits. */
function turnsOf<Item extends { readonly instruction: OrderedInstruction }>(
  items: readonly Item[],
): readonly (readonly Item[])[] {
  const turns: Item[][] = [[]];
  for (const [index, item] of items.entries()) {
    if (item.instruction.kind === 'wait' && items[index - 1]?.instruction.kind !== 'wait') turns.push([]);
    turns.at(-1)?.push(item);
  }
  return turns;
}

function numbered(instruction: OrderedInstruction, half: 0 | 1): OrderedInstruction {
  const own = (id: number) => 2 * id + half;
  if (instruction.kind === 'wait') return { ...instruction, id: own(instruction.id) };
  if (instruction.kind !== 'start') return instruction;
  return {
    ...instruction,
    id: own(instruction.id),
    ...(instruction.bucket === undefined ? {} : { bucket: own(instruction.bucket) }),
  };
}
