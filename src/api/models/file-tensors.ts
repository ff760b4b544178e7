/**
 * @file Shards of weights in a sharded graph, with the tensors of the file that they belong to.
 */
import { type FileTensor, fileTensorOf, type Graph } from '../../ir/graph.js';
import type { ShardedGraph } from '../../partition/sharded-graph.js';

/** By sharded tensor. Tensors that are unchanged from the file, and tensors that are not weights, are left out. */
export function fileTensors(graph: Graph, { weights, inputs }: ShardedGraph): ReadonlyMap<string, FileTensor> {
  const sources = [
    ...weights.map(({ tensor, weight }) => [tensor, weight] as const),
    ...inputs.map(({ tensor, input }) => [tensor, input] as const),
  ];
  return new Map(
    sources.flatMap(([tensor, source]) => {
      const file = fileTensorOf(graph, source);
      return file ? [[tensor, file] as const] : [];
    }),
  );
}
