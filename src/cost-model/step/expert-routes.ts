/**
 * @file Dispatch of tokens to experts and back, read off the graph. A matmul with a weight per expert, [experts, depth, columns],
 * receives tokens if no other such matmul makes its operand; it sends them back if no other reads its result. Matmuls between
 * them, and a second one of the same operand (a gate beside its values), move nothing:
 *
 *     tokens [t, h] ─Gather→ [e, r, h] ─up, gate→ [e, r, f] ─down→ [e, r, h] ─Scatter→ [t, h]       e · r / t experts per token
 */
import { isFloating } from '../../ir/dtype.js';
import type { GraphIndex } from '../../ir/fused-regions/matching.js';
import { elementCount, type Graph, type Node, typeOf } from '../../ir/graph.js';
import { operatorFamily } from '../../ir/ops/index.js';

export interface ExpertRoutes {
  /** By group of a matmul: elements of each of its rows that come from other ranks, and that go to them. */
  readonly routed: ReadonlyMap<string, number>;
  /** Groups that score experts for each token, and that work on the results of their matmuls. */
  readonly around: ReadonlySet<string>;
  /** Weights with a matrix for each expert. */
  readonly weights: ReadonlySet<string>;
  /** Experts per token; 1 without experts. */
  readonly chosen: number;
}

/** Routes of every matmul with a weight per expert in an unsharded graph. */
export function expertRoutes(index: GraphIndex): ExpertRoutes {
  const { graph } = index;
  const stacks = new Map(
    graph.nodes.flatMap((node) => {
      const stack = node.phase === 'forward' ? stackOf(index, node) : null;
      return stack ? [[node, stack] as const] : [];
    }),
  );
  const routed = new Map<string, number>();
  const around = new Set<string>();
  if (stacks.size === 0) return { routed, around, weights: new Set(), chosen: 1 };
  const known = new Set(stacks.keys());
  const received = new Set<string>();
  let chosen = 1;
  for (const [node, { data }] of stacks) {
    const [result] = node.outputs;
    if (!result) continue;
    const shape = typeOf(graph, result).shape;
    const rows = elementCount(shape.slice(0, -1));
    const isOfStack = (name: string) => {
      const own = typeOf(graph, name).shape;
      return own.length === shape.length && own.slice(0, -1).every((size, axis) => size === shape[axis]);
    };
    let width = 0;
    const origin = originOf(data, index, known, isOfStack);
    if (origin !== null && !received.has(origin)) {
      received.add(origin);
      width += lastOf(graph, data);
      chosen = Math.max(chosen, rows / tokensOf(origin, index));
    }
    const after = workedOn(result, index, known, isOfStack);
    if (!after.isInside) width += lastOf(graph, result);
    for (const group of after.groups) around.add(group);
    routed.set(node.group, width);
  }
  const counts = new Set([...stacks.values()].map(({ count }) => count));
  for (const node of graph.nodes) if (isRouter(node, graph, counts)) around.add(node.group);
  const weights = new Set([...stacks.values()].map(({ weight }) => weight));
  return { routed, around, weights, chosen };
}

/** The operands of a matmul with a weight per expert. */
interface ExpertMatmul {
  readonly data: string;
  readonly weight: string;
  readonly count: number;
}

/** Null where a node is not such a matmul. */
function stackOf({ graph, makers }: GraphIndex, node: Node): ExpertMatmul | null {
  if (operatorFamily(node) !== 'contraction') return null;
  const [data, operand] = node.inputs;
  if (!data || !operand) return null;
  // Files may store each expert's matrix transposed: [experts, columns, rows].
  const maker = makers.get(operand);
  const isTurned = maker?.op === 'Transpose' && String(maker.attributes['perm']) === '0,2,1';
  const weight = (isTurned ? maker.inputs[0] : operand) ?? '';
  const stacked = graph.weights.get(weight)?.shape ?? [];
  const [count = 1] = stacked;
  return stacked.length === 3 && count > 1 ? { data, weight, count } : null;
}

/** Whether a matmul gives a score for each of so many experts. */
function isRouter({ phase, op, domain, inputs, outputs }: Node, graph: Graph, counts: ReadonlySet<unknown>): boolean {
  const [result] = outputs;
  if (phase !== 'forward' || !result || operatorFamily({ op, domain }) !== 'contraction') return false;
  const weight = graph.weights.get(inputs[1] ?? '');
  return weight?.shape.length === 2 && counts.has(lastOf(graph, result));
}

/** The tensor of arriving tokens, as far back as each expert has its own; null where another expert matmul makes it. */
function originOf(
  data: string,
  { makers }: GraphIndex,
  matmuls: ReadonlySet<Node>,
  isOfStack: (name: string) => boolean,
): string | null {
  let origin = data;
  const seen = new Set([data]);
  for (const tensor of seen) {
    const maker = makers.get(tensor);
    if (maker && matmuls.has(maker)) return null;
    const before = (maker?.inputs ?? []).filter((name): name is string => name !== null && isOfStack(name));
    if (before.length === 0) origin = tensor;
    for (const name of before) seen.add(name);
  }
  return origin;
}

/**
 * Groups that work on the result of an expert's matmul while each expert has its own, and whether another matmul reads it there.
 */
function workedOn(
  result: string,
  { readers }: GraphIndex,
  matmuls: ReadonlySet<Node>,
  isOfStack: (name: string) => boolean,
): { readonly groups: readonly string[]; readonly isInside: boolean } {
  const groups: string[] = [];
  let isInside = false;
  const seen = new Set([result]);
  for (const tensor of seen)
    for (const reader of readers.get(tensor) ?? []) {
      if (reader.phase !== 'forward') continue;
      isInside ||= matmuls.has(reader);
      const given = reader.outputs.filter((output): output is string => output !== null && isOfStack(output));
      if (given.length === 0 || matmuls.has(reader)) continue;
      groups.push(reader.group);
      for (const output of given) seen.add(output);
    }
  return { groups, isInside };
}

/** Tokens that experts choose from, or that choose experts: rows of the tensor that `origin` was looked up in. */
function tokensOf(origin: string, index: GraphIndex): number {
  const { graph, makers } = index;
  const width = lastOf(graph, origin);
  const rowsOf = (name: string) => elementCount(typeOf(graph, name).shape) / width;
  const maker = makers.get(origin);
  const source = maker?.inputs.find(
    (name) => name !== null && isFloating(typeOf(graph, name).dtype) && lastOf(graph, name) === width,
  );
  if (!maker || !source) return rowsOf(origin);
  // Views and transpositions keep all rows; a result of a look-up has as many rows as tokens are chosen.
  const keepsRows = rowsOf(source) === rowsOf(origin) && operatorFamily(maker) === 'view';
  return keepsRows ? tokensOf(source, index) : rowsOf(source);
}

function lastOf(graph: Graph, tensor: string): number {
  return typeOf(graph, tensor).shape.at(-1) ?? 1;
}
