/**
 * @file Parameters that a rank of tensor parallelism holds in part, as generated families do: where the cheapest plan of one
 * micro-batch holds them whole, since that costs it nothing, what it would take besides (memory, the reduction of gradients, the
 * update) is spared by pins.
 */
import { isDeepStrictEqual } from 'node:util';
import { expertRoutes } from '../cost-model/step/expert-routes.js';
import { indexGraph } from '../ir/blocks/matching.js';
import type { Graph } from '../ir/graph.js';
import { entryOf } from '../ir/ops/index.js';
import { mayBePadded } from '../ir/padding.js';
import { ruleOf, viewOf } from '../ir/view.js';
import { forwardGroups } from '../partition/kernels.js';
import { onlyStage } from '../partition/lower-stages.js';
import { factorFamilies } from '../search/factor-families.js';
import type { PlanResult } from '../search/plan.js';
import { isReplicated } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Pin } from '../sharding-propagation/pin.js';
import { weightAxis } from '../sharding-propagation/roles.js';
import { sidesUnder } from './explain-layouts.js';
import { wordEmbedding } from './parallel-config/word-embedding.js';

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

/**
 * Products of experts, what scores experts, and what works on their results are whole on every rank of tp, as in generated
 * families: prices of steps let each of those ranks send its share of the tokens to their experts.
 */
export function expertPins(graph: Graph, mesh: Mesh): readonly Pin[] {
  const { routed, around } = expertRoutes(indexGraph(graph));
  const without = weightAxis(mesh)?.subAxes.map(({ name }) => name) ?? [];
  if (without.length === 0) return [];
  const source = { file: null, line: null, text: 'experts whole over tp', priority: 0, why: null };
  const groups = forwardGroups(graph);
  return graph.nodes.flatMap((node): readonly Pin[] => {
    const group = groups.get(node.name) ?? node.group;
    return routed.has(group) || around.has(group) ? [{ kind: 'operator', node: node.name, source, without }] : [];
  });
}

/**
 * No operator is cut along the sequence by tp: what that spares is the arithmetic of steps with Megatron's sequence parallelism,
 * which starts from a plan without it.
 */
export function sequencePins(graph: Graph, mesh: Mesh): readonly Pin[] {
  const familiesOf = factorFamilies(graph, { sequence: true });
  if (!weightAxis(mesh)) return [];
  const source = { file: null, line: null, text: 'the sequence whole over tp', priority: 0, why: null };
  return graph.nodes.flatMap((node): readonly Pin[] => {
    const rule = ruleOf(viewOf(graph, node));
    const along = [...familiesOf(node, rule).factors.sequence].filter((name) => rule.factors.has(name));
    if (along.length === 0 || node.phase === 'update') return [];
    return [{ kind: 'operator', node: node.name, source, axes: Object.fromEntries(along.map((name) => [name, []])) }];
  });
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
