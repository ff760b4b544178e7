/**
 * @file Plans by propagation alone: pins propagate along the graph (sharding-propagation/propagation), nothing is searched.
 * The result is lowered, checked and priced like any other plan; its distance from the best plan is not known.
 */
import { priceGraph } from '../cost-model/predict.js';
import { resharderOn } from '../cost-model/resharder-on.js';
import { originalTensors, withoutClones } from '../ir/autodiff/recompute.js';
import { dtypeBits } from '../ir/dtype.js';
import { type Graph, type Node, typeOf } from '../ir/graph.js';
import { operatorOf } from '../ir/operator-of.js';
import { operatorEntry } from '../ir/ops/index.js';
import type { Assignment, SharedReshard, TensorReader } from '../partition/assignment.js';
import { partition } from '../partition/partition.js';
import {
  distinctLayouts,
  equalLayouts,
  type Layout,
  mergedLayout,
  replicated,
} from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import { type Propagation, propagate } from '../sharding-propagation/propagation/propagate.js';
import type { Resharder } from '../sharding-propagation/resharding.js';
import { operandLayouts, REPLICATED } from '../sharding-propagation/strategy.js';
import { producedLayouts } from '../strategy/produced-layouts.js';
import { readersByTensor } from '../strategy/readers.js';
import type { Completion } from './completion.js';

/**
 * The assignment of a propagation: its strategies, and one resharding per tensor, to the layout that its readers want. Where
 * readers want different layouts, that is the propagated layout, or the cheapest one if a resharder is given.
 */
export function propagatedAssignment(
  graph: Graph,
  mesh: Mesh,
  propagation: Propagation,
  resharder?: Resharder,
): Assignment {
  const { strategies, layouts, pinned } = propagation;
  const wanted = wantedLayouts(graph, mesh, propagation);
  const originals = originalTensors(graph);
  const propagated = (tensor: string) => {
    const layout = layouts.get(originals.get(tensor) ?? tensor) ?? replicated(typeOf(graph, tensor).shape);
    return mergedLayout(layout, mesh);
  };
  const readers = readersByTensor(graph);
  const serving = (tensor: string, from: Layout | null): Layout => {
    const choice = { graph, tensor, from, propagated: propagated(tensor), readers: readers.get(tensor) ?? [], wanted };
    return cheapestReshard(choice, resharder);
  };
  const inputs = new Map(
    graph.inputs.map((input) => [input, pinned.has(input) ? propagated(input) : serving(input, null)] as const),
  );
  const produced = producedLayouts(graph, { mesh, strategies, inputs });
  const sharedReshards = [...readers].map(([tensor, list]): SharedReshard => {
    const from = produced.get(tensor) ?? propagated(tensor);
    return { tensor, readers: list, layout: inputs.get(tensor) ?? serving(tensor, from) };
  });
  return { mesh, strategies, inputs, sharedReshards };
}

/** The lower bound of such a plan is 0: propagation proves nothing about cheaper plans. */
export const BY_PROPAGATION: Completion = {
  mode: 'sharding_propagation',
  solve: (graph, mesh, cluster, { pins, pinned, factsOf, allToAll }) => {
    const propagation = propagate(withoutClones(graph), mesh, pins);
    const resharder = resharderOn(cluster, mesh, allToAll);
    const assignment = propagatedAssignment(graph, mesh, propagation, resharder);
    const cost = priceGraph(partition(graph, assignment, resharder), cluster);
    const exceptions = graph.nodes
      .filter((node) => node.phase !== 'recompute' && factsOf(node).heavy)
      .flatMap((node) => idleAxes(node, mesh, propagation, pinned));
    return { assignment, resharder, cost, bound: 0, exceptions, propagation };
  },
};

/** By reader: the layout in which an operator takes the operand. */
type WantedLayouts = ReadonlyMap<string, readonly (Layout | null)[]>;

function wantedLayouts(graph: Graph, mesh: Mesh, { strategies }: Propagation): WantedLayouts {
  return new Map(
    graph.nodes.map((node) => {
      const operator = operatorOf(graph, node);
      const entry = operatorEntry(node);
      const strategy = strategies.get(node.group) ?? REPLICATED;
      return [node.name, operandLayouts(entry.rule(operator), strategy, entry.linear(operator), mesh)] as const;
    }),
  );
}

interface ReshardChoice {
  readonly graph: Graph;
  readonly tensor: string;
  /** As it is made; null for an input, which can be fed in any layout. */
  readonly from: Layout | null;
  readonly propagated: Layout;
  readonly readers: readonly TensorReader[];
  readonly wanted: WantedLayouts;
}

/** The layout that readers share. A graph output is left as it is made, but is never partial. */
function cheapestReshard({ graph, tensor, from, propagated, readers, wanted }: ReshardChoice, by?: Resharder): Layout {
  const asked = readers.flatMap((reader) =>
    reader.kind === 'operator' ? (wanted.get(reader.name)?.[reader.operand] ?? []) : [],
  );
  const isOutput = readers.some((reader) => reader.kind === 'output');
  const whole = from && (from.partial.length === 0 || !isOutput) ? [from] : [];
  const [first] = asked;
  if (
    first &&
    !isOutput &&
    asked.every((layout) => equalLayouts(layout, first)) &&
    (from || first.partial.length === 0)
  )
    return first;
  const candidates = distinctLayouts([...whole, propagated, ...asked]).filter(
    (layout) => layout.partial.length === 0 || from,
  );
  const possible = isOutput ? candidates.filter((layout) => layout.partial.length === 0) : candidates;
  const [only] = possible;
  if (!only || (asked.length === 0 && whole.length > 0)) return only ?? propagated;
  if (!by) return asked.every((layout) => equalLayouts(layout, only)) ? only : propagated;
  const { shape, dtype } = typeOf(graph, tensor);
  const cost = (a: Layout, b: Layout) => by.cost(a, b, shape, dtypeBits(dtype));
  const total = (reshard: Layout) =>
    asked.reduce((sum, layout) => sum + cost(reshard, layout), from ? cost(from, reshard) : 0);
  return possible.reduce((best, layout) => (total(layout) < total(best) ? layout : best));
}

/** Axes of pinned degrees that one of the operators with most of the work does not use. */
function idleAxes(node: Node, mesh: Mesh, { strategies }: Propagation, pinned: ReadonlySet<string>) {
  const { axes, partialOperands } = strategies.get(node.group) ?? REPLICATED;
  const used = new Set([...Object.values(axes).flat(), ...(partialOperands?.axes ?? [])]);
  return mesh.axes
    .filter((axis) => pinned.has(axis.name) && axis.subAxes.some((sub) => !used.has(sub.name)))
    .map((axis) => ({
      operator: node.name,
      reason: `${axis.name} ${axis.size} is not used: no pin reaches it`,
    }));
}
