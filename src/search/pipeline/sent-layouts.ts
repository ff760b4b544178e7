/**
 * @file Chooses by price the layout in which each tensor is sent between stages of different meshes, and the layouts in which
 * readers of each stage share it. The search has one shared reshard for all readers of a tensor; here each stage has its own.
 *
 *     maker ─► sent ─► transfer ─► reshard of the receiving stage ─► readers
 *       └────► reshard of the maker's stage ─► readers
 *
 * Where every rank of the receiver reads the whole tensor, it may be sent whole, or as one slice per rank that the receiver
 * all-gathers: whichever costs less, on the link between stages and on those inside them.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { sendSeconds } from '../../cost-model/predict-stages.js';
import { byteLength, dtypeBits } from '../../ir/dtype.js';
import { elementCount, type Graph, type Node, runsPerStep, type TensorType, typeOf } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { operatorEntry } from '../../ir/ops/index.js';
import type { Assignment, SharedReshard, TensorReader } from '../../partition/assignment.js';
import { type CutTransfer, cutStages } from '../../partition/cut-stages.js';
import type { PipelineLayout } from '../../partition/lower-stages.js';
import {
  axesOf,
  distinctLayouts,
  type Layout,
  layoutKey,
  localShape,
  mergedLayout,
  normalise,
  replicated,
} from '../../sharding-propagation/layout.js';
import { deviceCount, type Mesh, subAxes } from '../../sharding-propagation/mesh.js';
import type { Resharder } from '../../sharding-propagation/resharding.js';
import { operandLayouts, REPLICATED } from '../../sharding-propagation/strategy.js';
import { producedLayouts } from '../../strategy/produced-layouts.js';
import { readersByTensor } from '../../strategy/readers.js';

/** A reader on a stage: how often it reads in a step, and the layout that it takes (null: any). */
interface StageReader {
  readonly reader: TensorReader;
  readonly runs: number;
  readonly wanted: Layout | null;
}

/** The reshard that the readers of one stage share. */
interface StageReshard {
  readonly readers: readonly StageReader[];
  readonly layout: Layout;
  readonly cost: number;
}

/**
 * The assignment with reshards per stage of every tensor that goes from stage to stage; the one with the reader `output` has the
 * layout in which it is sent. An assignment whose stages have one mesh is returned as it is.
 */
export function withSentLayouts(
  graph: Graph,
  assignment: Assignment,
  resharder: Resharder,
  layout: PipelineLayout,
  cluster: Cluster,
): Assignment {
  if (!layout.meshes) return assignment;
  const cut = cutStages(graph, layout.placeOf, layout.stages);
  const sending = new SentLayouts(graph, assignment, resharder, (bytes) =>
    Math.round(sendSeconds(bytes, layout.stages, deviceCount(assignment.mesh), cluster) * 1e9),
  );
  const receivers = new Map<string, Pick<CutTransfer, 'from' | 'when'> & { readonly to: number[] }>();
  const kept = new Set(graph.state.flatMap(({ input, output }) => [input, output]));
  for (const { tensor, from, to, when } of cut.transfers) {
    // A state is sent and stored in the layout of its shards.
    if (kept.has(tensor)) continue;
    const known = receivers.get(tensor);
    if (known) known.to.push(to);
    else receivers.set(tensor, { from, when, to: [to] });
  }
  const sharedReshards = assignment.sharedReshards.filter(({ tensor }) => !receivers.has(tensor));
  const namesOf = cut.stages.map((stage) => new Set(stage.graph.nodes.map(({ name }) => name)));
  const readersOn = (stage: number) => namesOf[stage] ?? new Set<string>();
  for (const [tensor, { from, to, when }] of receivers) {
    const runs = when === 'micro' ? (graph.microBatches?.count ?? 1) : 1;
    sharedReshards.push(...sending.reshards(tensor, runs, readersOn(from), to.map(readersOn)));
  }
  return { ...assignment, sharedReshards };
}

class SentLayouts {
  private readonly produced: ReadonlyMap<string, Layout>;
  private readonly readersOf: ReadonlyMap<string, readonly TensorReader[]>;
  /** Tensors that are made at the beginning of a step. */
  private readonly begun: ReadonlySet<string | null>;
  private readonly nodes: ReadonlyMap<string, Node>;
  private readonly mesh: Mesh;

  constructor(
    private readonly graph: Graph,
    private readonly assignment: Assignment,
    private readonly by: Resharder,
    /** Nanoseconds to send so many bytes of each rank. */
    private readonly sendPrice: (bytes: number) => number,
  ) {
    this.mesh = assignment.mesh;
    this.produced = producedLayouts(graph, assignment);
    this.readersOf = readersByTensor(graph);
    this.nodes = new Map(graph.nodes.map((node) => [node.name, node]));
    this.begun = new Set(graph.nodes.flatMap(({ phase, outputs }) => (phase === 'begin' ? outputs : [])));
  }

  /**
   * The cheapest reshards of a tensor: those of its own stage and of sending, then those of each stage that receives it.
   * @param runs how often it is sent in a step
   * @param own operators of the stage that makes it
   * @param others those of each stage that receives it
   */
  reshards(
    tensor: string,
    runs: number,
    own: ReadonlySet<string>,
    others: readonly ReadonlySet<string>[],
  ): readonly SharedReshard[] {
    const type = typeOf(this.graph, tensor);
    const made = this.produced.get(tensor);
    if (!made) throw new Error(`${tensor} is sent, and nothing makes it`);
    const readersIn = (names: ReadonlySet<string>) => this.readersIn(tensor, names);
    const [here, ...there] = [own, ...others].map(readersIn);
    const searched = this.assignment.sharedReshards
      .filter((reshard) => reshard.tensor === tensor)
      .map((reshard) => reshard.layout);
    const wanted = [...(here ?? []), ...there.flat()].flatMap((reader) => reader.wanted ?? []);
    const all = [made, ...searched, ...wanted, mergedLayout(replicated(type.shape), this.mesh)];
    const whole = distinctLayouts(all).filter(({ partial }) => partial.length === 0);
    const options = distinctLayouts([...whole, ...whole.flatMap((layout) => this.sliced(layout, type))]).map((sent) => {
      const received = there.map((readers) => this.cheapestReshard(readers, sent, [sent, ...whole], type));
      const kept = this.cheapestReshard(here ?? [], made, [made, sent, ...whole], type, sent);
      const bytes = byteLength(type.dtype, elementCount(localShape(type.shape, sent, this.mesh)));
      const way = runs * (this.cost(made, sent, type) + this.sendPrice(bytes));
      return { sent, received, kept, cost: [...received, kept].reduce((sum, { cost }) => sum + cost, way) };
    });
    const best = options.reduce((least, option) => (option.cost < least.cost ? option : least));
    const output = { kind: 'output', name: tensor, operand: 0 } as const;
    const reshardIn = ({ readers, layout }: StageReshard): SharedReshard => ({
      tensor,
      readers: readers.map(({ reader }) => reader),
      layout,
    });
    const isShared = layoutKey(best.kept.layout) === layoutKey(best.sent);
    const local = reshardIn(best.kept);
    return [
      { tensor, readers: [output, ...(isShared ? local.readers : [])], layout: best.sent },
      ...[...(isShared ? [] : [local]), ...best.received.map(reshardIn)].filter(({ readers }) => readers.length > 0),
    ];
  }

  /** @param free a layout into which the tensor is resharded anyway */
  private cheapestReshard(
    readers: readonly StageReader[],
    from: Layout,
    layouts: readonly Layout[],
    type: TensorType,
    free?: Layout,
  ): StageReshard {
    const once = Math.max(0, ...readers.map(({ runs }) => runs));
    const costOf = (layout: Layout) =>
      readers.reduce(
        (sum, { runs, wanted }) => sum + (wanted ? runs * this.cost(layout, wanted, type) : 0),
        free && layoutKey(free) === layoutKey(layout) ? 0 : once * this.cost(from, layout, type),
      );
    return distinctLayouts(layouts)
      .map((layout): StageReshard => ({ readers, layout, cost: costOf(layout) }))
      .reduce((least, reshard) => (reshard.cost < least.cost ? reshard : least));
  }

  private cost(from: Layout, to: Layout, { shape, dtype }: TensorType): number {
    return this.by.cost(from, to, shape, dtypeBits(dtype));
  }

  private readersIn(tensor: string, names: ReadonlySet<string>): readonly StageReader[] {
    return (this.readersOf.get(tensor) ?? []).flatMap((reader) => {
      const node = reader.kind === 'operator' && names.has(reader.name) ? this.nodes.get(reader.name) : undefined;
      const runs = node ? (this.begun.has(tensor) ? 1 : runsPerStep(node.phase, this.graph)) : 0;
      return node ? [{ reader, runs, wanted: this.wanted(node, reader) }] : [];
    });
  }

  private wanted(node: Node, { operand }: TensorReader): Layout | null {
    const strategy = this.assignment.strategies.get(node.group) ?? REPLICATED;
    const operator = operatorOf(this.graph, node);
    const entry = operatorEntry(node);
    return operandLayouts(entry.rule(operator), strategy, entry.linear(operator), this.mesh)[operand] ?? null;
  }

  /** The layout sharded further, over the sub-axes that do not shard it, along the first dimension that they divide. */
  private sliced(layout: Layout, { shape }: TensorType): readonly Layout[] {
    const used = new Set(axesOf(layout));
    const free = subAxes(this.mesh).filter(({ name }) => !used.has(name));
    const parts = free.reduce((product, { size }) => product * size, 1);
    const dimension = layout.dims.findIndex(
      (pieces, axis) => pieces.length === 1 && pieces[0]?.axes.length === 0 && (shape[axis] ?? 1) % parts === 0,
    );
    const [piece] = layout.dims[dimension] ?? [];
    if (parts === 1 || !piece || layout.extents) return [];
    const names = free.map(({ name }) => name);
    const dims = layout.dims.map((pieces, axis) => (axis === dimension ? [{ ...piece, axes: names }] : pieces));
    return [mergedLayout(normalise(dims, [], this.mesh), this.mesh)];
  }
}
