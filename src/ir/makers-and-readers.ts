/**
 * @file Operators by the tensors that they make, and by those that they read: of a graph, of a file or of a sharded graph, whose
 * nodes state their operands and results in another way.
 */
import { appendTo } from './group-by.js';
import type { TensorNames } from './needed.js';

/** By tensor; null, which stands for operands and results that are not there, has no value. */
interface ByTensor<Value> extends ReadonlyMap<string, Value> {
  get(tensor: string | null): Value | undefined;
}

export type Makers<N> = ByTensor<N>;
export type Readers<N> = ByTensor<readonly N[]>;

/** The operator that makes each tensor. */
export function makersOf<N extends { readonly outputs: TensorNames }>(nodes: Iterable<N>): Makers<N>;
export function makersOf<N>(nodes: Iterable<N>, resultsOf: (node: N) => TensorNames): Makers<N>;
export function makersOf<N>(
  nodes: Iterable<N>,
  resultsOf = (node: N): TensorNames => (node as { readonly outputs: TensorNames }).outputs,
): Makers<N> {
  const makers = new Map<string, N>();
  for (const node of nodes) for (const name of resultsOf(node)) if (name !== null) makers.set(name, node);
  return makers;
}

/** The operators that read each tensor, in their order: each once, however many of its operands are the tensor. */
export function readersOf<N extends { readonly inputs: TensorNames }>(nodes: Iterable<N>): Readers<N>;
export function readersOf<N>(nodes: Iterable<N>, readsOf: (node: N) => TensorNames): Readers<N>;
export function readersOf<N>(
  nodes: Iterable<N>,
  readsOf = (node: N): TensorNames => (node as { readonly inputs: TensorNames }).inputs,
): Readers<N> {
  const readers = new Map<string, N[]>();
  for (const node of nodes) for (const name of new Set(readsOf(node))) if (name !== null) appendTo(readers, name, node);
  return readers;
}
