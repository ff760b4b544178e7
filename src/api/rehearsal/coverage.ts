/**
 * @file The distinct kinds in a lowered plan: (layer class, operator, strategy, phase, collective kind, axes, layouts), without
 * sizes. A rehearsal covers a plan if it has all of them.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { operatorsByLayer } from '../../ir/layers.js';
import { operatorOf } from '../../ir/operator-of.js';
import { ruleOf } from '../../ir/ops/index.js';
import type { Assignment } from '../../partition/assignment.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { resultsOf } from '../../partition/sharded-graph.js';
import type { Layout } from '../../sharding-propagation/layout.js';
import type { SubAxis } from '../../sharding-propagation/mesh.js';
import { pendingPartial, REPLICATED } from '../../sharding-propagation/strategy.js';

/** One kind of action in a lowered plan. */
export interface CoveredKind {
  /** The first layer of its class; null outside of layers. */
  readonly layerClass: string | null;
  readonly operator: string;
  readonly strategy: string;
  readonly phase: string;
  /** `compute`, on all ranks or only on the first rank of axes, a collective's kind, or `send` between stages. */
  readonly kind: string;
  readonly axes: readonly SubAxis[];
  /** Layouts before and after, without sizes; for a send, the layout of the tensor that is sent. */
  readonly layouts: readonly string[];
}

/** Names for reading a lowered plan: operators of the plan's model, and axes of the rehearsal. */
export interface CoverageNames {
  readonly axes: (names: readonly SubAxis[]) => readonly SubAxis[];
  /** The operator of the plan's model that an operator corresponds to. */
  readonly operator: (name: string) => string;
  /** The layer class of an operator, and its counterpart in the first layer of the class. */
  readonly leader: (operator: string) => { readonly layerClass: string | null; readonly operator: string };
}

/** A kind with the places that have it. */
export interface Covered {
  readonly kind: CoveredKind;
  /** Sub-axes as the plan names them. */
  readonly used: ReadonlySet<SubAxis>;
  /** The first place that has it. */
  readonly at: string;
}

/** The distinct kinds of a lowered plan, by key. */
export function coverageOf(
  lowered: readonly LoweredStage[],
  { strategies }: Pick<Assignment, 'strategies'>,
  names: CoverageNames,
): ReadonlyMap<string, Covered> {
  const found = new Map<string, Covered>();
  const layoutTexts = new Map<Layout, string>();
  const text = (layout: Layout | undefined): string => {
    if (!layout) return '';
    const known = layoutTexts.get(layout) ?? layoutKind(layout, names.axes);
    layoutTexts.set(layout, known);
    return known;
  };
  const add = (kind: CoveredKind, used: Iterable<SubAxis>, at: string) => {
    const key = JSON.stringify(kind);
    if (!found.has(key)) found.set(key, { kind, used: new Set(used), at });
  };
  for (const { graph, sharded } of lowered) {
    const operators = new Map(graph.nodes.map((node) => [node.name, node]));
    const makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
    const described = new Map<string, DescribedKind>();
    const describe = (name: string): DescribedKind => {
      const known = described.get(name) ?? describeOperator(name, graph, operators, makers, strategies, names);
      described.set(name, known);
      return known;
    };
    for (const node of sharded.nodes) {
      const own = describe(node.origin);
      const base = { ...own.kind, phase: node.phase };
      if (node.kind === 'compute') {
        const { first = [] } = sharded.tensors.get(resultsOf(node)[0] ?? '') ?? {};
        const kind = first.length > 0 ? 'compute on the first rank' : 'compute';
        add({ ...base, kind, axes: names.axes(first), layouts: [] }, [...own.used, ...first], node.origin);
      } else if (node.kind === 'move') {
        const places = [node.input, node.output].map((name) => sharded.tensors.get(name)?.place ?? 'device');
        add({ ...base, kind: `move ${places.join(' to ')}`, axes: [], layouts: [] }, own.used, node.origin);
      } else {
        const [from, to] = [sharded.tensors.get(node.input)?.layout, sharded.tensors.get(node.output)?.layout];
        const reduction = 'reduction' in node.collective ? ` ${node.collective.reduction}` : '';
        add(
          {
            ...base,
            kind: `${node.collective.kind}${reduction}`,
            axes: names.axes(node.axes),
            layouts: [text(from), text(to)],
          },
          [...own.used, ...axesIn(from), ...axesIn(to), ...node.axes],
          node.origin,
        );
      }
    }
    const origins = new Map(sharded.nodes.flatMap((node) => resultsOf(node).map((name) => [name, node] as const)));
    for (const { tensor, name, when } of sharded.pipeline?.sends ?? []) {
      const maker = makers.get(name)?.name ?? origins.get(tensor)?.origin ?? name;
      const layout = sharded.tensors.get(tensor)?.layout;
      const own = describe(maker);
      add(
        { ...own.kind, phase: when, kind: 'send', axes: [], layouts: [text(layout)] },
        [...own.used, ...axesIn(layout)],
        name,
      );
    }
  }
  return found;
}

interface DescribedKind {
  readonly kind: Pick<CoveredKind, 'layerClass' | 'operator' | 'strategy'>;
  readonly used: readonly SubAxis[];
}

function describeOperator(
  name: string,
  graph: Graph,
  operators: ReadonlyMap<string, Node>,
  makers: ReadonlyMap<string | null, Node>,
  strategies: Assignment['strategies'],
  names: CoverageNames,
): DescribedKind {
  // A graph output is named by its tensor.
  const node = operators.get(name) ?? makers.get(name);
  const isOutput = node !== undefined && !operators.has(name);
  const own = strategies.get(node?.group ?? '') ?? REPLICATED;
  const { axes, partialOperands, pieces } = own;
  // Nothing is reduced if all axes of the reduction are lost.
  const reduced = node && own.pending.kind !== 'none' ? pendingPartial(ruleOf(operatorOf(graph, node)), own) : [];
  const pending = names.axes(reduced.map(({ axis }) => axis)).length > 0 ? own.pending : REPLICATED.pending;
  const used = [...Object.values(axes).flat(), ...(partialOperands?.axes ?? [])];
  const strategy = JSON.stringify([
    Object.entries(axes)
      .map(([factor, own]) => [factor, names.axes(own)] as const)
      .filter(([, own]) => own.length > 0)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
    Object.entries(pieces ?? {}).map(([factor, sizes]) => [factor, sizes.length]),
    partialOperands && names.axes(partialOperands.axes).length > 0
      ? [partialOperands.set, [...names.axes(partialOperands.axes)].sort()]
      : null,
    pending,
  ]);
  const { layerClass, operator } = names.leader(names.operator(node?.name ?? name));
  return { kind: { layerClass, operator: isOutput ? `output of ${operator}` : operator, strategy }, used };
}

function axesIn(layout: Layout | undefined): readonly SubAxis[] {
  if (!layout) return [];
  return [
    ...layout.dims.flatMap((pieces) => pieces.flatMap(({ axes }) => axes)),
    ...layout.partial.map(({ axis }) => axis),
  ];
}

/** A layout without sizes: the axes that shard each dimension, piece by piece. */
function layoutKind({ dims, partial, extents }: Layout, axes: CoverageNames['axes']): string {
  const cut = dims.map((pieces, dimension) => {
    const own = pieces.map((piece) => axes(piece.axes).join(',') || '-');
    while (own.length > 1 && own.at(-1) === '-') own.pop();
    return `${own.join(' | ')}${extents?.[dimension] ? '~' : ''}`;
  });
  const sums = [...new Set(partial.flatMap(({ axis, reduction }) => axes([axis]).map((own) => `${reduction} ${own}`)))];
  return `[${cut.join(', ')}]${sums
    .sort()
    .map((one) => ` + partial(${one})`)
    .join('')}`;
}

/** Maps operators to the first of their class: the k-th operator of a layer to the k-th of its class's first layer. */
export function leadersIn(graph: Graph, kindOf: ReadonlyMap<string, string>): CoverageNames['leader'] {
  const layers = operatorsByLayer(graph.nodes);
  const leaders = new Map<string, { readonly layerClass: string; readonly operator: string }>();
  for (const [layer, operators] of layers) {
    const layerClass = kindOf.get(layer) ?? layer;
    const first = layers.get(layerClass) ?? operators;
    for (const [index, { name }] of operators.entries())
      leaders.set(name, { layerClass, operator: first[index]?.name ?? name });
  }
  // Operators that are numbered over the whole model are one operator in many places.
  return (name) => leaders.get(name) ?? { layerClass: null, operator: name.replace(/\.\d+$/, '') };
}
