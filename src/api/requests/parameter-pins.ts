/**
 * @file Parameters that a rank of tensor parallelism holds in part, as generated families do: where the cheapest plan of one
 * micro-batch holds them whole, since that costs it nothing, what it would take besides (memory, the reduction of gradients, the
 * update) is spared by pins.
 */
import { isDeepStrictEqual } from 'node:util';
import { expertRoutes } from '../../cost-model/step/expert-routes.js';
import { indexGraph } from '../../ir/blocks/matching.js';
import type { FactorKind } from '../../ir/factor-rule.js';
import type { Graph, Node } from '../../ir/graph.js';
import type { OperatorFamily } from '../../ir/operator.js';
import { entryOf } from '../../ir/ops/index.js';
import { mayBePadded } from '../../ir/padding.js';
import { ruleOf, viewOf } from '../../ir/view.js';
import { forwardGroups } from '../../partition/kernels.js';
import { onlyStage } from '../../partition/lower-stages.js';
import { factorFamilies } from '../../search/factor-families.js';
import type { PlanResult } from '../../search/plan.js';
import { isReplicated } from '../../sharding-propagation/layout.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { Pin } from '../../sharding-propagation/pin.js';
import { weightAxis } from '../../sharding-propagation/roles.js';
import { sidesUnder } from '../explanations/explain-layouts.js';
import { wordEmbedding } from '../parallel-config/word-embedding.js';

/**
 * Tokens are looked up in a table that is cut by its rows, as Megatron does and generated families do: whole, it would save a
 * reduction in every micro-batch, and be held, reduced and updated on every rank, which the work of one micro-batch does not
 * know.
 */
export function tablePins(graph: Graph, mesh: Mesh): readonly Pin[] {
  const found = wordEmbedding(graph);
  const tp = weightAxis(mesh);
  if (
    !found ||
    !tp ||
    tp.size === 1 ||
    found.vocabulary < tp.size ||
    graph.weights.get(found.table)?.role !== 'parameter'
  )
    return [];
  const { node, rows } = found;
  const view = viewOf(graph, node);
  const entry = entryOf(node.op, node.domain);
  const rule = entry?.rule(view);
  const isEven = found.vocabulary % tp.size === 0;
  if (rule?.factors.get(rows)?.kind !== 'mask' || !entry || !(isEven || mayBePadded(rows, view, rule, entry)))
    return [];
  const axes = { [rows]: tp.subAxes.map(({ name }) => name) };
  const text = `rows of ${found.table} over tp`;
  return [
    { kind: 'operator', node: node.name, source: { file: null, line: null, text, priority: 0, why: null }, axes },
  ];
}

/** What brings tokens to experts and takes them back, and sums their gradients. */
const BESIDE: ReadonlySet<OperatorFamily> = new Set(['indexing', 'elementwise']);

/**
 * Products of experts, what scores experts, what works on their results and what is beside them are whole on every rank of tp, as
 * in generated families: prices of steps let each of those ranks send its share of the tokens to their experts.
 */
export function expertPins(graph: Graph, mesh: Mesh): readonly Pin[] {
  const index = indexGraph(graph);
  const { routed, around } = expertRoutes(index);
  const without = weightAxis(mesh)?.subAxes.map(({ name }) => name) ?? [];
  if (without.length === 0) return [];
  const source = { file: null, line: null, text: 'experts whole over tp', priority: 0, why: null };
  const groups = forwardGroups(graph);
  const groupOf = (node: Node) => groups.get(node.name) ?? node.group;
  const inside = new Set([...routed.keys(), ...around]);
  const isBeside = (node: Node) =>
    BESIDE.has(entryOf(node.op, node.domain)?.family ?? 'other') &&
    [
      ...node.inputs.flatMap((input) => index.makers.get(input ?? '') ?? []),
      ...node.outputs.flatMap((output) => index.readers.get(output ?? '') ?? []),
    ].some((other) => inside.has(groupOf(other)));
  const beside = new Set(graph.nodes.filter(isBeside).map(groupOf));
  return graph.nodes.flatMap((node): readonly Pin[] => {
    const group = groupOf(node);
    return inside.has(group) || beside.has(group) ? [{ kind: 'operator', node: node.name, source, without }] : [];
  });
}

/**
 * No operator is cut along the sequence by tp, no norm along what it sums over, nor the element-wise ones before it (sums into
 * the residual stream): what that spares is the arithmetic of steps with Megatron's sequence parallelism, which
 * starts from a plan without it.
 */
export function streamPins(graph: Graph, mesh: Mesh): readonly Pin[] {
  const familiesOf = factorFamilies(graph, { sequence: true });
  if (!weightAxis(mesh)) return [];
  const source = { file: null, line: null, text: 'the residual stream whole over tp', priority: 0, why: null };
  const needed = neededWhole(graph);
  return graph.nodes.flatMap((node): readonly Pin[] => {
    const rule = ruleOf(viewOf(graph, node));
    const along = [...familiesOf(node, rule).factors.sequence, ...(needed.get(node) ?? [])];
    const whole = along.filter((name) => rule.factors.has(name));
    if (whole.length === 0 || node.phase === 'update') return [];
    return [{ kind: 'operator', node: node.name, source, axes: Object.fromEntries(whole.map((name) => [name, []])) }];
  });
}

/** Factors over which a norm sums. */
const NORMED: ReadonlySet<FactorKind> = new Set(['expanded', 'whole']);

/**
 * Of each norm the factors that it sums over; of each element-wise operator whose result leads to a norm those of the same
 * dimensions.
 */
function neededWhole(graph: Graph): ReadonlyMap<Node, readonly string[]> {
  // Forward first, so that gradients are asked after what they are of.
  const reversed = [...graph.nodes].reverse();
  const isForward = ({ phase }: Node) => phase === 'forward';
  const inOrder = [...reversed.filter(isForward), ...reversed.filter((node) => !isForward(node))];
  const dimensions = new Map<string, Set<number>>();
  const found = new Map<Node, readonly string[]>();
  const outputs = new Map(graph.nodes.map(({ name, outputs: [output] }) => [name, output]));
  for (const node of inOrder) {
    const rule = ruleOf(viewOf(graph, node));
    const family = entryOf(node.op, node.domain)?.family;
    if (family !== 'elementwise' && family !== 'normalisation') continue;
    const [output] = node.outputs;
    // The gradient of a sum is whole where the sum is.
    const of = node.phase === 'forward' ? output : outputs.get(node.forward ?? '');
    const whole = new Set([output, of].flatMap((name) => [...(dimensions.get(name ?? '') ?? [])]));
    const factors =
      family === 'elementwise'
        ? [...whole].flatMap((at) => rule.outputs[0]?.[at] ?? [])
        : [...rule.factors.values()].flatMap(({ name, kind }) => (NORMED.has(kind) ? [name] : []));
    if (factors.length > 0) found.set(node, factors);
    node.inputs.forEach((input, index) => {
      const own = rule.inputs[index]?.flatMap((names, at) =>
        names.some((name) => factors.includes(name)) ? [at] : [],
      );
      if (input === null || !own || own.length === 0) return;
      dimensions.set(input, new Set([...(dimensions.get(input) ?? []), ...own]));
    });
  }
  return found;
}

/**
 * A parameter of which forward's product reads a part lies so, where another layout in backward had it kept whole: that too costs
 * one micro-batch nothing, and memory, reductions and updates on every rank.
 */
export function productPins(
  graph: Graph,
  { assignment, lowered }: Pick<PlanResult, 'assignment' | 'lowered'>,
): readonly Pin[] {
  const { mesh, strategies } = assignment;
  const sharded = onlyStage(lowered);
  const held = new Set(
    sharded.weights.flatMap(({ tensor, weight }) => {
      const { shape, localShape } = sharded.tensors.get(tensor) ?? { shape: [], localShape: [] };
      const isParameter = graph.weights.get(weight)?.role === 'parameter';
      return isParameter && shape.length > 1 && isDeepStrictEqual(shape, localShape) ? [weight] : [];
    }),
  );
  if (held.size === 0) return [];
  const views = new Map(
    graph.nodes.flatMap((node) => {
      const [from, ...others] = node.inputs.filter((input) => input !== null);
      const isView = entryOf(node.op, node.domain)?.family === 'view' && others.length === 0;
      return isView && node.phase === 'forward' && held.has(from ?? '')
        ? node.outputs.flatMap((output) => (output === null ? [] : [[output, from ?? ''] as const]))
        : [];
    }),
  );
  return graph.nodes.flatMap((node): readonly Pin[] => {
    const strategy = strategies.get(node.group);
    if (!strategy || node.phase !== 'forward' || entryOf(node.op, node.domain)?.family !== 'contraction') return [];
    const { operands } = sidesUnder(graph, node, strategy, mesh);
    return node.inputs.flatMap((tensor, index): readonly Pin[] => {
      const layout = operands[index];
      if (tensor === null || !layout || isReplicated(layout) || !(held.has(tensor) || views.has(tensor))) return [];
      const text = `${views.get(tensor) ?? tensor} as its product reads it`;
      const source = { file: null, line: null, text, priority: 0, why: null };
      return [{ kind: 'tensor', tensor, source, demand: { kind: 'layout', layout } }];
    });
  });
}
