/**
 * @file Rows of tokens as samples: expert capacity and load balance are per sample, so the same at every degree of parallelism.
 */
import { followBatch } from '../batch.js';
import type { DimensionMarks } from '../follow-dimensions.js';
import { elementCount, type Graph, typeOf } from '../graph.js';

export interface Samples {
  readonly groups: number;
  /** Tokens of each. */
  readonly tokens: number;
}

/** A tensor's rows (all dimensions but the last) as samples; null where the batch is not the outermost part of them. */
export type SamplesOf = (tensor: string) => Samples | null;

export function samplesIn(graph: Graph): SamplesOf {
  const batch: DimensionMarks = followBatch(graph, { digits: true });
  const groups = batch.size ?? 1;
  return (tensor) => {
    const { shape } = typeOf(graph, tensor);
    const rows = elementCount(shape.slice(0, -1));
    const first = shape.findIndex((size) => size > 1);
    const mark = batch.dimensionMarks(tensor)[first];
    const isOutermost = mark?.size === groups && shape[first] === groups * mark.minor;
    return groups === 1 || (isOutermost && rows % groups === 0) ? { groups, tokens: rows / groups } : null;
  };
}
