/**
 * @file All pins of a graph, assigned to the operators and tensors that they bind: pins on a computed tensor bind its producer,
 * pins on a weight bind its readers (each has its shard cut from the file). They limit propagation from the start; they feed it
 * in the round of their priority.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { madeOnce } from '../../ir/remembered.js';
import { demandsAgree, demandText } from '../annotations/agreement.js';
import type { Mesh, SubAxis } from '../mesh.js';
import type { LayoutDemand, OperatorPin, Pin, PinSource, TensorPin } from '../pin.js';
import { type ChoosePiece, type Claims, type CountedFactors, claimsOf, clashOf } from './claims.js';
import { axesOfCut, type Cut, cutsOfLayout } from './cut.js';
import type { OperatorCells } from './operator-cells.js';
import { pinsContradict } from './refusals.js';
import type { Limit } from './tensor-cuts.js';

/** A cut that a pin gives a factor. */
export interface FixedCut {
  readonly cut: Cut;
  readonly source: PinSource;
  readonly round: number;
}

export interface OperatorDemands {
  readonly pins: readonly OperatorPin[];
  /** By number of the factor. Split counts are added once their axes are chosen. */
  readonly fixed: Map<number, FixedCut>;
  readonly counts: readonly (CountedFactors & { readonly source: PinSource; readonly round: number })[];
  /** The final cuts of a sum's results: factors may be sharded by no more than these. */
  readonly results: ReadonlyMap<number, Cut>;
  /** Axes that it may not use. */
  readonly without: ReadonlySet<SubAxis>;
}

export interface TensorDemand {
  readonly demand: LayoutDemand;
  readonly limits: readonly Limit[];
  /** The cuts that the pin asks for; null where only parts are counted. */
  readonly cuts: readonly Cut[] | null;
  readonly source: PinSource;
  readonly round: number;
}

/** A pin that one of higher priority overrules, and where. */
export interface Overruled {
  readonly pin: PinSource;
  readonly by: PinSource;
  readonly at: string;
}

export interface Demands {
  readonly operators: ReadonlyMap<string, OperatorDemands>;
  readonly tensors: ReadonlyMap<string, TensorDemand>;
  readonly overruled: readonly Overruled[];
  /** Number of priorities: the rounds of propagation, highest first. */
  readonly rounds: number;
}

/** Facts about the graph that collecting needs. */
export interface DemandContext {
  readonly graph: Graph;
  readonly mesh: Mesh;
  readonly cells: (node: string) => OperatorCells;
  readonly readers: (tensor: string) => readonly Node[];
  readonly maker: (tensor: string) => Node | undefined;
  readonly choosePiece: (cells: OperatorCells) => ChoosePiece;
}

/** @throws AutoparError `pins-contradict` for pins of one priority, `pin-cannot-be-kept` for a single one */
export function demandsOf(pins: readonly Pin[], around: DemandContext): Demands {
  const binding = pins.filter((pin) => pin.kind === 'operator' || pin.kind === 'tensor');
  const priorities = [...new Set(binding.map((pin) => pin.source.priority))].sort((a, b) => b - a);
  const roundOf = (source: PinSource) => priorities.indexOf(source.priority);
  const ordered = [...binding].sort((a, b) => roundOf(a.source) - roundOf(b.source));
  const overruled: Overruled[] = [];
  const tensors = demandsByTensor(ordered, around, roundOf, overruled);
  const claims = new Map<string, Claims[]>();
  for (const { pin, node, path } of boundOperators(ordered, around)) {
    const cells = around.cells(node);
    const own = claimsOf(pin, path, cells, around.mesh, around.choosePiece(cells));
    const known = madeOnce(claims, node, () => []);
    const against = known.find((other) => clashOf(other, own, cells, around.mesh) !== null);
    if (!against) known.push(own);
    else if (against.pin.source.priority === pin.source.priority) {
      const clash = clashOf(against, own, cells, around.mesh) ?? '';
      throw pinsContradict(
        { source: against.pin.source, path: against.path },
        { source: pin.source, path },
        node,
        clash,
      );
    } else overruled.push({ pin: pin.source, by: against.pin.source, at: node });
  }
  const operators = new Map([...claims].map(([node, list]) => [node, pinnedCuts(list, roundOf)] as const));
  return { operators, tensors, overruled, rounds: priorities.length };
}

interface PinnedOperator {
  readonly pin: OperatorPin;
  readonly node: string;
  readonly path: readonly string[];
}

function boundOperators(pins: readonly Pin[], { graph, readers, maker }: DemandContext): readonly PinnedOperator[] {
  const at = (names: Node['inputs'], { tensor, demand }: TensorPin) =>
    names.map((name) => (name === tensor ? demand : null));
  return pins.flatMap((pin): readonly PinnedOperator[] => {
    if (pin.kind === 'operator') return [{ pin, node: pin.node, path: [] }];
    if (pin.kind !== 'tensor') return [];
    const { tensor, source } = pin;
    const made = maker(tensor);
    const bound = (node: Node, sides: Pick<OperatorPin, 'operands' | 'results'>): PinnedOperator => ({
      pin: { kind: 'operator', node: node.name, source, ...sides },
      node: node.name,
      path: [tensor],
    });
    if (made) return [bound(made, { results: at(made.outputs, pin) })];
    if (!graph.weights.has(tensor)) return [];
    return readers(tensor).map((node) => bound(node, { operands: at(node.inputs, pin) }));
  });
}

function pinnedCuts(claims: readonly Claims[], roundOf: (source: PinSource) => number): OperatorDemands {
  const fixed = new Map<number, FixedCut>();
  const results = new Map<number, Cut>();
  for (const { pin, cuts, results: made } of claims) {
    for (const [factor, cut] of cuts)
      if (!fixed.has(factor)) fixed.set(factor, { cut, source: pin.source, round: roundOf(pin.source) });
    for (const [factor, cut] of made) results.set(factor, cut);
  }
  const counts = claims.flatMap(({ pin, counts: own }) =>
    own.map((count) => ({ ...count, source: pin.source, round: roundOf(pin.source) })),
  );
  const without = new Set(claims.flatMap(({ pin }) => pin.without ?? []));
  return { pins: claims.map(({ pin }) => pin), fixed, counts, results, without };
}

/** Tensors with pinned layouts, be they pinned themselves or as the result of an operator. */
function demandsByTensor(
  pins: readonly Pin[],
  { graph, mesh }: DemandContext,
  roundOf: (source: PinSource) => number,
  overruled: Overruled[],
): ReadonlyMap<string, TensorDemand> {
  const found = new Map<string, TensorDemand>();
  const put = (tensor: string, demand: LayoutDemand, source: PinSource) => {
    const known = found.get(tensor);
    const made = { ...tensorDemand(demand, mesh), source, round: roundOf(source) };
    if (!known) found.set(tensor, made);
    else if (!demandsAgree(known.demand, demand, mesh)) {
      if (known.source.priority > source.priority) overruled.push({ pin: source, by: known.source, at: tensor });
      else throw tensorsContradict(tensor, known, { demand, source }, [], mesh);
    } else if (known.cuts === null) found.set(tensor, made);
  };
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  for (const pin of pins) {
    if (pin.kind === 'tensor') put(pin.tensor, pin.demand, pin.source);
    if (pin.kind !== 'operator') continue;
    nodes.get(pin.node)?.outputs.forEach((output, index) => {
      const demand = pin.results?.[index];
      if (output !== null && demand) put(output, demand, pin.source);
    });
  }
  for (const { input, output } of graph.state) {
    const [before, after] = [found.get(input), found.get(output)];
    if (before && after && !demandsAgree(before.demand, after.demand, mesh))
      throw tensorsContradict(input, before, after, [output], mesh);
  }
  return found;
}

function tensorDemand(demand: LayoutDemand, mesh: Mesh): Pick<TensorDemand, 'demand' | 'limits' | 'cuts'> {
  if (demand.kind === 'split')
    return { demand, cuts: null, limits: demand.counts.map((parts): Limit => ({ kind: 'parts', parts })) };
  const cuts = cutsOfLayout(demand.layout, mesh);
  return { demand, cuts, limits: cuts.map((cut): Limit => ({ kind: 'cut', cut })) };
}

function tensorsContradict(
  tensor: string,
  first: Pick<TensorDemand, 'demand' | 'source'>,
  second: Pick<TensorDemand, 'demand' | 'source'>,
  path: readonly string[],
  mesh: Mesh,
) {
  const dimension = differing(first.demand.written ?? first.demand, second.demand.written ?? second.demand, mesh);
  const clash =
    `dimension ${dimension} differs, it is ${demandText(first.demand, mesh)} by the first and ` +
    `${demandText(second.demand, mesh)} by the second`;
  return pinsContradict({ source: first.source, path: [] }, { source: second.source, path }, tensor, clash);
}

function differing(first: LayoutDemand, second: LayoutDemand, mesh: Mesh): number {
  const of = (demand: LayoutDemand) =>
    demand.kind === 'split'
      ? demand.counts.map(String)
      : cutsOfLayout(demand.layout, mesh).map((cut) => axesOfCut(cut).join());
  const [one, other] = [of(first), of(second)];
  return Math.max(
    one.findIndex((text, at) => text !== other[at]),
    0,
  );
}
