/**
 * @file Which operators of a graph form one kernel, where the device's software runs several as one: decided on the unsharded
 * graph, before any search, so that every strategy of an operator is priced as the part of its kernel that it is.
 *
 *   matmuls        a kernel each; layouts that they read or make, casts behind them and sums into accumulators are part of it
 *   attention      forward one kernel, backward one
 *   update         the update of a parameter is one kernel, and makes the copy in 16 bits that matmuls read
 *   elementwise    the remaining nodes of an operator of the model, or of its gradient, are one kernel; in the forward a chain of
 *                  elementwise operators with one reader each is one; a cast belongs to the kernel that makes its operand
 *
 * A collective inside breaks a kernel (fused.ts).
 */

import { type DType, isFloating } from '../ir/dtype.js';
import { isCausalMask, masksOf } from '../ir/fused-regions/causal-mask.js';
import { type GraphIndex, indexGraph, shapeOf } from '../ir/fused-regions/matching.js';
import { elementCount, type Graph, isOfModel, type Node, passOf, typeOf } from '../ir/graph.js';
import { makersOf } from '../ir/makers-and-readers.js';
import type { Operator, OperatorFamily } from '../ir/operator.js';
import { operatorOf } from '../ir/operator-of.js';
import { isAccumulator } from '../ir/ops/accumulate.js';
import { entryOf, operatorEntry, operatorFamily, operatorRole } from '../ir/ops/index.js';
import { madeOnce, remembered } from '../ir/remembered.js';

/** The kind of kernel that an operator is part of. `free`: a kernel whose cost counts for another operator. */
export type KernelKind = 'matmul' | 'attention' | 'memory' | 'update' | 'free';

/** Attention without its projections; backward has five matmuls where forward has two. */
export interface AttentionWork {
  readonly backward: boolean;
  readonly batch: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly queries: number;
  readonly keys: number;
  /** Head size of queries and keys; `valueWidth` is that of values. */
  readonly width: number;
  readonly valueWidth: number;
  readonly causal: boolean;
  /** Keys that a query sees at most, the last ones before it; all where left out. */
  readonly window?: number;
}

/** The single kernel of an attention. */
export interface AttentionKernel extends AttentionWork {
  /** Dtype of its matmuls; operands may be cast inside. */
  readonly dtype: DType;
}

/**
 * Share of all pairs of queries and keys that attention computes: all without a mask; under a causal one the keys before each
 * query, in its window: half of all. Fewer queries than keys are the last ones, and fewer keys than queries the first ones: the
 * largest share of any rank when they are sharded.
 */
export function seenShare(work: Pick<AttentionWork, 'queries' | 'keys' | 'causal' | 'window'>): number {
  if (!work.causal) return 1;
  const [few = 1, many = 1] = [work.queries, work.keys].sort((a, b) => a - b);
  const most = Math.min(work.window ?? many, many);
  // Each of the few has one pair more than the one before it, up to `most`; the first has one more than this.
  const first = Math.min(many - few, most);
  const seen = (most ** 2 - first ** 2) / 2 + most * (few - (most - first));
  return seen / (few * many);
}

/** An operator's part of its kernel, whatever the strategy. */
export interface KernelPart {
  readonly kind: KernelKind;
  /** Per operand and per result: whether it stays inside the kernel, or another part has read it already. */
  readonly inputs: readonly boolean[];
  readonly outputs: readonly boolean[];
  /** Whether the kernel's launch counts here. */
  readonly launches: boolean;
  /** For the operator that an attention's cost counts for: the whole attention. */
  readonly attention?: AttentionKernel;
}

/** An operator's part of its kernel. */
export function kernelPartOf(graph: Graph, node: Node): KernelPart | undefined {
  return partsOf(graph).get(node);
}

const partsOf = remembered(kernelParts);

/** The group of each node's forward operator; a sum of several readers' gradients is a group of its own. */
export function forwardGroups(graph: Graph): ReadonlyMap<string, string> {
  const forward = new Map(graph.nodes.flatMap((node) => (isOfModel(node.phase) ? [[node.name, node.group]] : [])));
  const sums = gradientSums(graph);
  return new Map(
    graph.nodes.map((node) => {
      const of = node.forward === null || sums.has(node) ? undefined : forward.get(node.forward);
      return [node.name, of ?? node.group];
    }),
  );
}

/** Operators that add up the gradients that several readers of a tensor make. */
export const gradientSums = remembered((graph: Graph): ReadonlySet<Node> => {
  const makers = makersOf(graph.nodes);
  const sums = new Set<Node>();
  const isSum = (node: Node) =>
    node.inputs.length > 1 &&
    familyOf(node) === 'elementwise' &&
    node.inputs
      .map((input) => makers.get(input))
      .every((maker) => maker?.forward && (maker.forward !== node.forward || sums.has(maker)));
  for (const node of graph.nodes) if (isSum(node)) sums.add(node);
  return sums;
});

/** FLOP of the largest matmul of an operator, on its shapes. */
export function largestMatmul(operator: Operator): number {
  const { body } = operator;
  if (!body) return operatorEntry(operator).work(operator).flops;
  return Math.max(0, ...body.nodes.filter(isMatmul).map((node) => largestMatmul(operatorOf(body, node))));
}

/** Whether an operator is one matmul, or a few for each result: operators that run on matrix units. */
export function isMatmul(node: Pick<Node, 'op' | 'domain'>): boolean {
  return MATMUL_FAMILIES.has(familyOf(node));
}

const MATMUL_FAMILIES: ReadonlySet<OperatorFamily> = new Set(['contraction', 'convolution', 'recurrent']);

function familyOf(node: Pick<Node, 'op' | 'domain'>): OperatorFamily {
  return operatorFamily(node) ?? 'other';
}

function kernelParts(graph: Graph): ReadonlyMap<Node, KernelPart> {
  const index = indexGraph(graph);
  const groups = forwardGroups(graph);
  const heads = new Map<string, Node>();
  for (const node of graph.nodes) if (isOfModel(node.phase) && !heads.has(node.group)) heads.set(node.group, node);
  const attentions = new Map<string, Omit<AttentionKernel, 'backward'>>();
  for (const [group, head] of heads) {
    const sizes = attentionOf(index, head);
    if (sizes) attentions.set(group, sizes);
  }
  const groupOf = (node: Node) => groups.get(node.name) ?? node.group;
  const kinds = new Map<Node, KernelKind>();
  for (const node of graph.nodes)
    kinds.set(node, kindOf(index, node, heads.get(groupOf(node)), attentions.has(groupOf(node)), kinds));
  const kernels = kernelsOf(index, groupOf, heads, kinds);
  const standing = standingFor(graph.nodes, groupOf, kinds);
  const last = new Map<string, Node>();
  for (const [node, kernel] of kernels) last.set(kernel, node);
  const readBy = new Map<string, Set<string>>();
  return new Map(
    graph.nodes.map((node) => {
      const kind = kinds.get(node) as KernelKind;
      const own = kernels.get(node);
      const sizes = standing.has(node) ? attentions.get(groupOf(node)) : undefined;
      if (own === undefined) {
        const outside = { inputs: node.inputs.map(() => false), outputs: node.outputs.map(() => false) };
        const attention = sizes ? { attention: { ...sizes, backward: runsBackward(node) } } : {};
        const covered = kind === 'attention' && !sizes;
        return [
          node,
          { kind: covered ? 'free' : kind, ...outside, launches: kind === 'matmul' || !!sizes, ...attention },
        ];
      }
      const read = madeOnce(readBy, own, () => new Set<string>());
      const inputs = node.inputs.map((input) => {
        if (input === null) return false;
        const maker = index.makers.get(input);
        const isInside = read.has(input) || (maker !== undefined && kernels.get(maker) === own);
        read.add(input);
        return isInside;
      });
      const outputs = node.outputs.map(
        (output) =>
          output !== null &&
          !index.outputs.has(output) &&
          (index.readers.get(output) ?? []).every((reader) => kernels.get(reader) === own),
      );
      return [node, { kind, inputs, outputs, launches: last.get(own) === node }];
    }),
  );
}

function kindOf(
  { graph, makers, readers }: GraphIndex,
  node: Node,
  head: Node | undefined,
  isAttention: boolean,
  before: ReadonlyMap<Node, KernelKind>,
): KernelKind {
  if (node.phase === 'update') return 'update';
  const entry = entryOf(node.op, node.domain);
  if (entry?.isView || familyOf(node) === 'view' || isAccumulator(node)) return 'free';
  if (isAttention) return 'attention';
  if (isMatmul(node) && !isDepthwise(graph, node)) return 'matmul';
  const family = head ? familyOf(head) : 'elementwise';
  // Transposes and sums in the gradient of a matmul are part of the matmul kernels.
  if (head && isMatmul(head) && !isDepthwise(graph, head)) return 'free';
  if (family === 'view') return 'free';
  const results = node.outputs.flatMap((output) => (output === null ? [] : (readers.get(output) ?? [])));
  const isLast = !isOfModel(node.phase) && results.length > 0;
  if (!head && isLast && results.every((reader) => reader.phase === 'update' || isAccumulator(reader))) return 'free';
  if (!isFloatCast(graph, node)) return 'memory';
  // The update makes the cast copy of a parameter that matmuls read; a matmul makes the cast copy of its own result.
  const maker = makers.get(node.inputs[0] ?? '');
  if (!maker) return 'free';
  const made = before.get(maker);
  return made === 'memory' ? 'memory' : 'free';
}

function isFloatCast(graph: Graph, node: Node): boolean {
  const [[input], [output]] = [node.inputs, node.outputs];
  if (operatorRole(node) !== 'cast' || !input || !output) return false;
  return isFloating(typeOf(graph, input).dtype) && isFloating(typeOf(graph, output).dtype);
}

/** Whether a convolution is depthwise, one channel per group: a few multiplications per element read, not on matrix units. */
function isDepthwise(graph: Graph, { op, domain, attributes, outputs: [output] }: Node): boolean {
  const groups = Number(attributes['group'] ?? 1);
  if (operatorFamily({ op, domain }) !== 'convolution' || groups === 1 || !output) return false;
  return typeOf(graph, output).shape[1] === groups;
}

/** By operator of a memory-bound or update kernel: the kernel's name. */
function kernelsOf(
  { graph, makers, readers, outputs }: GraphIndex,
  groupOf: (node: Node) => string,
  heads: ReadonlyMap<string, Node>,
  kinds: ReadonlyMap<Node, KernelKind>,
): ReadonlyMap<Node, string> {
  const joined = new Map<string, string>();
  const root = (name: string): string => {
    let found = name;
    for (let next = joined.get(found); next !== undefined; next = joined.get(found)) found = next;
    return found;
  };
  const names = new Map<Node, string>();
  for (const node of graph.nodes) {
    const kind = kinds.get(node);
    if (kind !== 'memory' && kind !== 'update') continue;
    const maker = isFloatCast(graph, node) ? makers.get(node.inputs[0] ?? '') : undefined;
    const of = maker && names.get(maker);
    // The operator that a backward kernel is the gradient of identifies the kernel; its parameter identifies an update.
    names.set(node, of ?? `${nodePass(node)} ${kind === 'update' ? node.name : groupOf(node)}`);
  }
  const isChained = (node: Node) => {
    const head = heads.get(groupOf(node));
    return head !== undefined && familyOf(head) === 'elementwise' && ['forward', 'recompute'].includes(nodePass(node));
  };
  for (const node of graph.nodes) {
    const own = names.get(node);
    if (own === undefined || !isChained(node)) continue;
    const after = new Set(
      node.outputs
        .flatMap((output) => (output === null ? [] : (readers.get(output) ?? [])))
        .filter((reader) => nodePass(reader) === nodePass(node) && names.get(reader) !== own),
    );
    const [only] = after;
    const leaves = node.outputs.some((output) => output !== null && outputs.has(output));
    if (after.size !== 1 || !only || leaves || !isChained(only)) continue;
    const [from, to] = [root(own), root(names.get(only) ?? '')];
    if (names.has(only) && from !== to) joined.set(from, to);
  }
  return new Map([...names].map(([node, name]) => [node, root(name)]));
}

function nodePass({ phase }: Node): string {
  return passOf(phase);
}

function runsBackward(node: Node): boolean {
  return nodePass(node) === 'backward';
}

/** For every attention, forward, recomputed and backward: the operator that does most of its work. */
function standingFor(
  nodes: readonly Node[],
  groupOf: (node: Node) => string,
  kinds: ReadonlyMap<Node, KernelKind>,
): ReadonlySet<Node> {
  const first = new Map<string, Node>();
  for (const node of nodes) {
    if (kinds.get(node) !== 'attention') continue;
    const key = `${nodePass(node)} ${groupOf(node)}`;
    const known = first.get(key);
    if (!known || (!known.body && !isMatmul(known) && (node.body || isMatmul(node)))) first.set(key, node);
  }
  return new Set(first.values());
}

/** Sizes of an attention that devices have one kernel for; null for other operators. */
function attentionOf(index: GraphIndex, head: Node): Omit<AttentionKernel, 'backward'> | null {
  if (familyOf(head) !== 'attention') return null;
  return head.body ? sizesOfRegion(index, head, head.body) : sizesOfOperator(index, head);
}

/** A recognised attention as the one kernel that devices have for it, whatever its exporter wrote. */
function sizesOfRegion(index: GraphIndex, head: Node, body: Graph): Omit<AttentionKernel, 'backward'> | null {
  const matmuls = body.nodes.filter((node) => familyOf(node) === 'contraction');
  const [scores, values, ...others] = matmuls.map((node) => {
    const [output] = node.outputs;
    return { node, shape: output ? typeOf(body, output).shape : [] };
  });
  if (!scores || !values || others.length > 0 || scores.shape.length < 3 || values.shape.length < 3) return null;
  const [queries = 1, keys = 1] = scores.shape.slice(-2);
  const [heads = 1, ...batch] = scores.shape.slice(0, -2).reverse();
  return {
    batch: elementCount(batch),
    heads,
    keyHeads: Math.max(1, Math.round(heads * headsShared(index, head, queries, keys))),
    queries,
    keys,
    valueWidth: values.shape.at(-1) ?? 1,
    width: largestMatmul(operatorOf(body, scores.node)) / (2 * elementCount(scores.shape)),
    causal: masksOf(head).some((mask) => isCausalMask(index, mask)),
    dtype: firstType(body, scores.node),
  };
}

/** Key heads per query head: 1, or less where several query heads share one. Dimensions may be in any order. */
function headsShared(index: GraphIndex, { inputs }: Node, queries: number, keys: number): number {
  const [query, key] = inputs.map((name) => (name === null ? 0 : elementCount(shapeOf(index, name))));
  return query && key ? key / keys / (query / queries) : 1;
}

function sizesOfOperator(index: GraphIndex, node: Node): Omit<AttentionKernel, 'backward'> | null {
  const [query, key, value] = node.inputs.map((name) => (name === null ? [] : shapeOf(index, name)));
  const [output] = node.outputs;
  if (node.inputs.filter((name) => name !== null).length < 3 || !output) return null;
  // Attention itself sums over keys; rotary embedding, of the same family, is elementwise.
  if (largestMatmul(operatorOf(index.graph, node)) <= 8 * elementCount(shapeOf(index, output))) return null;
  const heads = Number(node.attributes['q_num_heads'] ?? node.attributes['num_heads'] ?? query?.[1] ?? 1);
  const keyHeads = Number(node.attributes['kv_num_heads'] ?? key?.[1] ?? 1);
  const flat = query?.length === 3;
  // An operator with the attribute for windows is causal, whether it uses a window or not.
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
    dtype: firstType(index.graph, node),
  };
}

function firstType(graph: Graph, { inputs: [input] }: Node): DType {
  return input ? typeOf(graph, input).dtype : 'float32';
}
