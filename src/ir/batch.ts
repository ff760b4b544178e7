/**
 * @file Where the batch is: it begins at dimensions of the inputs.
 */
import { type DimensionMarks, type FollowOptions, followDimensions } from './follow-dimensions.js';
import { type BatchDimension, type Graph, typeOf } from './graph.js';

/** The batch dimensions of the inputs: dimension 0 of those whose first size is that of the first input that has one. */
export function batchDimensions(graph: Graph): readonly BatchDimension[] {
  const ranked = graph.inputs.filter((input) => typeOf(graph, input).shape.length > 0);
  const [first] = ranked;
  if (first === undefined) return [];
  const size = typeOf(graph, first).shape[0];
  return ranked.filter((input) => typeOf(graph, input).shape[0] === size).map((input) => ({ input, axis: 0 }));
}

/** The dimensions where the graph states that its batch begins; `batchDimensions` if it states none. */
export function batchStarts(graph: Graph): readonly BatchDimension[] {
  return graph.batch.length > 0 ? graph.batch : batchDimensions(graph);
}

/** Follows the batch through the graph. */
export function followBatch(graph: Graph, options?: FollowOptions): DimensionMarks {
  return followDimensions(graph, batchStarts(graph), options);
}
