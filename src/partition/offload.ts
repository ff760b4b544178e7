/**
 * @file Tensors kept outside of the device's memory, as copies in the sharded graph: a pass over the result of partition that
 * changes no operator and no layout.
 *
 *     parameters, optimizer   state and stored weights are resident in the other memory; a copy comes to the device for the
 *                             readers of each layer and pass, and a new value leaves behind its maker
 *     activations             activations stored for the backward leave behind their maker, and come back for the backward
 *                             of a layer
 *     gradients               sums over micro-batches are added up in the other memory, and come to the device for the update
 *
 * Operators of `hosted` run on the host: their results and the state that they alone read stay there, and so do their gradients
 * and updates; tensors that pass between them and the device's operators are copied.
 */

import { type Graph, isOnceAStep, type Node, type OuterMemory, passOf } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import { type Makers, makersOf, type Readers, readersOf } from '../ir/makers-and-readers.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { madeOnce } from '../ir/remembered.js';
import type { OffloadPart } from './offload-parts.js';
import { localBytes } from './partition.js';
import { BEGIN, type ProgramPhase, phaseOfNode, programPhases, transferList, UPDATE } from './program-phases.js';
import {
  type ComputeNode,
  type MoveNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type ShardedTensor,
  type StageTransfer,
} from './sharded-graph.js';

/** The memory of each part; parts that it does not name are on the device. */
export interface OffloadPlaces {
  readonly parts: Readonly<Partial<Record<OffloadPart, OuterMemory>>>;
  /** Operators of the unsharded graph that run on the host, their gradients included. */
  readonly hosted: ReadonlySet<string>;
}

/** Operators that run on the host with forward operators that do: their gradients, recompute clones and updates. */
export function hostedWith({ nodes }: Pick<Graph, 'nodes'>, isHosted: (forward: Node) => boolean): ReadonlySet<string> {
  const hosted = new Set(nodes.flatMap((node) => (node.phase === 'forward' && isHosted(node) ? [node.name] : [])));
  const belongs = ({ forward }: Node) => forward !== null && hosted.has(forward);
  return new Set([...hosted, ...nodes.flatMap((node) => (belongs(node) ? [node.name] : []))]);
}

/** Tensors that take less on a rank stay where they are: a copy would take longer than it is worth. */
const LEAST_BYTES = 1024;

/** The graph with its offloaded tensors; the same graph where nothing is offloaded. */
export function offloaded(graph: ShardedGraph, places: OffloadPlaces): ShardedGraph {
  if (Object.keys(places.parts).length === 0 && places.hosted.size === 0) return graph;
  return new Offloading(graph, places).run();
}

/** A copy that is to be made, and the nodes between which it stands. */
interface PlacedMove {
  readonly move: MoveNode;
  /** The node behind which, or ahead of which it stands. */
  readonly near: ShardedNode | null;
  readonly isAhead: boolean;
}

type OffloadMemory = OuterMemory | undefined;

class Offloading {
  private readonly tensors: Map<string, ShardedTensor>;
  private readonly lists: readonly ProgramPhase[];
  private readonly makers: Makers<ShardedNode>;
  private readonly readers: Readers<ShardedNode>;
  private readonly placed: PlacedMove[] = [];
  /** By tensor and memory, and the layer and list that read it: the copy. */
  private readonly copies = new Map<string, string>();
  /** By stored activation, and by gradient that waits for the update: the copy outside. */
  private readonly stored = new Map<string, string>();
  /** Tensors that operators of the host make, or alone read. */
  private readonly ofHost = new Set<string>();
  /** Nodes that run on the host. */
  private readonly onHost = new Set<ShardedNode>();

  constructor(
    private readonly graph: ShardedGraph,
    private readonly places: OffloadPlaces,
  ) {
    this.tensors = new Map(graph.tensors);
    this.lists = programPhases(graph);
    this.makers = makersOf(graph.nodes, resultsOf);
    this.readers = readersOf(graph.nodes, readsOf);
  }

  run(): ShardedGraph {
    const { graph } = this;
    this.findHosted();
    this.settleState();
    this.settleGradients();
    this.settleActivations();
    const rewired = new Map(graph.nodes.map((node) => [node, this.rewired(node)]));
    const state = graph.state.map(({ from, to }) => ({ from: this.leaving(from, to), to }));
    const renamed = new Map(graph.state.map(({ from }, index) => [from, state[index]?.from ?? from]));
    const outputs = graph.outputs.map(({ tensor, output }) => ({
      tensor: renamed.get(tensor) ?? this.onDevice(tensor),
      output,
    }));
    const sends = graph.pipeline?.sends.map((send) => ({ ...send, tensor: this.sent(send) }));
    const at = (isAhead: boolean) => {
      const byNode = new Map<ShardedNode | null, MoveNode[]>();
      for (const { move, near, isAhead: ahead } of this.placed) if (ahead === isAhead) appendTo(byNode, near, move);
      return byNode;
    };
    const [ahead, behind] = [at(true), at(false)];
    return {
      ...graph,
      nodes: [
        ...graph.nodes.flatMap((node) => [
          ...(ahead.get(node) ?? []),
          rewired.get(node) ?? node,
          ...(behind.get(node) ?? []),
        ]),
        ...(behind.get(null) ?? []),
      ],
      tensors: this.tensors,
      state,
      outputs,
      ...(graph.pipeline && sends ? { pipeline: { ...graph.pipeline, sends } } : {}),
    };
  }

  /** Which nodes run on the host, and which tensors stay there. */
  private findHosted(): void {
    const { graph, ofHost, onHost } = this;
    if (this.places.hosted.size === 0) return;
    const resident = new Set([...graph.weights.map(({ tensor }) => tensor), ...graph.state.map(({ to }) => to)]);
    for (const node of graph.nodes) {
      const reads = readsOf(node);
      const isNamed = node.kind === 'compute' && this.places.hosted.has(node.origin);
      const follows = reads.some((name) => ofHost.has(name) && (node.kind !== 'compute' || this.isLarge(name)));
      const isUpdate = node.phase === 'update' || (node.kind === 'compute' && isAccumulator(node));
      if (!isNamed && !(follows && (node.kind === 'communicate' || isUpdate))) continue;
      onHost.add(node);
      for (const name of resultsOf(node)) ofHost.add(name);
      for (const name of reads) if (resident.has(name) && this.isLarge(name)) ofHost.add(name);
    }
    for (const name of ofHost) this.settle(name, 'host');
  }

  /** State and stored weights: resident elsewhere. */
  private settleState(): void {
    const { graph } = this;
    const { parameters, optimizer } = this.places.parts;
    const keep = (name: string, memory: OffloadMemory) => {
      if (memory && !this.ofHost.has(name) && this.isLarge(name)) this.settle(name, memory);
    };
    for (const { from, to } of graph.state) {
      // State that no operator updates is left as it is.
      if (!this.makers.has(from)) continue;
      const isParameter = (this.readers.get(to) ?? []).some(({ phase }) => phase !== 'update') || this.isSentEarly(to);
      keep(to, isParameter ? parameters : optimizer);
    }
    const given = new Set(graph.outputs.map(({ tensor }) => tensor));
    for (const { tensor, constant } of graph.weights)
      if (constant === undefined && !given.has(tensor)) keep(tensor, parameters);
  }

  /** Sums over micro-batches are made elsewhere; without micro-batches gradients leave behind their makers. */
  private settleGradients(): void {
    const { gradients } = this.places.parts;
    if (!gradients) return;
    for (const [name, maker] of this.makers) {
      if (maker.phase === 'update' || this.ofHost.has(name) || !this.isLarge(name)) continue;
      const waits = (this.readers.get(name) ?? []).some(({ phase }) => phase === 'update');
      if (maker.kind === 'compute' && isAccumulator(maker)) this.settle(name, gradients);
      else if (waits && !this.leaves(name)) this.store(name, maker, gradients);
    }
  }

  /** Activations: results and inputs of the forward that operators of later phases read. */
  private settleActivations(): void {
    const { activations } = this.places.parts;
    if (!activations) return;
    const { graph } = this;
    const kept = new Set(graph.state.map(({ to }) => to));
    const given = [
      ...graph.inputs.filter(({ tensor }) => !kept.has(tensor)),
      ...(graph.pipeline?.receives ?? []).filter(({ when }) => when === 'micro'),
    ];
    const forward = [...this.makers].filter(([, { phase }]) => phase === 'forward').map(([name]) => name);
    for (const name of new Set([...given.map(({ tensor }) => tensor), ...forward])) {
      const readers = this.readers.get(name) ?? [];
      const first = readers.find(({ phase }) => phase === 'forward');
      const isKept = readers.some(({ phase }) => isLater(phase)) && !readers.some(({ phase }) => phase === 'update');
      const near = this.makers.get(name) ?? first;
      if (isKept && near && !this.ofHost.has(name) && !this.leaves(name) && this.isLarge(name))
        this.store(name, near, activations);
    }
  }

  /** Whether a tensor is an output, or the next value of state: it lasts to the end of the step anyway. */
  private leaves(name: string): boolean {
    return this.graph.outputs.some(({ tensor }) => tensor === name);
  }

  private isSentEarly(name: string): boolean {
    return (this.graph.pipeline?.sends ?? []).some(({ tensor, when }) => tensor === name && when === 'begin');
  }

  private isLarge(name: string): boolean {
    const tensor = this.graph.tensors.get(name);
    return tensor !== undefined && localBytes(tensor) >= LEAST_BYTES;
  }

  private settle(name: string, place: OuterMemory): void {
    this.tensors.set(name, { ...(this.graph.tensors.get(name) as ShardedTensor), place });
  }

  /** A copy outside, right behind the node that makes the tensor; ahead of its first reader where no node of the stage does. */
  private store(name: string, near: ShardedNode, memory: OuterMemory): void {
    const isAhead = this.makers.get(name) !== near;
    this.stored.set(name, this.copy(name, memory, near, this.list(near), isAhead));
  }

  private rewired(node: ShardedNode): ShardedNode {
    const own = this.onHost.has(node) ? 'host' : undefined;
    if (node.kind === 'move') return node;
    // An accumulator reads the value that it adds from the device, wherever the sum is stored.
    if (node.kind === 'communicate') return { ...node, input: this.operand(node.input, node, own) };
    const inputs = node.inputs.map((name) => (name === null ? null : this.operand(name, node, own)));
    const { stored, ...rest } = node;
    return { ...(inputs[1] === node.inputs[1] ? node : rest), inputs } satisfies ComputeNode;
  }

  /** The tensor that a node reads in the memory that it works in. */
  private operand(name: string, node: ShardedNode, memory: OffloadMemory): string {
    const source = (this.isStoredFor(name, node) ? this.stored.get(name) : undefined) ?? name;
    const place = this.tensors.get(source)?.place;
    // Coordinates and constants are everywhere.
    if (place === memory || (memory === 'host' && this.isSmallConstant(name))) return source;
    if (memory === 'host' && place === 'disk') throw new Error(`${name} is read on the host, and stored on disk`);
    return this.copyFor(source, memory, node, this.list(node));
  }

  /** Whether a node reads a tensor stored for its pass: an activation in the backward, a gradient in the update. */
  private isStoredFor(name: string, { phase }: ShardedNode): boolean {
    const made = this.makers.get(name)?.phase ?? 'forward';
    return made === 'forward' ? isLater(phase) : phase === 'update';
  }

  private isSmallConstant(name: string): boolean {
    return this.graph.constants.has(name) || this.graph.coordinates.some((coordinate) => coordinate.name === name);
  }

  /** One copy serves the readers of a layer in a pass. */
  private copyFor(source: string, memory: OffloadMemory, node: ShardedNode, list: string): string {
    const pass = isLater(node.phase) ? 'backward' : passOf(node.phase);
    const key = JSON.stringify([source, memory ?? null, list, node.layer, pass]);
    return madeOnce(this.copies, key, () => this.copy(source, memory, node, list, true));
  }

  /** An output, on the device. */
  private onDevice(name: string): string {
    const maker = this.makers.get(name);
    if (this.tensors.get(name)?.place === undefined || !maker) return name;
    return this.copy(name, undefined, maker, this.list(maker), false);
  }

  /** Tensors are sent from the device; to several stages from one copy in each list. */
  private sent({ tensor, when, list, stage }: StageTransfer): string {
    if (this.tensors.get(tensor)?.place === undefined) return tensor;
    const own = when === 'micro' ? transferList('send', list, stage) : when === 'begin' ? BEGIN : UPDATE;
    const key = JSON.stringify([tensor, null, own]);
    const near = when === 'micro' ? (this.makers.get(tensor) ?? null) : null;
    return madeOnce(this.copies, key, () => this.copy(tensor, undefined, near, own, false));
  }

  /** The next value of a state, in the memory in which the state is stored. */
  private leaving(from: string, to: string): string {
    const place = this.tensors.get(to)?.place;
    const maker = this.makers.get(from);
    if (place === this.tensors.get(from)?.place || !maker) return from;
    return this.copy(from, place, maker, this.list(maker), false);
  }

  private copy(
    source: string,
    memory: OffloadMemory,
    near: ShardedNode | null,
    list: string,
    isAhead: boolean,
  ): string {
    const { place: _, ...tensor } = this.tensors.get(source) as ShardedTensor;
    const base = `${source}@${memory ?? 'device'}`;
    let name = base;
    for (let ordinal = 1; this.tensors.has(name); ordinal++) name = `${base}#${ordinal}`;
    this.tensors.set(name, { ...tensor, ...(memory ? { place: memory } : {}) });
    const { origin = source, layer = null, phase = 'update' as const } = near ?? {};
    this.placed.push({
      move: { kind: 'move', name: `${name}/move`, origin, layer, phase, input: source, output: name, list },
      near,
      isAhead,
    });
    return name;
  }

  private list(node: ShardedNode): string {
    const name = phaseOfNode(node, this.graph);
    const list = this.lists.find(({ phase }) => phase === name);
    if (!list) throw new Error(`${node.name} is in no list of its stage`);
    return list.phase;
  }
}

/** Operators that run behind the forward of their micro-batch. */
function isLater(phase: ShardedNode['phase']): boolean {
  return phase !== 'forward' && !isOnceAStep(phase);
}
