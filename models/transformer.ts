/**
 * @file Shared by the transformer families: linear layers, heads, the causal mask, attention over grouped key heads.
 */
import { floats, type GraphBuilder } from './builder.js';

/** x · W (+ bias): [batch, sequence, inputs] → [batch, sequence, outputs]. */
export function linear(
  builder: GraphBuilder,
  name: string,
  input: string,
  outputs: number,
  { bias = false }: { readonly bias?: boolean } = {},
): string {
  return builder.within(name, () => {
    const inputs = builder.shapeOf(input).at(-1) ?? 1;
    const weight = builder.parameter('weight', [inputs, outputs], { deviation: 1 / Math.sqrt(inputs) });
    const product = builder.operator('MatMul', [input, weight]);
    if (!bias) return product;
    return builder.operator('Add', [product, builder.parameter('bias', [outputs], { deviation: 0.02 })]);
  });
}

/** [batch, sequence, heads · size] → [batch, heads, sequence, size]. */
export function splitHeads(builder: GraphBuilder, input: string, heads: number): string {
  const [batch = 1, sequence = 1, width = 1] = builder.shapeOf(input);
  const split = builder.operator('Reshape', [input], { shape: [batch, sequence, heads, width / heads], allowzero: 0 });
  return builder.operator('Transpose', [split], { perm: [0, 2, 1, 3] });
}

/** [batch, heads, sequence, size] → [batch, sequence, heads · size]. */
export function joinHeads(builder: GraphBuilder, input: string): string {
  const [batch = 1, heads = 1, sequence = 1, size = 1] = builder.shapeOf(input);
  const turned = builder.operator('Transpose', [input], { perm: [0, 2, 1, 3] });
  return builder.operator('Reshape', [turned], { shape: [batch, sequence, heads * size], allowzero: 0 });
}

/** Each key head repeated for the query heads of its group: [batch, kv, sequence, size] → [batch, kv · group, …]. */
export function repeatHeads(builder: GraphBuilder, input: string, group: number): string {
  if (group === 1) return input;
  const [batch = 1, heads = 1, sequence = 1, size = 1] = builder.shapeOf(input);
  const apart = builder.operator('Unsqueeze', [input], { axes: [2] });
  const wide = builder.operator('Expand', [apart], { shape: [batch, heads, group, sequence, size] });
  return builder.operator('Reshape', [wide], { shape: [batch, heads * group, sequence, size], allowzero: 0 });
}

/** softmax(q · kᵀ / √size + mask) · v on [batch, heads, sequence, size]; `between` is applied to the result of softmax. */
export function attention(
  builder: GraphBuilder,
  query: string,
  key: string,
  value: string,
  mask: string,
  between: (weights: string) => string = (weights) => weights,
): string {
  const size = builder.shapeOf(query).at(-1) ?? 1;
  const turned = builder.operator('Transpose', [key], { perm: [0, 1, 3, 2] });
  const scores = builder.operator('MatMul', [query, turned]);
  const scaled = builder.operator('Mul', [scores, builder.constant('scale', floats([1 / Math.sqrt(size)]))]);
  const masked = builder.operator('Add', [scaled, mask]);
  const weights = builder.operator('Softmax', [masked], { axis: -1 });
  return builder.operator('MatMul', [between(weights), value]);
}

/** 0 where a position may be seen, a large negative number at later positions: [1, 1, sequence, sequence]. */
export function causalMask(builder: GraphBuilder, sequence: number): string {
  const rows = Array.from({ length: sequence }, (_, row) =>
    Array.from({ length: sequence }, (_, column) => (column <= row ? 0 : -1e9)),
  );
  return builder.constant('causal_mask', floats(rows.flat(), [1, 1, sequence, sequence]));
}

/** Rows of the embedding table: [batch, sequence] → [batch, sequence, width]. */
export function embedding(builder: GraphBuilder, ids: string, table: string): string {
  return builder.operator('Gather', [table, ids], { axis: 0 });
}
