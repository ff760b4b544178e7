/**
 * @file Parameter-server mode: a pass over the result of partition, after which updates run on the first rank of the data axes.
 *
 *     all-reduce of a gradient       becomes a reduce to that rank
 *     operators of the update        run there, and only that rank holds their results: the optimizer's state too
 *     new values that others read    (parameters, a loss scale) are broadcast
 *
 * Where a tensor has parts on several ranks of an axis (rows of experts), each of these ranks updates its own. Sums over
 * micro-batches stay on the ranks that make them. A rank of another stage receives the tensors of the equal rank of this stage.
 */
import { isBackward } from '../ir/graph.js';
import { type Makers, makersOf, type Readers, readersOf } from '../ir/makers-and-readers.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import type { LoweredStage } from './lower-stages.js';
import {
  type CommunicationNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type ShardedTensor,
} from './sharded-graph.js';

/** The stages, of one mesh, with updates on the first rank of some of its axes; themselves if none. */
export function servedByFirst(stages: readonly LoweredStage[], axes: readonly string[] = []): readonly LoweredStage[] {
  if (axes.length === 0) return stages;
  const all = stages[0]?.sharded.mesh.axes ?? [];
  const served = all.flatMap(({ name, subAxes }) => (axes.includes(name) ? subAxes.map((sub) => sub.name) : []));
  const around: Serving[] = [];
  for (const { sharded } of stages) around.push(new Serving(sharded, new Set(served), around));
  return stages.map((stage, index) => ({ ...stage, sharded: (around[index] as Serving).run() }));
}

const NOWHERE: readonly SubAxis[] = [];

class Serving {
  private readonly tensors: Map<string, ShardedTensor>;
  private readonly nodes: ShardedNode[] = [];
  private readonly makers: Makers<ShardedNode>;
  private readonly readers: Readers<ShardedNode>;
  /** Operators of the update that new values of state, or another stage's update, depend on. */
  private readonly updating = new Set<ShardedNode>();
  /** Nodes of the backward whose results only these read, on values that are replicated over the data axes. */
  private readonly leading = new Set<ShardedNode>();
  /** By tensor: the axes along which the first rank alone has it. */
  private readonly known = new Map<string, readonly SubAxis[]>();
  /** By tensor and the axes along which the first rank alone needs it: its copy. */
  private readonly copies = new Map<string, string>();

  constructor(
    private readonly graph: ShardedGraph,
    private readonly served: ReadonlySet<SubAxis>,
    private readonly stages: readonly Serving[],
  ) {
    this.tensors = new Map(graph.tensors);
    this.makers = makersOf(graph.nodes, resultsOf);
    this.readers = readersOf(graph.nodes, readsOf);
    const kept = new Set(graph.state.map(({ from }) => from));
    const given = new Set(graph.outputs.flatMap(({ tensor }) => (kept.has(tensor) ? [] : [tensor])));
    const sends = graph.pipeline?.sends ?? [];
    const sentOnce = new Set(sends.flatMap(({ tensor, when }) => (when === 'update' ? [tensor] : [])));
    for (const { tensor, when } of sends) if (when !== 'update') given.add(tensor);
    const ends = (name: string) => kept.has(name) || sentOnce.has(name);
    const isIn = (node: ShardedNode) => this.updating.has(node) || this.leading.has(node);
    for (const node of graph.nodes.toReversed()) {
      const made = resultsOf(node);
      const readers = made.flatMap((name) => this.readers.get(name) ?? []);
      if (node.phase === 'update') {
        if (made.some(ends) || readers.some((reader) => this.updating.has(reader))) this.updating.add(node);
      } else if (isBackward(node.phase) && !made.some((name) => given.has(name))) {
        const isRead = readers.length > 0 || made.some(ends);
        if (isRead && readers.every(isIn) && this.isReplicated(node)) this.leading.add(node);
      }
    }
  }

  run(): ShardedGraph {
    const { graph } = this;
    for (const { tensor } of graph.pipeline?.receives ?? []) this.settle(tensor);
    for (const { to } of graph.state) this.settle(to);
    for (const node of graph.nodes) this.add(node);
    const renamed = new Map<string, string>();
    const state = graph.state.map(({ from, to }) => {
      const own = this.there(from, this.firstOf(to));
      renamed.set(from, own);
      return { from: own, to };
    });
    const outputs = graph.outputs.map(({ tensor, output }) => ({
      tensor: renamed.get(tensor) ?? this.there(tensor, NOWHERE),
      output,
    }));
    const sends = graph.pipeline?.sends.map((send) =>
      send.when === 'update' ? send : { ...send, tensor: this.there(send.tensor, NOWHERE) },
    );
    return {
      ...graph,
      nodes: this.nodes,
      tensors: this.tensors,
      outputs,
      state,
      ...(graph.pipeline && sends ? { pipeline: { ...graph.pipeline, sends } } : {}),
    };
  }

  /** The axes along which the first rank alone has a tensor when it is made, or a step begins. */
  firstOf(name: string): readonly SubAxis[] {
    const known = this.known.get(name);
    if (known) return known;
    this.known.set(name, NOWHERE);
    const found = this.foundFirst(name);
    this.known.set(name, found);
    return found;
  }

  private foundFirst(name: string): readonly SubAxis[] {
    const { graph } = this;
    const maker = this.makers.get(name);
    if (maker) return this.firstOfNode(maker);
    const received = graph.pipeline?.receives.find(({ tensor }) => tensor === name);
    if (received) {
      const sender = this.stages[received.stage];
      const sent = sender?.graph.pipeline?.sends.find((send) => send.name === received.name && send.when === 'update');
      return sent && sender ? sender.firstOf(sent.tensor) : NOWHERE;
    }
    const pair = graph.state.find(({ to }) => to === name);
    const next = pair && this.makers.get(pair.from);
    if (!pair || !next || !this.updating.has(next)) return NOWHERE;
    const isSentEarly = (graph.pipeline?.sends ?? []).some((send) => send.tensor === name && send.when !== 'update');
    const isReadElsewhere = (this.readers.get(name) ?? []).some((reader) => !this.updating.has(reader));
    return isSentEarly || isReadElsewhere ? NOWHERE : this.firstOf(pair.from);
  }

  /** The axes whose first rank alone holds the results of a node. */
  private firstOfNode(node: ShardedNode): readonly SubAxis[] {
    const isUpdating = this.updating.has(node);
    if (!isUpdating && !this.leading.has(node)) return NOWHERE;
    if (isUpdating && node.kind === 'compute') {
      const parts = new Set([...readsOf(node), ...resultsOf(node)].flatMap((name) => this.partsOf(name)));
      return [...this.served].filter((axis) => !parts.has(axis));
    }
    const reduced = this.reducedOver(node);
    const before = new Set([...readsOf(node).flatMap((name) => this.firstOf(name)), ...reduced]);
    // All ranks of a collective of another kind take part in it.
    const busy = node.kind === 'communicate' && reduced.length === 0 ? node.axes : NOWHERE;
    return [...this.served].filter((axis) => before.has(axis) && !busy.includes(axis));
  }

  /** For an all-reduce: the data axes that it runs over. */
  private reducedOver(node: ShardedNode): readonly SubAxis[] {
    if (node.kind !== 'communicate' || node.collective.kind !== 'all-reduce') return NOWHERE;
    return node.axes.filter((axis) => this.served.has(axis));
  }

  /** Whether operands and results of a node are equal on the ranks of the data axes; for an all-reduce over them, its result. */
  private isReplicated(node: ShardedNode): boolean {
    const names = this.reducedOver(node).length > 0 ? resultsOf(node) : [...readsOf(node), ...resultsOf(node)];
    return names.every((name) => !this.partsOf(name).some((axis) => this.served.has(axis)));
  }

  /** Axes whose ranks have different parts of a tensor. */
  private partsOf(name: string): readonly SubAxis[] {
    const { layout, varying = [] } = this.graph.tensors.get(name) as ShardedTensor;
    const cuts = layout.dims.flatMap((pieces) => pieces.flatMap(({ axes }) => axes));
    return [...cuts, ...layout.partial.map(({ axis }) => axis), ...varying];
  }

  private add(node: ShardedNode): void {
    for (const name of resultsOf(node)) this.settle(name);
    const reduced = this.firstOfNode(node).length > 0 ? this.reducedOver(node) : NOWHERE;
    if (node.kind === 'communicate' && reduced.length > 0) {
      this.addReduce(node, reduced);
      return;
    }
    const first = this.firstOfNode(node);
    if (node.kind === 'compute') {
      const inputs = node.inputs.map((name) => (name === null ? null : this.there(name, first)));
      this.nodes.push({ ...node, inputs });
    } else this.nodes.push({ ...node, input: this.there(node.input, first) });
  }

  /** An all-reduce as a reduce over the data axes, followed by an all-reduce over its other axes. */
  private addReduce(node: CommunicationNode, reduced: readonly SubAxis[]): void {
    if (node.collective.kind !== 'all-reduce') throw new Error(`${node.name} is not an all-reduce`);
    const { reduction } = node.collective;
    const first = this.firstOf(node.output);
    const input = this.there(
      node.input,
      first.filter((axis) => !reduced.includes(axis)),
    );
    const rest = node.axes.filter((axis) => !reduced.includes(axis));
    const own = { ...node, input, collective: { kind: 'reduce', reduction }, axes: reduced } as const;
    if (rest.length === 0) {
      this.nodes.push(own);
      return;
    }
    const tensor = this.graph.tensors.get(node.input) as ShardedTensor;
    const partial = tensor.layout.partial.filter(({ axis }) => !reduced.includes(axis));
    const between = this.declared(
      `${node.output}/reduced`,
      { ...tensor, layout: { ...tensor.layout, partial } },
      first,
    );
    this.nodes.push({ ...own, name: `${node.name}/reduce`, output: between }, { ...node, input: between, axes: rest });
  }

  /** A tensor as the ranks that are first on `first` have it: itself, or its broadcast copy. */
  private there(name: string, first: readonly SubAxis[]): string {
    const missing = this.firstOf(name).filter((axis) => !first.includes(axis));
    if (missing.length === 0) return name;
    const left = this.firstOf(name).filter((axis) => first.includes(axis));
    const key = JSON.stringify([name, left]);
    const known = this.copies.get(key);
    if (known !== undefined) return known;
    const output = this.declared(`${name}/broadcast`, this.tensors.get(name) as ShardedTensor, left);
    this.copies.set(key, output);
    const { origin = name, layer = null } = this.makers.get(name) ?? {};
    this.nodes.push({
      ...{ kind: 'communicate', name: output, origin, layer, phase: 'update' },
      ...{ collective: { kind: 'broadcast' }, axes: missing, input: name, output },
    });
    return output;
  }

  /** Marks a tensor with the axes along which only the first rank holds it. */
  private settle(name: string): void {
    const first = this.firstOf(name);
    if (first.length > 0) this.tensors.set(name, { ...(this.graph.tensors.get(name) as ShardedTensor), first });
  }

  private declared(base: string, { first: _, ...tensor }: ShardedTensor, first: readonly SubAxis[]): string {
    let name = base;
    for (let ordinal = 1; this.tensors.has(name); ordinal++) name = `${base}#${ordinal}`;
    this.tensors.set(name, { ...tensor, ...(first.length > 0 ? { first } : {}) });
    this.known.set(name, first);
    return name;
  }
}
