/**
 * @file One walk over the steps of a rank in a training step, in execution order: which results leave a segment, how long each
 * tensor lives, and behind which step of which list it is freed. The program's `free` instructions, the runtime's buffers and the
 * predicted memory of a rank all follow it.
 */
import type { Lifetime } from '../ir/graph.js';
import { forHalves, halvesIn } from './interleave.js';
import type { SecondHalf } from './order.js';
import { orderedLists, type PlacedStep } from './place-moves.js';
import type { StageAction } from './placed-actions.js';
import { BEGIN, type ListRuns } from './program-phases.js';
import { readsOf, resultsOf, type ShardedGraph } from './sharded-graph.js';

export interface WalkedStep {
  readonly step: PlacedStep;
  /** Tensors that it makes or receives, and that later steps can read. */
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
  readonly steps: readonly WalkedStep[];
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
  const lists = orderedLists(graph).map(({ list, steps }) => ({
    name: list.phase,
    runs: graph.microBatches ? list.runs : 'step',
    steps: steps.map(usesOf),
  }));
  const lifetimeOf = lifetimes(graph, lists);
  // A half of a micro-batch frees its own tensors where a whole one does.
  const freed = withFrees(graph, lists, ordersOf(lists, actions), lifetimeOf);
  const both = freed.map(({ unread, ...list }) => ({
    ...list,
    unread: halvesIn(list.runs, graph).flatMap((half) => (unread.length > 0 ? [{ ...half, tensors: unread }] : [])),
    steps: forHalves(list.steps, list.runs, graph),
  }));
  return { lists: both, actions, lifetimeOf };
}

/** Where a tensor is read last; `step` is null where nothing reads it. */
interface LastUse {
  readonly list: UsedList;
  readonly step: UsedStep | null;
}

/** A step with the tensors that it reads. */
type UsedStep = Omit<WalkedStep, 'frees'> & { readonly reads: readonly string[] };

interface UsedList {
  readonly name: string;
  readonly runs: ListRuns;
  readonly steps: readonly UsedStep[];
}

/** A collective's operand is read by its wait, until which it is held. */
function usesOf(step: PlacedStep): UsedStep {
  if (step.kind === 'segment') {
    const { outputs, inside } = step.results;
    const made = new Set(step.nodes.flatMap(resultsOf));
    return { step, reads: step.nodes.flatMap(readsOf).filter((name) => !made.has(name)), makes: outputs, inside };
  }
  const own = { step, reads: [], makes: [], inside: [] };
  if (step.kind === 'start') return own;
  if (step.kind === 'send') return { ...own, reads: [step.transfer.tensor] };
  if (step.kind === 'recv') return { ...own, makes: [step.transfer.tensor] };
  return { ...own, reads: readsOf(step.node), makes: resultsOf(step.node) };
}

/**
 * The orders in which micro-batches go through the lists, between those that run once a step; each once. Transfers are placed by
 * time, so that a micro-batch may pass two of them in another order than the next.
 */
function ordersOf(lists: readonly UsedList[], actions: readonly StageAction[]): readonly (readonly UsedList[])[] {
  const turns = new Map<number | null, string[]>([[null, []]]);
  for (const { microBatch, list } of actions) turns.set(microBatch, [...(turns.get(microBatch) ?? []), list]);
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
    const micro = lists.filter(({ runs }) => runs === 'micro').flatMap(({ steps }) => steps);
    for (const { step, makes } of micro)
      if (step.kind !== 'accumulate') for (const name of makes) ofMicroBatch.add(name);
    // A tensor that is read once a step, or kept to the next step, is the last micro-batch's.
    for (const { runs, steps } of lists)
      if (runs === 'step') for (const name of steps.flatMap(({ reads }) => reads)) ofMicroBatch.delete(name);
    for (const { tensor, output } of graph.outputs) if (!microBatches.cut.has(output)) ofMicroBatch.delete(tensor);
    for (const { from } of graph.state) ofMicroBatch.delete(from);
  }
  return (tensor) => (forRun.has(tensor) ? 'run' : ofMicroBatch.has(tensor) ? 'micro' : 'step');
}

/**
 * Adds to every step the tensors that it reads last. Tensors of a micro-batch are freed in one of its lists; tensors of the
 * step, and state whose next value exists, in a list that runs once; those that micro-batches read last, when the step ends.
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
    const filled = order.filter(({ steps }) => steps.length > 0);
    const last = new Map<string, LastUse>();
    for (const { tensor } of graph.inputs) {
      const list = filled.find((other) => isFreed(tensor, other));
      if (list) last.set(tensor, { list, step: null });
    }
    for (const list of filled)
      for (const step of list.steps) for (const name of [...step.reads, ...step.makes]) last.set(name, { list, step });
    return { last, filled: new Set(filled) };
  });
  const frees = new Map<UsedList | UsedStep, Set<string>>();
  for (const { last } of lastUses)
    for (const [name, { list, step }] of last) {
      // Not read last in the same place by all micro-batches that run the list, it goes when the step ends.
      const isOthers = lastUses.some((other) => other.filled.has(list) && other.last.get(name)?.step !== step);
      if (!isFreed(name, list) || isOthers) continue;
      const at = step ?? list;
      frees.set(at, (frees.get(at) ?? new Set()).add(name));
    }
  return lists.map(({ name, runs, ...list }, index) => ({
    name,
    runs,
    unread: [...(frees.get(lists[index] as UsedList) ?? [])],
    steps: list.steps.map((step) => ({ ...step, frees: [...(frees.get(step) ?? [])] })),
  }));
}
