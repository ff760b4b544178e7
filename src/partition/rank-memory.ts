/**
 * @file Memory of a rank on this machine: exactly the bytes that the bundled runtime counts while it runs the actions of a step.
 *
 * It differs from liveness because of sessions: each holds the weights that it reads, takes a whole run of operators at once,
 * and writes results to memory of their own. Collectives use buffers that are held all the time.
 */
import type { OuterMemory } from '../ir/graph.js';
import { madeOnce } from '../ir/remembered.js';
import { axesSize, type SubAxis } from '../sharding-propagation/mesh.js';
import { type Liveness, OF_MICRO_BATCH, outerBytes } from './liveness.js';
import { type OccupancyChange, occupancy, occupancyByPart, type PartOccupancy } from './occupancy.js';
import type { OrderedInstruction } from './ordered-list.js';
import { localBytes } from './partition.js';
import { type StageAction, unpipelinedActions } from './placed-actions.js';
import { BEGIN } from './program-phases.js';
import { inlineValues, sessionKey } from './segments.js';
import { type CommunicationNode, holdsBehind, readsOf, type ShardedGraph, type ShardedNode } from './sharded-graph.js';
import { type StageWalk, type WalkedInstruction, type WalkedList, walkStage } from './stage-walk.js';

/** Names that are not tensors of the graph: `communication buffer 0`, …; and the suffix of a tensor of other micro-batches. */
const BUFFER = 'communication buffer';
const OF_OTHERS = `${OF_MICRO_BATCH}1 and later`;

/** Bytes of a coordinate: one int64. */
const COORDINATE_BYTES = 8;

/**
 * Peak memory of a rank of the bundled runtime: exactly the bytes that the runtime counts. `actions` are the actions of a step,
 * in order (placed-actions.ts); a pipeline stage requires them. `behind`: axes on which the rank is not the first. Without any,
 * it also holds the tensors that only the first rank holds, and so the most of all ranks.
 */
export function rankMemory(
  graph: ShardedGraph,
  actions?: readonly StageAction[],
  behind: ReadonlySet<SubAxis> = NONE,
): Liveness {
  if (actions || behind.size > 0) return memoryUnder(graph, actions ?? unpipelinedActions(graph), behind);
  return madeOnce(KNOWN, graph, () => memoryUnder(graph, unpipelinedActions(graph), behind));
}

/** Memory of a rank while it runs the instructions of each of its actions, in order. */
export function rankMemoryByAction(
  graph: ShardedGraph,
  actions: readonly StageAction[],
): readonly (readonly ActionMemory[])[] {
  const held = new MemoryWalk(graph, walkStage(graph, actions), () => true, NONE);
  return held.whileInstructions(actions);
}

export interface ActionMemory extends PartOccupancy {
  /** Nodes that run then; none where it sends or receives. */
  readonly nodes: readonly ShardedNode[];
}

/** Results for graphs of one stage: the cost model and the plan's report both use them. */
const KNOWN = new WeakMap<ShardedGraph, Liveness>();

function memoryUnder(graph: ShardedGraph, actions: readonly StageAction[], behind: ReadonlySet<SubAxis>): Liveness {
  const walk = walkStage(graph, actions);
  const held = new MemoryWalk(graph, walk, (name) => holdsBehind(graph, name, behind), behind);
  for (const action of graph.pipeline ? walk.actions : firstAndLast(walk.actions, held)) held.run(action);
  return held.fullest();
}

const NONE: ReadonlySet<SubAxis> = new Set();

/** The tensor that a name of `bytesByTensor` stands for, or null for a buffer of the runtime. */
export function tensorOfEntry(name: string): string | null {
  if (name.startsWith(`${BUFFER} `)) return null;
  const end = name.lastIndexOf(OF_MICRO_BATCH);
  return end < 0 ? name : name.slice(0, end);
}

/**
 * Micro-batches that run one after the other hold the same, but for the sums that the first begins, and the parts of outputs that
 * earlier ones have left: the first and the last are looked at, and the one before it where the last has lists of its own.
 */
function* firstAndLast(actions: readonly StageAction[], held: MemoryWalk): Iterable<StageAction> {
  const micro = actions.filter(({ microBatch }) => microBatch !== null);
  const hasOwnLists = micro.at(-1)?.list !== micro[0]?.list;
  const begins = ({ list, microBatch }: StageAction) => microBatch === null && list === BEGIN;
  for (const action of actions) if (begins(action)) yield action;
  const late = micro.slice(1).slice(hasOwnLists ? -2 : -1);
  for (const action of micro.slice(0, 1)) yield action;
  if (micro.length > 1 + late.length) held.leaveParts(micro.length - 1 - late.length);
  for (const action of late) yield action;
  for (const action of actions) if (action.microBatch === null && !begins(action)) yield action;
}

class MemoryWalk {
  /** Changes of the device's memory. */
  private readonly changes: OccupancyChange[] = [];
  private readonly outside: Readonly<Record<OuterMemory, OccupancyChange[]>> = { host: [], disk: [] };
  /** The operator that runs at each change of the device's memory. */
  private readonly at: (string | null)[] = [];
  private readonly lists: ReadonlyMap<string, WalkedList>;
  private readonly begun = new Set<number>();
  private microBatch: number | null = null;

  constructor(
    private readonly graph: ShardedGraph,
    private readonly walk: StageWalk,
    private readonly isHeld: (tensor: string) => boolean,
    behind: ReadonlySet<SubAxis>,
  ) {
    this.lists = new Map(walk.lists.map((list) => [list.name, list]));
    const instructions = walk.lists.flatMap((list) => list.instructions);
    for (const { name, bytes, place } of residentBytes(graph, instructions, isHeld, behind))
      this.change(name, bytes, null, place);
    for (const { tensor } of graph.inputs) if (walk.lifetimeOf(tensor) === 'step') this.hold(tensor, null);
  }

  run({ list: name, microBatch }: StageAction, behindInstruction = () => {}): void {
    const enter = (half: number) => this.enter(microBatch === null ? null : microBatch + half);
    enter(0);
    const list = this.lists.get(name);
    for (const { half = 0, tensors } of list?.unread ?? []) {
      enter(half);
      for (const tensor of tensors) this.free(tensor);
    }
    for (const { instruction, makes, inside, frees } of list?.instructions ?? []) {
      const at = operatorOf(instruction);
      enter(instruction.half ?? 0);
      for (const tensor of [...makes, ...inside]) this.hold(tensor, at);
      for (const tensor of [...inside, ...frees]) this.free(tensor);
      behindInstruction();
    }
  }

  whileInstructions(actions: readonly StageAction[]): readonly (readonly ActionMemory[])[] {
    const ends: number[] = [];
    const ran = actions.map((action) => {
      this.run(action, () => ends.push(this.changes.length));
      return this.lists.get(action.list)?.instructions ?? [];
    });
    const parts = occupancyByPart(this.changes, ends).values();
    return ran.map((instructions) =>
      instructions.map(({ instruction }) => ({
        ...(parts.next().value as PartOccupancy),
        nodes: nodesIn(instruction),
      })),
    );
  }

  /** Continues with this micro-batch; its slices of the inputs are held from its first action on. */
  private enter(microBatch: number | null): void {
    this.microBatch = microBatch;
    if (microBatch === null || this.begun.has(microBatch)) return;
    this.begun.add(microBatch);
    for (const { tensor } of this.graph.inputs) if (this.walk.lifetimeOf(tensor) === 'micro') this.hold(tensor, null);
  }

  /** Holds the parts of outputs that the micro-batches of `others` actions leave. */
  leaveParts(others: number): void {
    const { interleave = 1 } = this.graph;
    for (const { tensor } of this.graph.outputs)
      if (this.walk.lifetimeOf(tensor) === 'micro')
        this.change(`${tensor}${OF_OTHERS}`, others * interleave * this.bytes(tensor), null, this.placeOf(tensor));
  }

  fullest(): Liveness {
    const found = occupancy(this.changes);
    const outside = outerBytes(this.graph, (memory) => this.outside[memory]);
    const at = this.at[found.atChange] ?? null;
    return { peakBytes: found.peakBytes, at, bytesByTensor: found.bytesByTensor, ...(outside ? { outside } : {}) };
  }

  private hold(tensor: string, at: string | null): void {
    this.change(this.keyOf(tensor), this.bytes(tensor), at, this.placeOf(tensor));
  }

  private free(tensor: string): void {
    this.change(this.keyOf(tensor), 0, null, this.placeOf(tensor));
  }

  private keyOf(tensor: string): string {
    const isOwn = this.walk.lifetimeOf(tensor) === 'micro' && this.microBatch !== null;
    return isOwn ? `${tensor}${OF_MICRO_BATCH}${this.microBatch}` : tensor;
  }

  private change(name: string, bytes: number, at: string | null, place: OuterMemory | undefined): void {
    if (place) this.outside[place].push({ name, bytes });
    else {
      this.changes.push({ name, bytes });
      this.at.push(at);
    }
  }

  private placeOf(tensor: string): OuterMemory | undefined {
    return this.graph.tensors.get(tensor)?.place;
  }

  private bytes(name: string): number {
    const tensor = this.graph.tensors.get(name);
    return tensor && this.isHeld(name) ? localBytes(tensor) : 0;
  }
}

function operatorOf(instruction: OrderedInstruction): string | null {
  if (instruction.kind === 'segment') return instruction.nodes[0]?.origin ?? null;
  return instruction.kind === 'wait' || instruction.kind === 'accumulate' || instruction.kind === 'move'
    ? instruction.node.origin
    : null;
}

function nodesIn(instruction: OrderedInstruction): readonly ShardedNode[] {
  if (instruction.kind === 'segment') return instruction.nodes;
  return instruction.kind === 'wait' || instruction.kind === 'accumulate' || instruction.kind === 'move'
    ? [instruction.node]
    : [];
}

/** Bytes that are held when a step begins. */
interface Resident {
  readonly name: string;
  readonly bytes: number;
  readonly place: OuterMemory | undefined;
}

/** Tensors that a rank holds from the first step to the last, and state as it is when a step begins. */
function residentBytes(
  graph: ShardedGraph,
  instructions: readonly WalkedInstruction[],
  isLive: (tensor: string) => boolean,
  behind: ReadonlySet<SubAxis>,
): readonly Resident[] {
  const held = new Map<string, number>();
  const add = (name: string, times = 1) => {
    const tensor = graph.tensors.get(name);
    if (tensor && isLive(name)) held.set(name, (held.get(name) ?? 0) + times * localBytes(tensor));
  };
  const inline = inlineValues(graph);
  const bound = new Set(graph.weights.flatMap(({ tensor }) => (inline.has(tensor) ? [] : [tensor])));
  const read = new Set(graph.outputs.flatMap(({ tensor }) => (bound.has(tensor) ? [tensor] : [])));
  const sessions = new Set<string>();
  for (const { instruction, makes } of instructions) {
    if (instruction.kind !== 'segment') {
      for (const name of readAsTensors(instruction)) if (bound.has(name)) read.add(name);
      continue;
    }
    if (!makes.every(isLive)) continue;
    // A session has a copy of its weights; equal segments with equal weights share one.
    const names = new Set(instruction.nodes.flatMap(readsOf).filter((name) => bound.has(name)));
    if (names.size === 0) continue;
    const key = sessionKey(instruction.nodes, graph, inline, (name) => bound.has(name), makes);
    if (!sessions.has(key)) for (const name of names) add(name);
    sessions.add(key);
  }
  for (const name of read) add(name);
  for (const { to } of graph.state) add(to);
  for (const { name } of graph.coordinates) held.set(name, COORDINATE_BYTES);
  const order = instructions.map(({ instruction }) => instruction);
  const place = (name: string) => graph.tensors.get(name)?.place;
  return [
    ...[...held].map(([name, bytes]) => ({ name, bytes, place: place(name) })),
    ...bufferBytes(graph, order, behind).map((buffer, index) => ({ ...buffer, name: `${BUFFER} ${index}` })),
  ];
}

function readAsTensors(instruction: Exclude<OrderedInstruction, { kind: 'segment' }>): readonly string[] {
  if (instruction.kind === 'send') return [instruction.transfer.tensor];
  return instruction.kind === 'wait' || instruction.kind === 'recv' ? [] : readsOf(instruction.node);
}

/**
 * A buffer carries one collective at a time of its memory and ranks, from its start to its wait, a reduce apart; each is as
 * large as the largest that it carries. One that is waited for in another list than it starts in has a buffer of its own, ahead
 * of the others.
 */
function bufferBytes(
  graph: ShardedGraph,
  instructions: readonly OrderedInstruction[],
  behind: ReadonlySet<SubAxis>,
): readonly Omit<Resident, 'name'>[] {
  const bufferOf = ({ node, id }: Extract<OrderedInstruction, { kind: 'start' }>) => {
    const { place, first = [] } = graph.tensors.get(node.input) ?? {};
    const held = first.filter((axis) => !node.axes.includes(axis));
    const key = JSON.stringify([place, held, node.collective.kind === 'reduce' ? node.axes : null]);
    return { place, key, carries: id as number | null, bytes: collectiveBufferBytes(graph, node, behind) };
  };
  const own = instructions.flatMap((instruction) =>
    instruction.kind === 'start' && instruction.last ? [bufferOf(instruction)] : [],
  );
  const shared: ReturnType<typeof bufferOf>[] = [];
  for (const instruction of instructions) {
    if (instruction.kind === 'wait')
      for (const buffer of shared) if (buffer.carries === instruction.id) buffer.carries = null;
    if (instruction.kind !== 'start' || instruction.last) continue;
    const fresh = bufferOf(instruction);
    const buffer = shared.find(({ carries, key }) => carries === null && key === fresh.key);
    if (!buffer) {
      shared.push(fresh);
      continue;
    }
    buffer.carries = instruction.id;
    buffer.bytes = Math.max(buffer.bytes, fresh.bytes);
  }
  return [...own, ...shared];
}

/** Bytes of a rank's collective buffer: its input; of a reduce all members' on the first rank; of a broadcast only there. */
function collectiveBufferBytes(graph: ShardedGraph, node: CommunicationNode, behind: ReadonlySet<SubAxis>): number {
  const { collective, axes, input, output } = node;
  const tensor = graph.tensors.get(input);
  if (!tensor || !(holdsBehind(graph, input, behind) || holdsBehind(graph, output, behind))) return 0;
  if (collective.kind !== 'reduce' && collective.kind !== 'broadcast') return localBytes(tensor);
  if (axes.some((axis) => behind.has(axis))) return 0;
  return collective.kind === 'reduce' ? axesSize(graph.mesh, axes) * localBytes(tensor) : localBytes(tensor);
}
