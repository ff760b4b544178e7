/**
 * @file Registry entries of fused regions: everything follows from the body.
 */

import type { Graph, TensorType } from '../graph.js';
import type { Operator, OperatorEntry, RegionKind } from '../operator.js';
import { familyPrecision } from '../ops/entry.js';
import { remembered } from '../remembered.js';
import { attentionFormula } from './attention-formula.js';
import { REGION_DOMAIN, REGION_KINDS } from './fused-region.js';
import { expansionOf, type FindEntry, type RegionRule } from './region-rule.js';
import { rememberedRule } from './remembered-rule.js';
import { streamedChunk } from './streamed.js';

/** The entries, given how inner operators are looked up. Their functions need an operator with a body. */
export function fusedRegionEntries(find: FindEntry): readonly OperatorEntry[] {
  const ruleOfBody = rememberedRules(find);
  const flopsOfBody = remembered((body: Graph) => flopsOf(body, find));
  return (Object.keys(REGION_KINDS) as RegionKind[]).flatMap((region): readonly OperatorEntry[] => {
    const { family } = REGION_KINDS[region];
    const shared: Omit<OperatorEntry, 'op'> = {
      domain: REGION_DOMAIN,
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
    const own = { ...(region === 'Rounding' ? rounding : {}), ...(region === 'Attention' ? { formula } : {}) };
    return [
      { ...shared, ...own, op: region, region },
      { ...shared, op: `${region}Gradient` },
    ];
  });
}

/** Bodies are immutable, so the rule of each is composed once. */
function rememberedRules(find: FindEntry): (operator: Operator) => RegionRule {
  const known = new WeakMap<Graph, RegionRule>();
  const ruleOf = rememberedRule(find);
  return (operator) => {
    const body = bodyOf(operator);
    const found = known.get(body) ?? ruleOf(operator.op, body);
    if (!found) throw new Error(`fused region ${operator.name}: the dimensions of its body do not match`);
    known.set(body, found);
    return found;
  };
}

function bodyOf(operator: Operator): Graph {
  if (!operator.body) throw new Error(`fused region ${operator.name} has no body`);
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
