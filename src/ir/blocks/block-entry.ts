/**
 * @file Registry entries of recognised blocks: everything follows from the body.
 */

import type { Graph, TensorType } from '../graph.js';
import type { OperatorEntry, OperatorView } from '../operator.js';
import { familyPrecision } from '../ops/entry.js';
import { remembered } from '../remembered.js';
import { BLOCK_DOMAIN, BLOCK_KINDS } from './block.js';
import { type BlockRule, expansionOf, type FindEntry } from './block-rule.js';
import { rememberedRule } from './remembered-rule.js';
import { streamedBlock } from './streamed.js';

/** The entries, given how inner operators are looked up. Their functions need a view with a body. */
export function blockEntries(find: FindEntry): readonly OperatorEntry[] {
  const ruleOfBody = rememberedRules(find);
  const flopsOfBody = remembered((body: Graph) => flopsOf(body, find));
  const kinds = Object.entries(BLOCK_KINDS).flatMap(([kind, { family }]) => [
    [kind, family] as const,
    [`${kind}Gradient`, family] as const,
  ]);
  return kinds.map(([kind, family]) => ({
    op: kind,
    domain: BLOCK_DOMAIN,
    family,
    precision: familyPrecision(family),
    ...(kind === 'Rounding' ? { role: 'rounding' } : {}),
    constantInputs: [],
    infer: (view: OperatorView) => bodyOf(view).outputs.map((name) => typeIn(bodyOf(view), name)),
    rule: (view: OperatorView) => ruleOfBody(view).rule,
    // The operand is a sum, or one of its terms: a partial sum stays partial, as through the casts of the body.
    linear: () => (kind === 'Rounding' ? [[0]] : []),
    expansion: (view: OperatorView) => expansionOf(bodyOf(view), ruleOfBody(view).dims),
    streamed: (view: OperatorView, size: (factor: string) => number, isPadded: boolean) =>
      streamedBlock(view.op, bodyOf(view), ruleOfBody(view), { size, isPadded }, find),
    work: (view: OperatorView) => ({ flops: flopsOfBody(bodyOf(view)) }),
    note: 'As its body: sums and lookups inside are lowered operator by operator if they are sharded.',
  }));
}

/** Bodies are immutable, so the rule of each is composed once. */
function rememberedRules(find: FindEntry): (view: OperatorView) => BlockRule {
  const known = new WeakMap<Graph, BlockRule>();
  const ruleOf = rememberedRule(find);
  return (view) => {
    const body = bodyOf(view);
    const found = known.get(body) ?? ruleOf(view.op, body);
    if (!found) throw new Error(`block ${view.name}: the dimensions of its body do not match`);
    known.set(body, found);
    return found;
  };
}

function bodyOf(view: OperatorView): Graph {
  if (!view.body) throw new Error(`block ${view.name} has no body`);
  return view.body;
}

function typeIn(body: Graph, name: string): TensorType {
  const type = body.tensors.get(name);
  if (!type) throw new Error(`body of ${body.name} has no tensor ${name}`);
  return type;
}

function flopsOf(body: Graph, find: FindEntry): number {
  const types = (names: readonly (string | null)[]) =>
    names.map((name) => (name === null ? null : (body.tensors.get(name) ?? null)));
  return body.nodes.reduce((sum, { name, op, domain, attributes, inputs, outputs }) => {
    const view = { name, op, domain, attributes, inputs: types(inputs), outputs: types(outputs) };
    return sum + find(op, domain).work({ ...view, outputCount: outputs.length }).flops;
  }, 0);
}
