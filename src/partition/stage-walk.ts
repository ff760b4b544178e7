/**
 * @file One walk over the instructions of a rank in a step, in execution order: which results leave a segment, how long each
 * tensor lives, and behind which instruction of which list it is freed. The program's `free` instructions, the runtime's buffers
 * and the predicted memory of a rank all follow it.
 */
import type { Lifetime } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { forHalves, halvesIn } from './interleave.js';
import type { SecondHalf } from './ordered-list.js';
import { orderedLists, type PlacedInstruction } from './place-moves.js';
import type { StageAction } from './placed-actions.js';
import { BEGIN, type ListRuns } from './program-phases.js';
import { readsOf, resultsOf, type ShardedGraph } from './sharded-graph.js';

export interface WalkedInstruction {
  readonly instruction: PlacedInstruction;
  /** Tensors that it makes or receives, and that later instructions can read. */
  readonly makes: readonly string[];
  /** For a segment: tensors that only it reads and that it holds at its operator of peak memory. */
  readonly inside: readonly string[];
  /** Tensors that nothing reads after it. */
  readonly frees: readonly string[];
}

export interface WalkedList {
  readonly name: string;
  readonly runs: ListRuns;
  /** Tensors that exist when it begins and that nothing reads, for each half of a micro-batch that has any. */
  readonly unread: readonly { readonly half?: SecondHalf; readonly tensors: readonly string[] }[];
  readonly instructions: readonly WalkedInstruction[];
  /** Which of its segments' results leave them. */
}

export interface StageWalk {
  readonly lists: readonly WalkedList[];
  /** The actions of the stage in a step, in order. */
  readonly actions: readonly StageAction[];
  readonly lifetimeOf: (tensor: string) => Lifetime;
}

/** Walks a stage that runs `actions` in a step (placed-actions.ts). */
export function walkStage(graph: ShardedGraph, actions: readonly StageAction[]): StageWalk {
  const lists = orderedLists(graph).map(({ list, instructions }) => ({
    name: list.phase,
    runs: graph.microBatches ? list.runs : 'step',
    instructions: instructions.map(usesOf),
  }));
  const lifetimeOf = lifetimes(graph, lists);
  // A half of a micro-batch frees its own tensors where a whole one does.
  const freed = withFrees(graph, lists, ordersOf(lists, actions), lifetimeOf);
  const both = freed.map(({ unread, ...list }) => ({
    ...list,
    unread: halvesIn(list.runs, graph).flatMap((half) => (unread.length > 0 ? [{ ...half, tensors: unread }] : [])),
    instructions: forHalves(list.instructions, list.runs, graph),
  }));
  return { lists: both, actions, lifetimeOf };
}

/** Where a tensor is read last; `instruction` is null where nothing reads it. */
interface LastUse {
  readonly list: UsedList;
  readonly instruction: UsedInstruction | null;
}

/** An instruction with the tensors that it reads. */
type UsedInstruction = Omit<WalkedInstruction, 'frees'> & { readonly reads: readonly string[] };

interface UsedList {
  readonly name: string;
  readonly runs: ListRuns;
  readonly instructions: readonly UsedInstruction[];
}

/** A collective's operand is read by its wait, until which it is held. */
function usesOf(instruction: PlacedInstruction): UsedInstruction {
  if (instruction.kind === 'segment') {
    const { outputs, inside } = instruction.results;
    const made = new Set(instruction.nodes.flatMap(resultsOf));
    return {
      instruction,
      reads: instruction.nodes.flatMap(readsOf).filter((name) => !made.has(name)),
      makes: outputs,
      inside,
    };
  }
  const own = { instruction, reads: [], makes: [], inside: [] };
  if (instruction.kind === 'start') return own;
  if (instruction.kind === 'send') return { ...own, reads: [instruction.transfer.tensor] };
  if (instruction.kind === 'recv') return { ...own, makes: [instruction.transfer.tensor] };
  return { ...own, reads: readsOf(instruction.node), makes: resultsOf(instruction.node) };
}

/**
 * The orders in which micro-batches go through the lists, between those that run once a step; each once. Transfers are placed by
 * time, so that a micro-batch may pass two of them in another order than the next.
 */
function ordersOf(lists: readonly UsedList[], actions: readonly StageAction[]): readonly (readonly UsedList[])[] {
  const turns = new Map<number | null, string[]>([[null, []]]);
  for (const { microBatch, list } of actions) appendTo(turns, microBatch, list);
  const once = turns.get(null) ?? [];
  turns.delete(null);
  const byName = new Map(lists.map((list) => [list.name, list]));
  const of = (names: readonly string[]) => names.flatMap((name) => byName.get(name) ?? []);
  if (turns.size === 0) return [of(once)];
  const distinct = new Map([...turns.values()].map((turn) => [turn.join('\n'), turn]));
  const before = once.filter((list) => list === BEGIN);
  const behind = once.filter((list) => list !== BEGIN);
  return [...distinct.values()].map((turn) => of([...before, ...turn, ...behind]));
}

function lifetimes(graph: ShardedGraph, lists: readonly UsedList[]): (tensor: string) => Lifetime {
  const { microBatches } = graph;
  const forRun = new Set([
    ...graph.weights.map(({ tensor }) => tensor),
    ...graph.constants.keys(),
    ...graph.coordinates.map(({ name }) => name),
    ...graph.state.map(({ to }) => to),
  ]);
  const ofMicroBatch = new Set<string>();
  if (microBatches) {
    const isCut = (name: string) => microBatches.cut.has(name) || name === microBatches.index;
    for (const { tensor, input } of graph.inputs) if (isCut(input)) ofMicroBatch.add(tensor);
    const micro = lists.filter(({ runs }) => runs === 'micro').flatMap(({ instructions }) => instructions);
    for (const { instruction, makes } of micro)
      if (instruction.kind !== 'accumulate') for (const name of makes) ofMicroBatch.add(name);
    // A tensor that is read once a step, or kept to the next step, is the last micro-batch's.
    for (const { runs, instructions } of lists)
      if (runs === 'step') for (const name of instructions.flatMap(({ reads }) => reads)) ofMicroBatch.delete(name);
    for (const { tensor, output } of graph.outputs) if (!microBatches.cut.has(output)) ofMicroBatch.delete(tensor);
    for (const { from } of graph.state) ofMicroBatch.delete(from);
  }
  return (tensor) => (forRun.has(tensor) ? 'run' : ofMicroBatch.has(tensor) ? 'micro' : 'step');
}

/**
 * Adds to every instruction the tensors that it reads last. Tensors of a micro-batch are freed in one of its lists; tensors of
 * the step, and state whose next value exists, in a list that runs once; those that micro-batches read last, when the step ends.
 */
function withFrees(
  graph: ShardedGraph,
  lists: readonly UsedList[],
  orders: readonly (readonly UsedList[])[],
  lifetimeOf: (tensor: string) => Lifetime,
): readonly (Omit<WalkedList, 'unread'> & { readonly unread: readonly string[] })[] {
  const left = new Set(graph.state.map(({ from }) => from));
  const replaced = new Set(graph.state.flatMap(({ to }) => (left.has(to) ? [] : [to])));
  const stays = new Set([...graph.outputs.map(({ tensor }) => tensor), ...left]);
  const isFreed = (name: string, { runs }: UsedList) => {
    const lifetime = lifetimeOf(name);
    if (stays.has(name) || (lifetime === 'run' && !replaced.has(name))) return false;
    return runs === (lifetime === 'micro' ? 'micro' : 'step');
  };
  const lastUses = orders.map((order) => {
    const filled = order.filter(({ instructions }) => instructions.length > 0);
    const last = new Map<string, LastUse>();
    for (const { tensor } of graph.inputs) {
      const list = filled.find((other) => isFreed(tensor, other));
      if (list) last.set(tensor, { list, instruction: null });
    }
    for (const list of filled)
      for (const instruction of list.instructions)
        for (const name of [...instruction.reads, ...instruction.makes]) last.set(name, { list, instruction });
    return { last, filled: new Set(filled) };
  });
  const frees = new Map<UsedList | UsedInstruction, Set<string>>();
  for (const { last } of lastUses)
    for (const [name, { list, instruction }] of last) {
      // Not read last in the same place by all micro-batches that run the list, it goes when the step ends.
      const isOthers = lastUses.some(
        (other) => other.filled.has(list) && other.last.get(name)?.instruction !== instruction,
      );
      if (!isFreed(name, list) || isOthers) continue;
      const at = instruction ?? list;
      frees.set(at, (frees.get(at) ?? new Set()).add(name));
    }
  return lists.map(({ name, runs, ...list }, index) => ({
    name,
    runs,
    unread: [...(frees.get(lists[index] as UsedList) ?? [])],
    instructions: list.instructions.map((instruction) => ({
      ...instruction,
      frees: [...(frees.get(instruction) ?? [])],
    })),
  }));
}
