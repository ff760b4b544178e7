/**
 * @file How attention is sharded over sp in an assignment, read off the factors that sp shards: queries (gather), heads
 * (ulysses), or queries and streamed keys at once (ring).
 */
import type { Graph, Node } from '../ir/graph.js';
import { operatorOf } from '../ir/operator-of.js';
import { entryOf, operatorRole, ruleOf } from '../ir/ops/index.js';
import type { Assignment } from '../partition/assignment.js';
import { refineRule } from '../sharding-propagation/refine.js';
import { type AttentionMethod, type AttentionMethods, axesTaking } from '../sharding-propagation/roles.js';
import { streamOf } from '../sharding-propagation/strategy.js';
import { factorFamilies } from './factor-families.js';

/** In how many attentions of the forward each method is; nothing where sp shards none. */
export function attentionMethods(
  graph: Graph,
  { mesh, strategies }: Pick<Assignment, 'mesh' | 'strategies'>,
): AttentionMethods {
  const sp = new Set(axesTaking(mesh, 'sequence').flatMap(({ subAxes }) => subAxes.map(({ name }) => name)));
  if (sp.size === 0) return {};
  const familiesOf = factorFamilies(graph, { sequence: true });
  const counts: Partial<Record<AttentionMethod, number>> = {};
  for (const node of graph.nodes) {
    const strategy = strategies.get(node.name);
    if (node.phase !== 'forward' || !strategy || !mayBeAttention(node)) continue;
    const whole = ruleOf(operatorOf(graph, node));
    const { factors, place } = familiesOf(node, whole);
    // A rotary embedding is of attention's family and has no keys; other Softmax has one sequence or none.
    if (place !== 'attention' || (operatorRole(node) !== 'softmax' && !whole.factors.has('t'))) continue;
    const rule = refineRule(whole, strategy.pieces);
    const cut = Object.keys(strategy.axes).filter((factor) => strategy.axes[factor]?.some((axis) => sp.has(axis)));
    const stream = streamOf(rule, strategy);
    const isRing = stream?.axes.some((axis) => sp.has(axis)) === true;
    const found: readonly (AttentionMethod | false)[] = [
      isRing ? 'ring' : cut.some((factor) => factors.sequence.has(factor)) && 'gather',
      cut.some((factor) => factors.heads.has(factor)) && 'ulysses',
    ];
    for (const method of found) if (method) counts[method] = (counts[method] ?? 0) + 1;
  }
  return counts;
}

/** An attention, or the softmax of one that is written out and was not recognised. */
function mayBeAttention({ op, domain }: Node): boolean {
  const entry = entryOf(op, domain);
  return entry?.role === 'softmax' || entry?.family === 'attention';
}
