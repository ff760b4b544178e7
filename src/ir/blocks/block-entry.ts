/**
 * @file Registry entries of recognised blocks: everything follows from the body.
 */

import type { Graph, TensorType } from '../graph.js';
import type { BlockKind, Operator, OperatorEntry } from '../operator.js';
import { familyPrecision } from '../ops/entry.js';
import { remembered } from '../remembered.js';
import { attentionFormula } from './attention-formula.js';
import { BLOCK_DOMAIN, BLOCK_KINDS } from './block.js';
import { type BlockRule, expansionOf, type FindEntry } from './block-rule.js';
import { rememberedRule } from './remembered-rule.js';
import { streamedChunk } from './streamed.js';

/** The entries, given how inner operators are looked up. Their functions need an operator with a body. */
export function blockEntries(find: FindEntry): readonly OperatorEntry[] {
  const ruleOfBody = rememberedRules(find);
  const flopsOfBody = remembered((body: Graph) => flopsOf(body, find));
  return (Object.keys(BLOCK_KINDS) as BlockKind[]).flatMap((block): readonly OperatorEntry[] => {
    const { family } = BLOCK_KINDS[block];
    const shared: Omit<OperatorEntry, 'op'> = {
      domain: BLOCK_DOMAIN,
      family,
      precision: familyPrecision(family),
      constantInputs: [],
      infer: (operator) => bodyOf(operator).outputs.map((name) => typeIn(bodyOf(operator), name)),
      rule: (operator) => ruleOfBody(operator).rule,
      linear: () => [],
      expansion: (operator) => expansionOf(bodyOf(operator), ruleOfBody(operator).dims),
      streamed: (operator, size, isPadded) =>
        streamedChunk(operator.op, bodyOf(operator), ruleOfBody(operator), { size, isPadded }, find),
      work: (operator) => ({ flops: flopsOfBody(bodyOf(operator)) }),
      note: 'As its body: sums and lookups inside are lowered operator by operator if they are sharded.',
    };
    // The operand is a sum, or one of its terms: a partial sum stays partial, as through the casts of the body.
    const rounding = { role: 'rounding', linear: () => [[0]] } as const;
    const formula: OperatorEntry['formula'] = (operator, knownValue) =>
      attentionFormula(bodyOf(operator), ruleOfBody(operator).rule, operator.attributes, knownValue);
    const own = { ...(block === 'Rounding' ? rounding : {}), ...(block === 'Attention' ? { formula } : {}) };
    return [
      { ...shared, ...own, op: block, block },
      { ...shared, op: `${block}Gradient` },
    ];
  });
}

/** Bodies are immutable, so the rule of each is composed once. */
function rememberedRules(find: FindEntry): (operator: Operator) => BlockRule {
  const known = new WeakMap<Graph, BlockRule>();
  const ruleOf = rememberedRule(find);
  return (operator) => {
    const body = bodyOf(operator);
    const found = known.get(body) ?? ruleOf(operator.op, body);
    if (!found) throw new Error(`block ${operator.name}: the dimensions of its body do not match`);
    known.set(body, found);
    return found;
  };
}

function bodyOf(operator: Operator): Graph {
  if (!operator.body) throw new Error(`block ${operator.name} has no body`);
  return operator.body;
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
    const operator = { name, op, domain, attributes, inputs: types(inputs), outputs: types(outputs) };
    return sum + find(op, domain).work({ ...operator, outputCount: outputs.length }).flops;
  }, 0);
}
