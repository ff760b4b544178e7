/**
 * @file Degrees that a model has nothing for: sp without a sequence, ulysses with heads that sp does not divide, ep without experts.
 */
import { sequenceDimensions } from '../ir/dimension-roles.js';
import { AutoparError } from '../ir/error.js';
import { type Graph, typeOf } from '../ir/graph.js';
import type { OperatorEntry } from '../ir/operator.js';
import { expertEntries } from '../ir/ops/experts.js';
import { entryOf } from '../ir/ops/index.js';
import { ruleOf, viewOf } from '../ir/view.js';
import type { SpMethod } from '../sharding-propagation/roles.js';
import type { Pins } from './degrees.js';
import { attentionHeads, expertDimensions } from './factor-families.js';
import type { OperatorQuestions } from './operator-questions.js';

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

/** @throws AutoparError `degree-does-not-fit` (usage) for a ring over an attention that cannot take its keys in blocks */
export function refuseRing(graph: Graph, questionOf: OperatorQuestions, sp: number): void {
  for (const node of graph.nodes) {
    const { view, families } = questionOf(node);
    const rule = ruleOf(view);
    const sequences = [...families.factors.sequence];
    const family = entryOf(node.op, node.domain)?.family ?? 'other';
    if (sequences.length < 2 || !ATTENDING.has(family)) continue;
    if (!sequences.some((name) => rule.factors.get(name)?.streams))
      throw doesNotFit(
        `--sp-method ring passes keys and values round, and ${node.op} ${node.name} cannot take them in blocks`,
        'take --sp-method gather, or --sp-method ulysses',
        node.name,
      );
    const sizes = sequences.map((name) => rule.factors.get(name)?.size ?? sp);
    if (sizes.some((size) => size < sp))
      throw doesNotFit(
        `--sp-method ring gives every rank a block of keys, and --sp ${sp} is more than the ${Math.min(...sizes)} positions of ${node.name}`,
        `take --sp ${Math.min(...sizes)} at most, or --sp-method gather`,
        node.name,
      );
  }
}

/** Families of operators that bring queries and keys together. */
const ATTENDING: ReadonlySet<OperatorEntry['family']> = new Set(['attention', 'contraction']);

function refuseHeads(graph: Graph, sp: number): void {
  for (const node of graph.nodes) {
    if (entryOf(node.op, node.domain)?.family !== 'attention') continue;
    const heads = attentionHeads(ruleOf(viewOf(graph, node)));
    if (heads.length === 0 || heads.some((size) => size % sp === 0)) continue;
    const count = heads.reduce((all, size) => all * size, 1);
    const fitting = divisorsOf(heads).filter((degree) => degree > 1);
    throw doesNotFit(
      `--sp-method ulysses shards heads, and --sp ${sp} does not divide the ${count} heads of ${node.name}` +
        (heads.length > 1 ? ` (${heads.join(' · ')}, which share keys)` : ''),
      `take ${fitting.length > 0 ? `--sp ${fitting.join(' or ')}, ` : ''}--sp-method ring or --sp-method gather`,
      node.name,
    );
  }
}

/** Degrees that divide one of some numbers. */
function divisorsOf(numbers: readonly number[]): readonly number[] {
  return Array.from({ length: Math.max(...numbers) }, (_, index) => index + 1).filter((degree) =>
    numbers.some((size) => size % degree === 0),
  );
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
      `--ep ${ep} shards experts, and this form of the operator ${routed.op} has all of them on every rank (a sparse mixer, ` +
        "gates with weights of their own or behind the other features, or a router's weights beside its scores)",
      'export the experts as plain operators, or leave out --ep',
      routed.name,
    );
  if (counts.length === 0)
    throw doesNotFit(
      `--ep ${ep} shards experts, and ${graph.name} has none: no product with a weight [experts, rows, columns], ` +
        'and no experts with weights of their own that are alike',
      'docs/sequences-and-experts.md lists the written forms; leave out --ep',
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
