/**
 * @file A graph cut into pipeline stages: each stage is a graph of its own, with transfers between stages, derived from the
 * tensors that one stage computes and another reads. Skip connections, encoder outputs and tied tables are not special cases:
 * a tensor is sent from the stage that computes it to every stage that reads it.
 *
 *     forward       on the stage that the plan states; operators that depend on no parameter (masks, positions, labels' counts)
 *                   on every stage that reads them, from data inputs that are fed there
 *     gradients     on the stage of their forward operator; the sum of several readers' gradients where the readers are if they
 *                   are in one place, so that the sum is sent and not its summands, else where the tensor is computed
 *     a weight      and its state and update on the stage of its first reader, its home; other readers receive its value once
 *                   a step, and send back their part of its gradient, summed over micro-batches
 *     scalars       of the training step (gradient norm, loss scale) on the last stage that contributes to them
 */
import { type RecomputedSet, withClones } from '../ir/autodiff/recompute.js';
import { type Graph, isBackward, isOfModel, type Node, type StatePair, typeOf } from '../ir/graph.js';
import { makersOf } from '../ir/makers-and-readers.js';
import { needed, reached, readsOnly } from '../ir/needed.js';
import { accumulator, isAccumulator } from '../ir/ops/accumulate.js';
import { isStateWeight } from '../ir/passes/state-weights.js';
import { unusedName } from '../ir/unused-name.js';
import { gradientSums } from './kernels.js';
import type { StageTransfer } from './sharded-graph.js';

/** Where a forward operator runs. */
export interface StagePlace {
  readonly stage: number;
  /** Chunk of the stage: with v virtual stages each has v of them. */
  readonly chunk: number;
  /** Number of the part of the model, counted from its inputs; with p stages chunk · p + stage if left out. */
  readonly part?: number;
}

/** Places in the order of the model's parts. */
function byPart(a: StagePlace, b: StagePlace): number {
  if (a.part !== undefined && b.part !== undefined) return a.part - b.part;
  return a.chunk - b.chunk || a.stage - b.stage;
}

/** A tensor that one stage makes and another reads. */
export interface CutTransfer {
  readonly tensor: string;
  readonly from: number;
  readonly to: number;
  readonly when: StageTransfer['when'];
}

export interface StageGraph {
  /** Received tensors are among its inputs, sent ones among its outputs. */
  readonly graph: Graph;
  /** By operator: the chunk that it belongs to. */
  readonly chunks: ReadonlyMap<string, number>;
}

export interface CutGraph {
  readonly stages: readonly StageGraph[];
  /** In the order in which the whole graph's operators compute them, so that receiving in this order never deadlocks. */
  readonly transfers: readonly CutTransfer[];
}

/**
 * Cuts a graph whose accumulators are apart (`accumulatedApart`) into `stages` stages.
 * @param placeOf by forward operator; operators that depend on no parameter need none
 * @throws Error (internal error) where a forward operator that needs a place has none
 */
export function cutStages(graph: Graph, placeOf: ReadonlyMap<string, StagePlace>, stages: number): CutGraph {
  return new Cutting(graph, placeOf, stages).run();
}

/** By operator: the stage that it runs on; the first of them where several stages run it for themselves. */
export function stageOfOperators({ stages }: CutGraph): ReadonlyMap<string, number> {
  const stageOf = new Map<string, number>();
  for (const [stage, { graph }] of stages.entries())
    for (const { name } of graph.nodes) if (!stageOf.has(name)) stageOf.set(name, stage);
  return stageOf;
}

/**
 * Operators that depend on nothing but data inputs, constants and state that such operators make: cheap enough to be run on every
 * stage that reads them, in place of a transfer per micro-batch.
 */
export function sharedOperators(graph: Graph): ReadonlySet<Node> {
  const states = new Set(graph.state.map(({ input }) => input));
  const lasting = new Set(graph.state.flatMap((pair) => (isStateWeight(pair) ? [] : [pair.input])));
  const constants = [...graph.weights].flatMap(([name, { role }]) => (role === 'parameter' ? [] : [name]));
  const given = [...graph.inputs.filter((name) => !states.has(name)), ...constants];
  const mayBe = graph.nodes.filter((node) => isForward(node) || (node.phase === 'update' && node.forward === null));
  for (;;) {
    const { nodes: shared, tensors: settled } = reached(mayBe, [...given, ...lasting], readsOnly);
    const lost = graph.state.filter(({ input, output }) => lasting.has(input) && !settled.has(output));
    if (lost.length === 0) return shared;
    for (const { input } of lost) lasting.delete(input);
  }
}

/** Whether an operator is of the forward, or recomputes it. */
function isForward({ phase }: Node): boolean {
  return isOfModel(phase) || phase === 'recompute';
}

/** The one place of several operators; undefined where they have several. */
function onlyPlace([first, ...others]: readonly StagePlace[]): StagePlace | undefined {
  return others.every(({ stage, chunk }) => stage === first?.stage && chunk === first.chunk) ? first : undefined;
}

/** Operators of a stage belong to chunk 0 unless a forward operator determines another one. */
const FIRST = 0;

class Cutting {
  private readonly makers = new Map<string, Node>();
  private readonly order = new Map<string, number>();
  private readonly stateOf: ReadonlyMap<string, StatePair>;
  /** Operators that every stage may run for itself. */
  private readonly shared: ReadonlySet<Node>;
  private readonly places = new Map<Node, StagePlace>();
  /** Inputs that no operator reads: the first stage is fed them, as the whole graph is. */
  private readonly unread = new Set<string>();

  constructor(
    private readonly graph: Graph,
    private readonly placeOf: ReadonlyMap<string, StagePlace>,
    private readonly count: number,
  ) {
    for (const [index, node] of graph.nodes.entries()) {
      for (const name of node.outputs) {
        if (name === null) continue;
        this.makers.set(name, node);
        this.order.set(name, index);
      }
    }
    this.stateOf = new Map(graph.state.map((pair) => [pair.input, pair]));
    this.shared = sharedOperators(graph);
    for (const node of graph.nodes) if (!this.shared.has(node)) this.places.set(node, this.place(node));
  }

  run(): CutGraph {
    const members = Array.from({ length: this.count }, (_, stage) => this.membersOf(stage));
    const read = new Set(members.flat().flatMap(({ inputs }) => inputs));
    for (const name of this.graph.inputs) if (!read.has(name)) this.unread.add(name);
    const transfers = members.flatMap((nodes, stage) => this.received(nodes, stage));
    transfers.sort((a, b) => this.rank(a) - this.rank(b) || a.to - b.to);
    const awaited = this.awaited(transfers);
    return { stages: members.map((nodes, stage) => this.stageGraph(nodes, stage, transfers, awaited)), transfers };
  }

  /**
   * Operators for gradients of weights that another stage reads. They lead to what an operator waits for, as those of
   * activations' gradients do: weight gradients of a stage are put off, and stages would wait for one another.
   */
  private awaited(transfers: readonly CutTransfer[]): ReadonlySet<Node> {
    const sent = transfers.flatMap(({ tensor, when }) => (when === 'micro' ? [tensor] : []));
    return new Set(needed(this.graph.nodes, sent).filter(({ phase }) => phase === 'backward-weight'));
  }

  /** When a transfer's tensor exists, as a position in the order of operators. */
  private rank({ tensor, when }: CutTransfer): number {
    return when === 'begin' ? -1 : (this.order.get(tensor) ?? -1);
  }

  private place(node: Node): StagePlace {
    const given = this.placeOf.get(node.forward ?? node.name);
    if (isAccumulator(node))
      return this.places.get(this.makers.get(node.inputs[0] ?? '') as Node) ?? { stage: 0, chunk: FIRST };
    const before = node.inputs.flatMap((name) => {
      const maker = name === null ? undefined : this.makers.get(name);
      const place = maker && this.places.get(maker);
      return place ? [place] : [];
    });
    if (given) {
      const isSum = isBackward(node.phase) && gradientSums(this.graph).has(node);
      return isSum ? (onlyPlace(before) ?? given) : given;
    }
    if (isOfModel(node.phase) && node.forward === null && before.length === 0)
      throw new Error(`forward operator ${node.name} has no stage`);
    if (before.length === 0) return { stage: 0, chunk: FIRST };
    // Gradients add up on the first of their readers' parts, whose backward runs last; scalars of the step on the last part.
    const inOrder = [...before].sort(byPart);
    return (isBackward(node.phase) ? inOrder[0] : inOrder.at(-1)) as StagePlace;
  }

  /** The stage whose operators make the next step's value of a state; null where every stage keeps it for itself. */
  private homeOf({ output }: StatePair): number | null {
    const maker = this.makers.get(output);
    if (!maker || this.shared.has(maker)) return null;
    return this.places.get(maker)?.stage ?? 0;
  }

  /** A stage's operators, those that it shares with others included, in order. */
  private membersOf(stage: number): readonly Node[] {
    const wanted = new Set<Node>();
    const waiting: string[] = [];
    const take = (node: Node) => {
      if (wanted.has(node)) return;
      wanted.add(node);
      for (const name of node.inputs) if (name !== null) waiting.push(name);
    };
    for (const [node, place] of this.places) if (place.stage === stage) take(node);
    if (stage === 0) for (const name of this.graph.outputs) if (this.isShared(name)) waiting.push(name);
    for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
      const maker = this.makers.get(name);
      if (maker && this.shared.has(maker)) take(maker);
      const kept = this.stateOf.get(name);
      if (kept && !isStateWeight(kept) && this.homeOf(kept) === null) waiting.push(kept.output);
    }
    return this.graph.nodes.filter((node) => wanted.has(node));
  }

  /** Whether every stage that needs a tensor computes it for itself; the first one does so for the user. */
  private isShared(tensor: string): boolean {
    const maker = this.makers.get(tensor);
    return maker !== undefined && this.shared.has(maker);
  }

  /** Transfers of tensors that a stage reads and another one computes. */
  private received(nodes: readonly Node[], stage: number): CutTransfer[] {
    const found = new Map<string, CutTransfer>();
    for (const name of nodes.flatMap(({ inputs }) => inputs)) {
      if (name === null || found.has(name)) continue;
      const kept = this.stateOf.get(name);
      const maker = this.makers.get(name);
      if (kept) {
        const home = this.homeOf(kept);
        if (home !== null && home !== stage) found.set(name, { tensor: name, from: home, to: stage, when: 'begin' });
      } else if (maker && !this.shared.has(maker)) {
        const from = this.places.get(maker)?.stage ?? 0;
        const when =
          maker.phase === 'begin' ? 'begin' : maker.phase === 'update' || isAccumulator(maker) ? 'update' : 'micro';
        if (from !== stage) found.set(name, { tensor: name, from, to: stage, when });
      }
    }
    return [...found.values()];
  }

  private stageGraph(
    unordered: readonly Node[],
    stage: number,
    transfers: readonly CutTransfer[],
    awaited: ReadonlySet<Node>,
  ): StageGraph {
    const { graph } = this;
    const chunks = this.chunksOf(unordered, stage);
    const nodes = byChunk(unordered, chunks);
    const made = new Set(nodes.flatMap(({ outputs }) => outputs));
    const sent = transfers.filter(({ from }) => from === stage).map(({ tensor }) => tensor);
    const read = new Set<string | null>([...nodes.flatMap(({ inputs }) => inputs), ...sent]);
    const isHome = (pair: StatePair) => {
      const home = this.homeOf(pair);
      return home === null ? read.has(pair.input) : home === stage;
    };
    const state = graph.state.filter(isHome);
    const kept = new Set(state.map(({ input }) => input));
    const received = transfers.filter(({ to }) => to === stage).map(({ tensor }) => tensor);
    const isFed = (name: string) => read.has(name) || (stage === 0 && this.unread.has(name));
    const data = graph.inputs.filter((name) => !this.stateOf.has(name) && isFed(name));
    const fromHere = graph.outputs.filter((name) => made.has(name) || (stage === 0 && !this.makers.has(name)));
    const given = new Set([...fromHere.filter((name) => this.isOutputOf(name, stage, state)), ...sent]);
    const outputs = [...given];
    const inputs = [...data, ...received, ...graph.inputs.filter((name) => kept.has(name))];
    const weights = new Map([...graph.weights].filter(([name]) => read.has(name) || given.has(name)));
    const names = new Set<string>([...inputs, ...outputs, ...weights.keys()]);
    for (const name of [...made, ...read]) if (name !== null) names.add(name);
    const { microBatches } = graph;
    const stageGraph: Graph = {
      ...graph,
      nodes: nodes.map((node) => (awaited.has(node) ? { ...node, phase: 'backward-input' } : node)),
      tensors: new Map([...names].map((name) => [name, typeOf(graph, name)])),
      inputs,
      outputs,
      weights,
      state,
      ...(graph.initial ? { initial: new Map([...graph.initial].filter(([name]) => kept.has(name))) } : {}),
      batch: graph.batch.filter(({ input }) => data.includes(input)),
      ...(microBatches ? { microBatches: ofStage(microBatches, data, fromHere) } : {}),
    };
    return { graph: stageGraph, chunks };
  }

  /** An output that several stages make for themselves (their own copies of a state aside) is the first's. */
  private isOutputOf(name: string, stage: number, state: readonly StatePair[]): boolean {
    return !this.isShared(name) || stage === 0 || state.some(({ output }) => output === name);
  }

  /**
   * An operator that a stage runs for itself runs with the first of its chunks that reads it; a recomputed one with the last.
   */
  private chunksOf(nodes: readonly Node[], stage: number): ReadonlyMap<string, number> {
    const chunks = new Map<string, number>();
    const readBy = new Map<string, readonly number[]>();
    for (const node of [...nodes].reverse()) {
      const place = this.places.get(node);
      const readers = node.outputs.flatMap((name) => (name === null ? [] : (readBy.get(name) ?? [])));
      const first = node.phase === 'recompute' ? Math.max(...readers) : Math.min(...readers);
      const chunk = place?.stage === stage ? place.chunk : readers.length > 0 ? first : FIRST;
      chunks.set(node.name, chunk);
      for (const name of node.inputs)
        if (name !== null) readBy.set(name, [...new Set([...(readBy.get(name) ?? []), chunk])]);
    }
    return chunks;
  }
}

/**
 * Forward operators in the order in which their chunks run, so that the first chunk to run computes what several chunks read.
 * Operators that read no parameter may stand behind others of a later chunk in the whole graph.
 */
function byChunk(nodes: readonly Node[], chunks: ReadonlyMap<string, number>): readonly Node[] {
  const turn = ({ name, phase }: Node) => {
    if (phase === 'begin') return -1;
    return phase === 'forward' ? (chunks.get(name) ?? FIRST) : Number.MAX_SAFE_INTEGER;
  };
  return [...nodes].sort((a, b) => turn(a) - turn(b));
}

/** The inputs and outputs split into micro-batches that belong to a stage. */
function ofStage(
  { count, cut, index, exceptLast }: NonNullable<Graph['microBatches']>,
  data: readonly string[],
  outputs: readonly string[],
): NonNullable<Graph['microBatches']> {
  const own = new Set([...data, ...outputs]);
  return {
    count,
    cut: new Map([...cut].filter(([name]) => own.has(name))),
    ...(index !== undefined && own.has(index) ? { index } : {}),
    ...(exceptLast ? { exceptLast } : {}),
  };
}

/**
 * A weight that operators of several stages read has one gradient, the sum of theirs. Each stage adds up its own part over the
 * micro-batches, and the parts meet once a step at the weight's home: sums of sums are the same sum.
 */
export function accumulatedApart(graph: Graph, placeOf: ReadonlyMap<string, StagePlace>): Graph {
  const makers = makersOf(graph.nodes);
  const isSum = (node: Node | undefined): node is Node =>
    node !== undefined && isBackward(node.phase) && node.forward === null;
  const leaves = (tensor: string): readonly string[] => {
    const maker = makers.get(tensor);
    if (!isSum(maker) || isAccumulator(maker)) return [tensor];
    return maker.inputs.flatMap((name) => (name === null ? [] : leaves(name)));
  };
  const stageOf = (tensor: string) => placeOf.get(makers.get(tensor)?.forward ?? '')?.stage;
  const tensors = new Map(graph.tensors);
  const nodes: Node[] = [];
  const updates: Node[] = [];
  for (const node of graph.nodes) {
    const [summed = ''] = isAccumulator(node) ? (node.inputs as readonly string[]) : [];
    const parts = isAccumulator(node) && isSum(makers.get(summed)) ? leaves(summed) : [];
    if (new Set(parts.map(stageOf)).size < 2) {
      nodes.push(node);
      continue;
    }
    const type = typeOf(graph, summed);
    const held = parts.map((part) => {
      const name = unusedName(tensors, `${part}/sum`);
      tensors.set(name, type);
      nodes.push(accumulator(part, name, makers.get(part) as Node));
      return name;
    });
    const result = node.outputs[0] as string;
    // The home: where the first of the weight's readers is.
    const placed = parts.map((part) => {
      const maker = makers.get(part) as Node;
      return { maker, place: placeOf.get(maker.forward ?? '') ?? { stage: 0, chunk: FIRST } };
    });
    const home = placed.sort((a, b) => byPart(a.place, b.place))[0]?.maker as Node;
    held.reduce((sum, part, index) => {
      const output = index === held.length - 1 ? result : unusedName(tensors, `${result}/${index}`);
      tensors.set(output, type);
      const maker = makers.get(summed) as Node;
      updates.push({
        ...maker,
        name: output,
        group: output,
        phase: 'update',
        forward: home.forward,
        inputs: [sum, part],
        outputs: [output],
      });
      return output;
    });
  }
  if (updates.length === 0) return graph;
  const first = nodes.findIndex(({ phase }) => phase === 'update');
  const at = first < 0 ? nodes.length : first;
  const all = [...nodes.slice(0, at), ...updates, ...nodes.slice(at)];
  // Sums over the stages of one micro-batch's gradients have no reader any more.
  const read = needed(all, graph.outputs);
  return { ...graph, tensors, nodes: read };
}

/** A graph with clones of the operators named, which run on their originals' stages and chunks (ir/autodiff/recompute.ts). */
export function withStageClones(
  graph: Graph,
  recomputed: RecomputedSet,
  placeOf: ReadonlyMap<string, StagePlace>,
): Graph {
  const shared = new Set([...sharedOperators(graph)].map(({ name }) => name));
  return withClones(graph, recomputed, (name) => {
    const place = shared.has(name) ? undefined : placeOf.get(name);
    return place ? `${place.stage}.${place.chunk}` : null;
  });
}
