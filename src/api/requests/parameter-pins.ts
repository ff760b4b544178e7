/**
 * @file Pins that shard parameters over tensor-parallel ranks, as in generated families. The cheapest plan of one micro-batch may
 * replicate a parameter, since that costs nothing within the micro-batch; the pins avoid the other costs (memory, the reduction
 * of gradients, the update).
 */
import { isDeepStrictEqual } from 'node:util';
import { expertRoutes } from '../../cost-model/step/expert-routes.js';
import type { FactorKind } from '../../ir/factor-rule.js';
import { indexGraph } from '../../ir/fused-regions/matching.js';
import type { Graph, Node } from '../../ir/graph.js';
import type { OperatorFamily } from '../../ir/operator.js';
import { operatorOf } from '../../ir/operator-of.js';
import { entryOf, operatorFamily, ruleOf } from '../../ir/ops/index.js';
import { mayBePadded } from '../../ir/padding.js';
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
 * The embedding table is sharded by its rows, as in Megatron and in generated families. A replicated table would save a
 * reduction in every micro-batch, but every rank would hold, reduce and update it, which the work of one micro-batch does not
 * include.
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
  const operator = operatorOf(graph, node);
  const entry = entryOf(node.op, node.domain);
  const rule = entry?.rule(operator);
  const isEven = found.vocabulary % tp.size === 0;
  if (rule?.factors.get(rows)?.kind !== 'mask' || !entry || !(isEven || mayBePadded(rows, operator, rule, entry)))
    return [];
  const axes = { [rows]: tp.subAxes.map(({ name }) => name) };
  const text = `rows of ${found.table} over tp`;
  return [
    { kind: 'operator', node: node.name, source: { file: null, line: null, text, priority: 0, why: null }, axes },
  ];
}

/** Families of the operators that dispatch tokens to experts, bring them back, and sum their gradients. */
const BESIDE: ReadonlySet<OperatorFamily> = new Set(['indexing', 'elementwise']);

/**
 * Matmuls of experts, the router, operators on expert results and operators beside them are replicated on every tp rank, as in
 * generated families: prices of steps let each of those ranks send its share of the tokens to their experts.
 */
export function expertPins(graph: Graph, mesh: Mesh): readonly Pin[] {
  const index = indexGraph(graph);
  const { routed, around } = expertRoutes(index);
  const without = weightAxis(mesh)?.subAxes.map(({ name }) => name) ?? [];
  if (without.length === 0) return [];
  const source = { file: null, line: null, text: 'experts replicated over tp', priority: 0, why: null };
  const groups = forwardGroups(graph);
  const groupOf = (node: Node) => groups.get(node.name) ?? node.group;
  const inside = new Set([...routed.keys(), ...around]);
  const isBeside = (node: Node) =>
    BESIDE.has(operatorFamily(node) ?? 'other') &&
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
 * tp does not shard operators along the sequence, norms along the dimensions that they sum over, or the elementwise operators
 * before a norm (sums into the residual stream). The price of steps with Megatron's sequence parallelism computes these savings,
 * starting from a plan without it.
 */
export function streamPins(graph: Graph, mesh: Mesh): readonly Pin[] {
  const familiesOf = factorFamilies(graph, { sequence: true });
  if (!weightAxis(mesh)) return [];
  const source = { file: null, line: null, text: 'the residual stream replicated over tp', priority: 0, why: null };
  const needed = neededUnsharded(graph);
  return graph.nodes.flatMap((node): readonly Pin[] => {
    const rule = ruleOf(operatorOf(graph, node));
    const along = [...familiesOf(node, rule).factors.sequence, ...(needed.get(node) ?? [])];
    const whole = along.filter((name) => rule.factors.has(name));
    if (whole.length === 0 || node.phase === 'update') return [];
    return [{ kind: 'operator', node: node.name, source, axes: Object.fromEntries(whole.map((name) => [name, []])) }];
  });
}

/** Factors over which a norm sums. */
const NORMED: ReadonlySet<FactorKind> = new Set(['expanded', 'whole']);

/**
 * For each norm, the factors that it sums over; for each elementwise operator whose result leads to a norm, the factors of the
 * same dimensions.
 */
function neededUnsharded(graph: Graph): ReadonlyMap<Node, readonly string[]> {
  // Forward first, so that gradients come after the tensors that they belong to.
  const reversed = [...graph.nodes].reverse();
  const isForward = ({ phase }: Node) => phase === 'forward';
  const inOrder = [...reversed.filter(isForward), ...reversed.filter((node) => !isForward(node))];
  const dimensions = new Map<string, Set<number>>();
  const found = new Map<Node, readonly string[]>();
  const outputs = new Map(graph.nodes.map(({ name, outputs: [output] }) => [name, output]));
  for (const node of inOrder) {
    const rule = ruleOf(operatorOf(graph, node));
    const family = operatorFamily(node);
    if (family !== 'elementwise' && family !== 'normalisation') continue;
    const [output] = node.outputs;
    // The gradient of a sum is unsharded where the sum is.
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
 * If a forward matmul reads a shard of a parameter, the parameter is pinned to that layout where another layout in backward had
 * replicated it: replication too costs one micro-batch nothing, but memory, reductions and updates on every rank.
 */
export function matmulPins(
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
      const isView = operatorFamily(node) === 'view' && others.length === 0;
      return isView && node.phase === 'forward' && held.has(from ?? '')
        ? node.outputs.flatMap((output) => (output === null ? [] : [[output, from ?? ''] as const]))
        : [];
    }),
  );
  return graph.nodes.flatMap((node): readonly Pin[] => {
    const strategy = strategies.get(node.group);
    if (!strategy || node.phase !== 'forward' || operatorFamily(node) !== 'contraction') return [];
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
