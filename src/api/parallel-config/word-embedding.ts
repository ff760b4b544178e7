/**
 * @file The word embedding table: among lookups whose indices come from a graph input, the one with the most rows. Lookups of
 * positions have indices that the graph computes itself, or fewer rows.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { weightTensors } from '../../ir/of-weights.js';
import { entryOf } from '../../ir/ops/index.js';
import { weightOperator } from '../../sharding-propagation/annotations/weight-operators.js';

export interface WordEmbedding {
  readonly node: Node;
  /** Name of the table. */
  readonly table: string;
  readonly vocabulary: number;
  readonly hidden: number;
  /** The rule's factor for the rows. */
  readonly rows: string;
}

/** The model's word embedding; null where it has none. */
export function wordEmbedding(graph: Graph): WordEmbedding | null {
  const weights = weightTensors(graph);
  const given = new Set(graph.inputs);
  const found: WordEmbedding[] = [];
  for (const node of graph.nodes) {
    const entry = entryOf(node.op, node.domain);
    const indices = entry?.indexInput === undefined ? undefined : node.inputs[entry.indexInput];
    if (typeof indices === 'string' && given.has(indices)) {
      const weighted = weightOperator(graph, node, weights);
      const size = (factor: string | null) => weighted?.rule.factors.get(factor ?? '')?.size ?? 1;
      if (weighted?.row)
        found.push({
          node,
          table: node.inputs[weighted.operand] ?? '',
          vocabulary: size(weighted.row),
          hidden: size(weighted.column),
          rows: weighted.row,
        });
    }
    const only = node.inputs.filter((name) => name !== null && !weights.has(name));
    // Token numbers may be reshaped, converted or clipped on their way.
    const passesOn = entry?.family === 'view' || entry?.family === 'elementwise';
    if (passesOn && only.length === 1 && given.has(only[0] ?? ''))
      for (const output of node.outputs) if (output !== null) given.add(output);
  }
  return found.reduce<WordEmbedding | null>(
    (largest, one) => (largest === null || one.vocabulary > largest.vocabulary ? one : largest),
    null,
  );
}
