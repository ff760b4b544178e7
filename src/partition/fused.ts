/**
 * @file What a recognised block costs as one kernel. Its operators stay single in the sharded graph, since that is what every
 * target can run; those between two communications could be one kernel, which reads what enters, writes what leaves and
 * keeps the rest to itself (an attention's scores; FlashAttention, Dao et al. 2022).
 */
import { byteLength } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import type { Fragment, FragmentNode } from './fragment.js';

type Operator = Extract<FragmentNode, { kind: 'compute' }>;

/** Notes on the fragment's nodes from `first` on, a block's, what they cost when fused. `results` leave the block. */
export function markFused(fragment: Fragment, first: number, results: readonly (string | null)[]): void {
  const nodes = fragment.nodes.slice(first);
  const kernels: Operator[][] = [[]];
  for (const node of nodes) {
    if (node.kind === 'communicate') kernels.push([]);
    else kernels.at(-1)?.push(node);
  }
  const readers = new Map<string, Set<FragmentNode>>();
  for (const node of nodes) {
    for (const name of node.kind === 'compute' ? node.inputs : [node.input])
      if (name !== null) readers.set(name, (readers.get(name) ?? new Set()).add(node));
  }
  const leaves = new Set(results);
  const marked = new Map<FragmentNode, FragmentNode>();
  for (const kernel of kernels) {
    const members = new Set<FragmentNode>(kernel);
    const outside = (name: string) =>
      leaves.has(name) || [...(readers.get(name) ?? [])].some((reader) => !members.has(reader));
    const seen = new Set(kernel.flatMap((node) => node.outputs));
    const heaviest = kernel.reduce<Operator | undefined>(
      (best, node) => (best && best.flops >= node.flops ? best : node),
      undefined,
    );
    for (const node of kernel) {
      const read = node.inputs.filter((name): name is string => name !== null && !seen.has(name));
      for (const name of read) seen.add(name);
      const written = node.outputs.filter((name): name is string => name !== null && outside(name));
      const bytes = [...read, ...written].reduce((sum, name) => sum + bytesOf(fragment, name), 0);
      marked.set(node, { ...node, fused: { bytes, launches: node === heaviest } });
      for (const name of node.outputs) {
        if (name !== null && !outside(name)) fragment.tensors.set(name, { ...fragment.get(name), inside: true });
      }
    }
  }
  fragment.nodes.splice(first, nodes.length, ...nodes.map((node) => marked.get(node) ?? node));
}

function bytesOf(fragment: Fragment, name: string): number {
  const { dtype, localShape } = fragment.get(name);
  return byteLength(dtype, elementCount(localShape));
}
