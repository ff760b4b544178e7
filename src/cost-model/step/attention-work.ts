/**
 * @file Attention as the one kernel that devices have for it: its sizes on one rank, of an operator or of what a recognised block
 * was lowered to.
 */
import { isCausalMask } from '../../ir/blocks/causal-mask.js';
import { shapeOf } from '../../ir/blocks/matching.js';
import { elementCount } from '../../ir/graph.js';
import { entryOf } from '../../ir/ops/index.js';
import type { ComputeNode } from '../../partition/sharded-graph.js';
import type { StepGraph } from './step-graph.js';
import type { Work } from './work.js';

type AttentionSizes = Omit<Extract<Work, { readonly kind: 'attention' }>, 'kind' | 'backward'>;

/** Sizes of a group's attention; null of a group that is no attention, or is one that runs as its parts. */
export function attentionSizes(graph: StepGraph, group: string): AttentionSizes | null {
  if (graph.family(group) !== 'attention') return null;
  if (graph.heads.get(group)?.body) {
    const products = productsOfBlock(graph, group);
    return products && sizesOfBlock(graph, group, products);
  }
  const [node] = graph.forwardOf(group);
  return node && makesScores(graph, group) ? sizesOfOperator(graph, node) : null;
}

/** The two products of a recognised attention, of queries and keys and of scores and values; null of anything else. */
function productsOfBlock(graph: StepGraph, group: string): readonly [scores: ComputeNode, values: ComputeNode] | null {
  const products = graph.forwardOf(group).filter(({ op, domain }) => entryOf(op, domain)?.family === 'contraction');
  const [scores, values, ...others] = products;
  if (!scores || !values || others.length > 0) return null;
  return [scores, values].every(({ outputs: [output] }) => output && graph.tensor(output).localShape.length >= 3)
    ? [scores, values]
    : null;
}

/** A recognised attention as the one kernel that devices have for it, whatever its exporter wrote. */
function sizesOfBlock(
  graph: StepGraph,
  group: string,
  [scores, values]: readonly [ComputeNode, ComputeNode],
): AttentionSizes {
  const blockOf = ({ outputs: [output] }: ComputeNode) => (output ? graph.tensor(output).localShape : []);
  const [queries = 1, keys = 1] = blockOf(scores).slice(-2);
  const [heads = 1, ...batch] = blockOf(scores).slice(0, -2).reverse();
  return {
    batch: elementCount(batch),
    heads,
    keyHeads: Math.max(1, Math.round(heads * headsShared(graph, group, scores))),
    queries,
    keys,
    valueWidth: blockOf(values).at(-1) ?? 1,
    width: scores.flops / (2 * elementCount(blockOf(scores))),
    causal: isCausalMask(graph.index, graph.heads.get(group)?.inputs[3]),
  };
}

/** Heads of keys for one of queries: 1, or less where several share one. Dimensions may lie in any order. */
function headsShared(graph: StepGraph, group: string, { outputs: [output] }: ComputeNode): number {
  const [query, key] = (graph.heads.get(group)?.inputs ?? []).map((name) =>
    name === null ? 0 : elementCount(shapeOf(graph.index, name)),
  );
  const [queries = 1, keys = 1] = output ? graph.tensor(output).shape.slice(-2) : [];
  return query && key ? key / keys / (query / queries) : 1;
}

function sizesOfOperator(graph: StepGraph, node: ComputeNode): AttentionSizes {
  const [query, key, value] = node.inputs.map((name) => (name === null ? [] : graph.tensor(name).localShape));
  const heads = Number(node.attributes['q_num_heads'] ?? node.attributes['num_heads'] ?? query?.[1] ?? 1);
  const keyHeads = Number(node.attributes['kv_num_heads'] ?? key?.[1] ?? 1);
  const flat = query?.length === 3;
  // What has windows is causal, windows or not.
  const window = node.attributes['local_window_size'];
  const seen = Number(window ?? -1);
  return {
    batch: query?.[0] ?? 1,
    heads,
    keyHeads,
    queries: query?.[flat ? 1 : 2] ?? 1,
    keys: key?.[flat ? 1 : 2] ?? 1,
    valueWidth: flat ? (value?.[2] ?? 1) / keyHeads : (value?.[3] ?? 1),
    width: flat ? (query?.[2] ?? 1) / heads : (query?.[3] ?? 1),
    causal: window !== undefined || Number(node.attributes['is_causal'] ?? 0) !== 0,
    ...(seen > 0 ? { window: seen } : {}),
  };
}

/** Attention proper makes sums over keys; rotary embedding, of the same family, works element by element. */
function makesScores(graph: StepGraph, group: string): boolean {
  const operands = graph.heads.get(group)?.inputs.filter((name) => name !== null) ?? [];
  const [node] = graph.forwardOf(group);
  const [output] = node?.outputs ?? [];
  if (operands.length < 3 || !node || output === undefined || output === null) return false;
  return node.flops / elementCount(graph.tensor(output).localShape) > 8;
}
