/**
 * @file The part of an operator's local nodes in the operator's kernel (kernels.ts). Nodes stay single in the sharded graph,
 * which every target can run; those between two communications could be one kernel, which reads its inputs, writes its
 * outputs and does not write intermediates (an attention's scores; FlashAttention, Dao et al. 2022).
 */
import { byteLength } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import { appendTo } from '../ir/group-by.js';
import type { Operator } from '../ir/operator.js';
import type { Fragment, FragmentComputeNode, FragmentNode } from './fragment.js';
import { isMatmul, type KernelPart, largestMatmul } from './kernels.js';
import { type FusedWork, readsOf, resultsOf } from './sharded-graph.js';

/** Marks a lowered operator's nodes with their part of its kernel. Inside a fused region no tensor takes memory. */
export function markFused(fragment: Fragment, operator: Operator, part: KernelPart): void {
  const readers = new Map<string, Set<FragmentNode>>();
  for (const node of fragment.nodes) {
    for (const name of readsOf(node)) readers.set(name, (readers.get(name) ?? new Set()).add(node));
  }
  const segments = segmentsOf(fragment, readers);
  const inner = new Set([
    ...fragment.inputs.filter((_, index) => part.inputs[index]),
    ...fragment.outputs.filter((_, index) => part.outputs[index]),
  ]);
  const marked = new Map<FragmentNode, FragmentNode>();
  const matmuls = segments.filter((nodes) => nodes.some(isMatmul));
  for (const nodes of segments) {
    const members = new Set<FragmentNode>(nodes);
    const leaves = (name: string) =>
      fragment.outputs.includes(name) || [...(readers.get(name) ?? [])].some((reader) => !members.has(reader));
    const seen = new Set<string | null>(nodes.flatMap(({ outputs }) => outputs));
    const mostExpensive = mostExpensiveOf(nodes);
    const isWhole = part.attention !== undefined && (matmuls.length === 0 || matmuls[0] === nodes);
    const attention =
      part.attention && isWhole && matmuls.length < 2
        ? localAttention(part.attention, operator, fragment, nodes)
        : undefined;
    let moved = 0;
    for (const node of nodes) {
      const read = node.inputs.filter((name): name is string => name !== null && !seen.has(name));
      for (const name of read) seen.add(name);
      const written = node.outputs.filter((name): name is string => name !== null && leaves(name));
      const outer = [...read, ...written].filter((name) => !inner.has(name));
      const own = outer.reduce((sum, name) => sum + bytesOf(fragment, name), 0);
      // A lookup reads only rows of its table, a view reads nothing; inside a region a view is where a tensor enters.
      const bytes = nodes.length === 1 ? Math.min(node.bytes, own) : own;
      moved += bytes;
      marked.set(node, {
        ...node,
        fused: fusedWork(node, part, { bytes, isMostExpensive: node === mostExpensive, attention }),
      });
      if (!operator.body) continue;
      for (const name of node.outputs) {
        if (name !== null && !leaves(name)) fragment.tensors.set(name, { ...fragment.get(name), inside: true });
      }
    }
    // All bytes that an attention reads and writes count for its heaviest operator.
    const standing = mostExpensive && marked.get(mostExpensive);
    if (attention && mostExpensive && standing?.kind === 'compute' && standing.fused)
      marked.set(mostExpensive, { ...standing, fused: { ...standing.fused, bytes: moved } });
  }
  fragment.nodes = fragment.nodes.map((node) => marked.get(node) ?? node);
}

/**
 * The operators between communications, grouped by the number of consecutive communications before them. An operator that may run
 * later runs with its readers, unless its operand takes more memory than its result: a sum over keys runs with its operand.
 */
function segmentsOf(
  fragment: Fragment,
  readers: ReadonlyMap<string, ReadonlySet<FragmentNode>>,
): readonly (readonly FragmentComputeNode[])[] {
  const { nodes } = fragment;
  const behind = new Map<string, number>();
  const levels = new Map<FragmentNode, number>();
  for (const node of nodes) {
    const level = Math.max(0, ...readsOf(node).map((name) => behind.get(name) ?? 0));
    levels.set(node, level);
    for (const name of resultsOf(node)) behind.set(name, node.kind === 'communicate' ? level + 1 : level);
  }
  for (const node of [...nodes].reverse()) {
    if (node.kind === 'communicate') continue;
    const own = levels.get(node) ?? 0;
    const later = resultsOf(node).map((name) =>
      fragment.outputs.includes(name)
        ? own
        : Math.min(...[...(readers.get(name) ?? [])].map((reader) => levels.get(reader) ?? own)),
    );
    const latest = Math.min(...later);
    const bytes = (names: readonly string[]) => names.reduce((sum, name) => sum + bytesOf(fragment, name), 0);
    const isReduced = bytes(resultsOf(node)) < Math.max(0, ...readsOf(node).map((name) => bytes([name])));
    if (!isMatmul(node) && !isReduced && Number.isFinite(latest)) levels.set(node, Math.max(own, latest));
  }
  const segments = new Map<number, FragmentComputeNode[]>();
  for (const node of nodes) {
    if (node.kind === 'communicate') continue;
    const level = levels.get(node) ?? 0;
    appendTo(segments, level, node);
  }
  return [...segments.values()];
}

function fusedWork(
  node: FragmentComputeNode,
  { kind, launches, attention: whole }: KernelPart,
  own: { readonly bytes: number; readonly isMostExpensive: boolean; readonly attention: FusedWork['attention'] },
): FusedWork {
  const launched = launches && own.isMostExpensive;
  if (kind === 'free') return { kind, bytes: 0, launches: false };
  if (whole && own.attention) {
    return own.isMostExpensive
      ? { kind: 'attention', bytes: own.bytes, launches: launched, attention: own.attention }
      : { kind: 'free', bytes: 0, launches: false };
  }
  const { bytes } = own;
  // An attention whose matmuls are separated by a collective runs as its separate operators.
  if (isMatmul(node)) return { kind: 'matmul', bytes: node.bytes, launches: true };
  return { kind: kind === 'update' ? kind : 'memory', bytes, launches: launched };
}

function mostExpensiveOf(nodes: readonly FragmentComputeNode[]): FragmentComputeNode | undefined {
  const matmuls = nodes.filter(isMatmul);
  return (matmuls.length > 0 ? matmuls : nodes).reduce<FragmentComputeNode | undefined>(
    (best, node) => (best && best.flops >= node.flops ? best : node),
    undefined,
  );
}

/**
 * One rank's share of an attention: of its samples and heads, and of its queries and keys, which the first matmul has. Queries
 * and keys count apart: under a causal mask some ranks see more than half of their pairs. A single operator has them whole.
 */
function localAttention(
  whole: NonNullable<FusedWork['attention']>,
  operator: Operator,
  fragment: Fragment,
  nodes: readonly FragmentComputeNode[],
): NonNullable<FusedWork['attention']> {
  const matmuls = nodes.filter(isMatmul);
  const flops = Math.max(0, ...(matmuls.length > 0 ? matmuls : nodes).map((node) => node.flops));
  const scores = matmuls[0]?.outputs[0];
  const [keys = whole.keys, queries = whole.queries] = scores ? fragment.get(scores).localShape.toReversed() : [];
  const share = flops / Math.max(1, largestMatmul(operator));
  return { ...whole, queries, keys, batch: (whole.batch * share * whole.queries * whole.keys) / (queries * keys) };
}

function bytesOf(fragment: Fragment, name: string): number {
  const { dtype, localShape } = fragment.get(name);
  return byteLength(dtype, elementCount(localShape));
}
