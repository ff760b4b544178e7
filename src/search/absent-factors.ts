/**
 * @file Degrees that a model has nothing for: sp without a sequence, ulysses with heads that sp does not divide, ep without experts.
 */
import { sequenceDimensions } from '../ir/dimension-roles.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, typeOf } from '../ir/graph.js';
import { expertEntries } from '../ir/ops/experts.js';
import { entryOf } from '../ir/ops/index.js';
import { ruleOf, viewOf } from '../ir/view.js';
import type { SpMethod } from '../sharding-propagation/roles.js';
import type { Pins } from './degrees.js';
import { attentionHeads, expertDimensions } from './factor-families.js';

/** @throws AutoparError `degree-does-not-fit`, `bad-option` (usage) */
export function refuseAbsentFactors(graph: Graph, { sp = 1, ep = 1 }: Pins, spMethod: SpMethod | undefined): void {
  if (spMethod !== undefined && sp === 1)
    throw new AutoparError(
      'bad-option',
      'usage',
      `--sp-method ${spMethod} says how sp shards attention, and sp is 1`,
      {},
      'leave it out, or add --sp 2',
    );
  if (sp > 1) refuseSequence(graph, sp);
  if (sp > 1 && spMethod === 'ulysses') refuseHeads(graph, sp);
  if (ep > 1) refuseExperts(graph, ep);
}

function refuseSequence(graph: Graph, sp: number): void {
  const sizes = sequenceDimensions(graph).map(({ input, axis }) => typeOf(graph, input).shape[axis] ?? 1);
  if (sizes.some((size) => size >= sp)) return;
  const [size] = sizes;
  throw doesNotFit(
    size === undefined
      ? `--sp ${sp} shards sequences, and ${graph.name} has none: no input that is looked up in a table, and no attention`
      : `--sp ${sp} shards sequences, and the longest of ${graph.name} has ${Math.max(...sizes)} positions`,
    size === undefined ? 'leave out --sp' : `take --sp ${Math.max(...sizes)} at most, or longer sequences`,
  );
}

function refuseHeads(graph: Graph, sp: number): void {
  for (const node of graph.nodes) {
    if (entryOf(node.op, node.domain)?.family !== 'attention') continue;
    const heads = attentionHeads(ruleOf(viewOf(graph, node)));
    if (heads.length === 0 || heads.some((size) => size % sp === 0)) continue;
    const count = heads.reduce((all, size) => all * size, 1);
    throw doesNotFit(
      `--sp-method ulysses shards heads, and --sp ${sp} does not divide the ${count} heads of ${node.name}` +
        (heads.length > 1 ? ` (${heads.join(' · ')}, which share keys)` : ''),
      'take --sp-method gather, or an --sp that divides them',
      node.name,
    );
  }
}

function refuseExperts(graph: Graph, ep: number): void {
  const counts = expertDimensions(graph).map(({ input, axis }) => ({
    input,
    count: typeOf(graph, input).shape[axis] ?? 1,
  }));
  const routed = graph.nodes.find(({ op, domain }) =>
    expertEntries.some((entry) => entry.op === op && entry.domain === domain),
  );
  if (counts.length === 0 && routed)
    throw doesNotFit(
      `--ep ${ep} shards experts, and the operator ${routed.op} has all of them on every rank`,
      'add --dispatch padded, which sends tokens to experts on several ranks, or leave out --ep',
      routed.name,
    );
  if (counts.length === 0)
    throw doesNotFit(
      `--ep ${ep} shards experts, and ${graph.name} has none: no product with a weight [experts, rows, columns]`,
      'leave out --ep',
    );
  const other = counts.find(({ count }) => count % ep !== 0);
  if (other)
    throw doesNotFit(
      `--ep ${ep} does not divide the ${other.count} experts of ${other.input}`,
      `give an --ep that divides ${other.count}`,
    );
}

function doesNotFit(message: string, hint: string, node?: string): AutoparError {
  return new AutoparError('degree-does-not-fit', 'usage', message, node === undefined ? {} : { node }, hint);
}
