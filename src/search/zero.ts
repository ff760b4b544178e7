/**
 * @file ZeRO as a restriction of the search (Rajbhandari et al. 2020; level 3 is FSDP): whether data-parallel ranks shard
 * parameters, optimizer state and accumulated gradients. Collectives follow from the layouts, as everywhere.
 *
 *     level   parameter at rest   state and update   accumulator   collectives that follow
 *     0       whole               whole              whole         all-reduce of a gradient once a step
 *     1       whole               cut                free          reduce-scatter once a step, then all-gather of the parameter
 *     2       whole               cut                cut           reduce-scatter in each micro-batch, all-gather once a step
 *     3       cut                 cut                cut           reduce-scatter, all-gather at each use, in each micro-batch
 *
 * Cut: sharded over as many ranks of the data axes as possible, padded where its operators allow it; tensors that nothing divides
 * stay whole. Whole: sharded over none of them, except for the ranks that experts are sharded over, each of which has its own.
 * Free: the cheapest, which is whole except where micro-batches reduce a gradient anyway. Without a level the search is free, and
 * finds these as it finds everything else.
 */
import { dtypeBits, isFloating } from '../ir/dtype.js';
import { type Graph, isBackward, isOnceAStep, type Node, typeOf } from '../ir/graph.js';
import { reached, readsAny } from '../ir/needed.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { entryOf } from '../ir/ops/index.js';
import { isStateWeight, stateWeights } from '../ir/passes/state-weights.js';
import { remembered } from '../ir/remembered.js';
import { type Layout, normalise } from '../sharding-propagation/layout.js';
import { axesSize, type Mesh, type SubAxis } from '../sharding-propagation/mesh.js';
import type { PinSource } from '../sharding-propagation/pin.js';
import { dataAxes } from '../sharding-propagation/roles.js';
import type { Strategy } from '../sharding-propagation/strategy.js';
import { isServed, type PlanRequest } from '../strategy/request.js';
import type { CandidateSet } from './candidates.js';
import { unsatisfiable } from './pinned.js';

export type ZeroLevel = NonNullable<PlanRequest['zero']>;

/** Tensors that ranks hold from one micro-batch or step to the next, and operators that make them. */
export type StatePart = 'parameter' | 'state' | 'accumulator';

/** The last level at which ranks of the data axes keep a part whole, and the first at which they shard it. */
const LEVELS: Readonly<Record<StatePart, { readonly replicatedTo: ZeroLevel; readonly cutFrom: ZeroLevel }>> = {
  state: { replicatedTo: 0, cutFrom: 1 },
  accumulator: { replicatedTo: 0, cutFrom: 2 },
  parameter: { replicatedTo: 2, cutFrom: 3 },
};

/** The treatment of a part by ranks of the data axes at a level. */
export function zeroOf(part: StatePart, level: ZeroLevel): 'whole' | 'free' | 'cut' {
  const { replicatedTo, cutFrom } = LEVELS[part];
  return level >= cutFrom ? 'cut' : level <= replicatedTo ? 'whole' : 'free';
}

/** Names of the data axes on which a mesh has several ranks. */
export function usedDataAxes(mesh: Mesh): readonly string[] {
  return dataAxes(mesh).flatMap(({ name, size }) => (size > 1 ? [name] : []));
}

/**
 * The number of shards of a tensor over the data axes.
 * @param spread sub-axes that do not count, as they shard the tensor at every level: those of experts, for tensors of experts
 */
export function dataParts({ dims }: Layout, mesh: Mesh, spread: readonly SubAxis[] = []): number {
  return partsOf(
    dims.flat().flatMap(({ axes }) => axes),
    mesh,
    spread,
  );
}

function partsOf(names: readonly SubAxis[], mesh: Mesh, spread: readonly SubAxis[]): number {
  const data = dataAxes(mesh).flatMap(({ subAxes }) => subAxes);
  const isCounted = (name: SubAxis) => names.includes(name) && !spread.includes(name);
  return data.reduce((product, { name, size }) => product * (isCounted(name) ? size : 1), 1);
}

/** Tensors of which each expert has a part of its own: all that operators with experts read and make. */
export function tensorsOfExperts(graph: Graph, hasExperts: (node: Node) => boolean): ReadonlySet<string> {
  const own = graph.nodes.filter(hasExperts).flatMap(({ inputs, outputs }) => [...inputs, ...outputs]);
  return new Set(own.filter((name) => name !== null));
}

/** The requested level, and the option that requests it: a parameter server keeps the tensors whole that it updates. */
export function requestedZero(request: PlanRequest = {}): { readonly zero?: ZeroLevel; readonly zeroText?: string } {
  if (isServed(request)) return { zero: 0, zeroText: '--gradient-sync parameter-server' };
  return request.zero === undefined ? {} : { zero: request.zero };
}

/** The part that an operator makes; null for none. Operators on parameters alone (casts) count as the parameter. */
export function statePartOf(graph: Graph): (node: Node) => StatePart | null {
  const derived = ofParameters(graph);
  return (node) => {
    if (isAccumulator(node)) return 'accumulator';
    if (node.phase === 'update') return 'state';
    return derived.has(node) ? 'parameter' : null;
  };
}

/**
 * State that updates change: parameters, which micro-batches read, and optimizer state. Parameters of which micro-batches read a
 * copy in 16 bit count as optimizer state, whether the copy is made once a step or in each micro-batch.
 */
export function updatedState(graph: Graph): ReadonlyMap<string, 'parameter' | 'state'> {
  const micro = graph.nodes.filter(({ phase }) => !isOnceAStep(phase));
  const used = new Set(micro.flatMap((node) => (isCopyIn16Bit(graph, node) ? [] : node.inputs)));
  return new Map(statePairs(graph).map(({ input }) => [input, used.has(input) ? 'parameter' : 'state'] as const));
}

function statePairs({ nodes, state }: Graph): Graph['state'] {
  const updated = new Set(nodes.flatMap(({ phase, outputs }) => (phase === 'update' ? outputs : [])));
  return state.filter((pair) => isStateWeight(pair) || updated.has(pair.output));
}

function isCopyIn16Bit(graph: Graph, node: Node): boolean {
  const [copy] = node.outputs;
  const isCast = entryOf(node.op, node.domain)?.role === 'cast' && copy !== null && copy !== undefined;
  return isCast && isFloating(typeOf(graph, copy).dtype) && dtypeBits(typeOf(graph, copy).dtype) === 16;
}

/** Operators that compute from parameters and constants alone. */
function ofParameters(graph: Graph): ReadonlySet<Node> {
  const known = statePairs(graph).map(({ input }) => input);
  const nodes = graph.nodes.filter(({ phase }) => !isOnceAStep(phase) && !isBackward(phase));
  return reached(nodes, known, (node, tensors) => {
    const others = node.inputs.filter((name) => name !== null && !tensors.has(name));
    return readsAny(node, tensors) && others.every((name) => graph.weights.has(name ?? ''));
  }).nodes;
}

/** The restriction of an operator's candidates, and of layouts that readers share, by a level. */
export interface ZeroRule extends LayoutRule {
  /**
   * @param made the part that the operator makes; null for none
   * @param unpinned the candidates without the user's pins
   * @throws AutoparError (noPlan) `pin-cannot-be-kept` where pins leave none that the level allows
   */
  readonly candidates: (
    made: StatePart | null,
    node: Node,
    set: CandidateSet,
    unpinned: () => CandidateSet,
    at: PinnedPlace,
  ) => CandidateSet;
}

export interface LayoutRule {
  /** Layouts in which an input may be at rest, given those that its readers ask for. */
  readonly resting: (input: string, asked: readonly Layout[]) => readonly Layout[];
  /**
   * The allowed layouts among those that the readers of a tensor share: for a graph input at rest, or for a tensor that is made
   * from parameters alone.
   */
  readonly layouts: (
    tensor: string,
    all: readonly Layout[],
    pinned: readonly Layout[],
    at: PinnedPlace,
  ) => readonly Layout[];
}

/** For error messages: the tensor or operator, and the pins on it. */
export interface PinnedPlace {
  readonly what: string;
  readonly pins: readonly PinSource[];
}

/**
 * The rule of a level on a mesh.
 * @param hasExperts whether an operator has experts, where they are spread over ranks
 * @param text the option that requests it
 */
export function zeroRule(
  graph: Graph,
  mesh: Mesh,
  level: ZeroLevel,
  hasExperts: (node: Node) => boolean,
  text = `--zero ${level}`,
): ZeroRule {
  const { experts = [] } = mesh;
  // A part that is cut is sharded over all data axes, those of experts included.
  const spreadOf = (part: StatePart, isOfExperts: boolean) => (isOfExperts && !isCut(part) ? experts : []);
  const ofStrategy = ({ axes }: Strategy, spread: readonly SubAxis[]) =>
    partsOf(Object.values(axes).flat(), mesh, spread);
  const source: PinSource = {
    file: null,
    line: null,
    text,
    priority: Number.MAX_SAFE_INTEGER,
    why: null,
  };
  const refuse = ({ what, pins }: PinnedPlace, isCut: boolean) =>
    unsatisfiable(
      what,
      [...pins, source],
      isCut
        ? 'the level shards it over dp, and the pins do not'
        : 'the level replicates it over dp, and the pins do not',
    );
  const isCut = (part: StatePart) => zeroOf(part, level) === 'cut';
  const tensors = tensorsAtRest(graph, level);
  const held = stateWeights(graph);
  const ofLayout = remembered((layout: Layout) => dataParts(layout, mesh));
  const ofExperts = experts.length > 0 ? tensorsOfExperts(graph, hasExperts) : new Set<string>();
  return {
    candidates: (part, node, set, unpinned, at) => {
      // Tensors computed from parameters for one micro-batch are free where parameters are whole.
      if (part === null || zeroOf(part, level) === 'free' || (part === 'parameter' && !isCut(part))) return set;
      const spread = spreadOf(part, experts.length > 0 && hasExperts(node));
      const parts = (strategy: Strategy) => ofStrategy(strategy, spread);
      const wanted = extreme(unpinned().strategies.map(parts), isCut(part));
      const kept = set.strategies.flatMap((strategy, number) => (parts(strategy) === wanted ? [number] : []));
      if (kept.length === 0) throw refuse(at, isCut(part));
      return kept.length === set.strategies.length ? set : chosen(set, kept);
    },
    // No reader asks for a shard of a weight that no update changes, so shards are added.
    resting: (input, asked) =>
      held.has(input) && isCut('parameter')
        ? [...asked, ...asked.flatMap((layout) => cutLayouts(layout, mesh))]
        : asked,
    layouts: (tensor, all, pinned, at) => {
      const part = tensors.get(tensor);
      if (part === undefined) return pinned;
      const spread = spreadOf(part, ofExperts.has(tensor));
      const parts = (layout: Layout) => (spread.length > 0 ? dataParts(layout, mesh, spread) : ofLayout(layout));
      const wanted = extreme(all.map(parts), isCut(part));
      const kept = pinned.filter((layout) => parts(layout) === wanted);
      if (kept.length === 0) throw refuse(at, isCut(part));
      return kept;
    },
  };
}

/** Layouts with one dimension sharded further, by as many sub-axes of the data axes as divide it. */
function cutLayouts({ dims, partial, extents }: Layout, mesh: Mesh): readonly Layout[] {
  const used = new Set([...dims.flat().flatMap(({ axes }) => axes), ...partial.map(({ axis }) => axis)]);
  // With free axes a reader may itself ask for a shard over dp.
  const data = dataAxes(mesh).flatMap(({ subAxes }) => subAxes.filter(({ name }) => !used.has(name)));
  return dims.flatMap((pieces, at) => {
    const [first, ...others] = pieces;
    if (!first || extents?.[at]) return [];
    const taken: SubAxis[] = [];
    let parts = axesSize(mesh, first.axes);
    for (const { name, size } of data) {
      if (first.size % (parts * size) !== 0) continue;
      taken.push(name);
      parts *= size;
    }
    if (taken.length === 0) return [];
    const cut = [{ size: first.size, axes: [...taken, ...first.axes] }, ...others];
    return [normalise(dims.with(at, cut), partial, mesh, extents)];
  });
}

/** Tensors with the layouts of a part: state at rest, and, where parameters are cut, tensors that are made from them alone. */
function tensorsAtRest(graph: Graph, level: ZeroLevel): ReadonlyMap<string, StatePart> {
  const derived = zeroOf('parameter', level) === 'cut' ? [...ofParameters(graph)] : [];
  const made = derived.flatMap(({ outputs }) => outputs.filter((name) => name !== null));
  return new Map<string, StatePart>([...updatedState(graph), ...made.map((name) => [name, 'parameter'] as const)]);
}

function extreme(counts: readonly number[], isMost: boolean): number {
  return counts.reduce((found, count) => (isMost ? Math.max(found, count) : Math.min(found, count)), counts[0] ?? 1);
}

/** Some of a set's candidates, by number. */
function chosen(set: CandidateSet, numbers: readonly number[]): CandidateSet {
  const at = <Item>(list: readonly Item[]) => numbers.map((number) => list[number] as Item);
  return {
    ...set,
    strategies: at(set.strategies),
    costs: Float64Array.from(numbers, (number) => set.costs[number] as number),
    operands: at(set.operands),
    results: at(set.results),
  };
}
