/**
 * @file Exposed time of collectives in buckets, and of collectives of halves of micro-batches. The instructions of each list are
 * walked in their order, with one line of collectives for every group of ranks beside compute:
 *
 *     start   the message goes when it is there and the group's line is free
 *     wait    costs the remaining time of the collective
 *
 * An instruction waits for other collectives where they begin, as everywhere in the price. Ranks of this machine reduce on
 * the thread that computes: there nothing is hidden.
 */
import { forHalves, halvesIn } from '../partition/interleave.js';
import type { OrderedInstruction } from '../partition/ordered-list.js';
import { orderedLists } from '../partition/place-moves.js';
import { type ProgramPhase, runsOfList } from '../partition/program-phases.js';
import type { CommunicationNode, ShardedGraph } from '../partition/sharded-graph.js';
import type { Cluster } from './cluster.js';
import { priceNode } from './price.js';

export interface Overlap {
  /** By list: nanoseconds of one run. */
  readonly lists: ReadonlyMap<string, number>;
  /** By name of a collective that other work may hide: its exposed nanoseconds in a step. */
  readonly exposed: ReadonlyMap<string, number>;
  /** Nanoseconds of collectives of a step that overlap with compute. */
  readonly hidden: number;
}

/** Null where no collective is in a bucket and micro-batches have no halves, or the ranks are of this machine. */
export function overlapOf(graph: ShardedGraph, cluster: Cluster): Overlap | null {
  const isBucketed = graph.nodes.some((node) => node.kind === 'communicate' && node.bucket);
  if (cluster.local || !(isBucketed || graph.interleave)) return null;
  const price = (node: ShardedGraph['nodes'][number]) => priceNode(node, graph, cluster);
  const ordered = orderedLists(graph).map(({ list, instructions }): InstructionsOfList => {
    const both = forHalves(
      instructions.map((instruction) => ({ instruction })),
      list.runs,
      graph,
    );
    return {
      list,
      instructions: both.map(({ instruction }) => instruction),
      hides: halvesIn(list.runs, graph).length > 1,
    };
  });
  const lists = new Map<string, number>();
  const exposed = new Map<string, number>();
  const last = new Lines(price);
  for (const each of ordered)
    if (each.instructions.some((instruction) => instruction.kind === 'start' && instruction.last)) last.run(each, true);
  let total = 0;
  for (const each of ordered) {
    const awaitsOthers = each.list.runs === 'step' && last.isUnderWay;
    const lines = awaitsOthers ? last : new Lines(price);
    const before = lines.now;
    const waits = lines.run(each, awaitsOthers);
    lists.set(each.list.phase, lines.now - before);
    const times = runsOfList(each.list, graph);
    for (const { node, waited } of waits) {
      exposed.set(node.name, (exposed.get(node.name) ?? 0) + times * waited);
      total += times * price(node);
    }
  }
  const sum = [...exposed.values()].reduce((all, waited) => all + waited, 0);
  return { lists, exposed, hidden: total - sum };
}

/** A list with its instructions, of both halves of a micro-batch where it has them: then any of its collectives may be hidden. */
interface InstructionsOfList {
  readonly list: ProgramPhase;
  readonly instructions: readonly OrderedInstruction[];
  readonly hides: boolean;
}

/** Clocks of compute and of each group's line of collectives while a step runs. */
class Lines {
  now = 0;
  private readonly freeAt = new Map<string, number>();
  /** End of each collective in flight, by its number. */
  private readonly ends = new Map<number, number>();

  constructor(private readonly price: (node: ShardedGraph['nodes'][number]) => number) {}

  get isUnderWay(): boolean {
    return this.ends.size > 0;
  }

  /** Runs a list. Returns the exposed time of each collective that may be hidden. */
  run({ instructions, hides }: InstructionsOfList, isLast: boolean): readonly WaitedNode[] {
    const waits: WaitedNode[] = [];
    const mayHide = (node: CommunicationNode) => hides || node.bucket !== undefined;
    for (const instruction of instructions) {
      if (instruction.kind === 'segment') for (const node of instruction.nodes) this.now += this.price(node);
      else if (instruction.kind === 'accumulate') this.now += this.price(instruction.node);
      else if (instruction.kind === 'start' && mayHide(instruction.node) && (!instruction.last || isLast)) {
        const line = instruction.node.axes.join();
        const end = Math.max(this.now, this.freeAt.get(line) ?? 0) + this.price(instruction.node);
        this.freeAt.set(line, end);
        this.ends.set(instruction.id, end);
      } else if (instruction.kind === 'wait' && !mayHide(instruction.node)) this.now += this.price(instruction.node);
      else if (instruction.kind === 'wait') {
        const waited = Math.max(0, (this.ends.get(instruction.id) ?? 0) - this.now);
        this.ends.delete(instruction.id);
        this.now += waited;
        waits.push({ node: instruction.node, waited });
      }
    }
    return waits;
  }
}

interface WaitedNode {
  readonly node: CommunicationNode;
  readonly waited: number;
}
