/**
 * @file Operators with a weight: matmuls, convolutions and table lookups, with the factors that a style shards over tp. Colwise
 * shards the factor that weight and result have and the data lacks; rowwise shards the one that is summed over.
 *
 *     MatMul *b m k+, *b k+ n -> *b m n     columns n, rows k
 *     Gather v+mask d, *i -> *i d           columns d, rows v (the vocabulary)
 */
import type { FactorRule } from '../../ir/factor-rule.js';
import type { Graph, Node } from '../../ir/graph.js';
import { operatorOf } from '../../ir/operator-of.js';
import { entryOf, ruleOf } from '../../ir/ops/index.js';

export interface WeightOperator {
  readonly node: Node;
  readonly rule: FactorRule;
  /** The weight's operand. */
  readonly operand: number;
  /** The factor that the weight brings to the result; null where it brings none. */
  readonly column: string | null;
  /** The factor that is summed over; null if none. */
  readonly row: string | null;
}

/** The node as a product with a weight; null where it is not one. */
export function weightOperator(graph: Graph, node: Node, weights: ReadonlySet<string>): WeightOperator | null {
  const entry = entryOf(node.op, node.domain);
  const multiplies = entry?.family === 'contraction' || entry?.family === 'convolution';
  const looksUp = entry?.indexInput !== undefined;
  if (!multiplies && !looksUp) return null;
  const isWeight = (operand: number) => weights.has(node.inputs[operand] ?? '');
  const present = node.inputs.flatMap((name, index) => (name === null ? [] : [index]));
  if (present.every(isWeight)) return null;
  const rule = ruleOf(operatorOf(graph, node));
  // A bias beside the matrix is a weight too: the product's weight is the one that the sum runs over.
  for (const operand of present.filter(isWeight)) {
    const own = shardable(rule, rule.inputs[operand]);
    const data = new Set(
      present.filter((other) => !isWeight(other)).flatMap((other) => rule.inputs[other]?.flat() ?? []),
    );
    const result = new Set(rule.outputs[0]?.flat() ?? []);
    const row = own.find((name) => !result.has(name)) ?? null;
    const column = own.find((name) => result.has(name) && !data.has(name)) ?? null;
    if (isSummed(rule, rule.inputs[operand])) return { node, rule, operand, column, row };
  }
  return null;
}

/** Whether the operand has a factor that the result lacks, be it of size 1. */
function isSummed(rule: FactorRule, dims: FactorRule['inputs'][number] | undefined): boolean {
  const result = new Set(rule.outputs[0]?.flat() ?? []);
  return (dims?.flat() ?? []).some((name) => !result.has(name));
}

function shardable(rule: FactorRule, dims: FactorRule['inputs'][number] | undefined): readonly string[] {
  return (dims?.flat() ?? []).filter((name) => {
    const factor = rule.factors.get(name);
    return factor !== undefined && factor.size > 1 && factor.kind !== 'whole' && factor.kind !== 'halo';
  });
}
