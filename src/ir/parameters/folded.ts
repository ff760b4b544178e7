/**
 * @file Parameters of the file that import has folded away: a position table read at fixed indices, a token expanded over
 * the batch. They are in no weight of the graph, so they cannot be trained.
 */
import { isFloating } from '../dtype.js';
import type { Graph } from '../graph.js';
import { elementCount } from '../graph.js';
import { type Readers, readersOf } from '../makers-and-readers.js';
import type { OnnxModel, SourceNode } from '../onnx/model.js';

export interface FoldedParameter {
  readonly name: string;
  readonly elements: number;
  /** The constant of the graph that its value went into; null where no name in the graph shows it. */
  readonly into: string | null;
}

/** Initializers that the exporter calls parameters, that operators read, and that the graph does not have any more. */
export function foldedParameters(
  model: OnnxModel,
  nodes: readonly SourceNode[],
  graph: Graph,
): readonly FoldedParameter[] {
  const gone = [...model.graph.initializers].filter(
    ([name, { dtype }]) => model.kinds.get(name) === 'parameter' && isFloating(dtype) && !graph.weights.has(name),
  );
  if (gone.length === 0) return [];
  const readers = readersOf(nodes);
  return gone.flatMap(([name, { shape }]) => {
    const heir = readers.has(name) ? heirOf(name, readers, graph) : undefined;
    // A parameter that became part of another (stacked gates of a recurrence) is still there.
    if (heir === undefined || (heir !== null && graph.weights.get(heir)?.role !== 'constant')) return [];
    return [{ name, elements: elementCount(shape), into: heir }];
  });
}

/** The most tensors that are followed from one parameter: a folded parameter is folded after few operators. */
const TRAIL = 1000;

/** The first weight of the graph that is made of `name`; null where its trail ends at a computed tensor. */
function heirOf(name: string, readers: Readers<SourceNode>, graph: Graph): string | null {
  const seen = new Set([name]);
  for (const tensor of seen) {
    if (seen.size > TRAIL) return null;
    for (const node of readers.get(tensor) ?? []) {
      for (const output of node.outputs) {
        if (output === null) continue;
        if (graph.weights.has(output)) return output;
        if (!graph.tensors.has(output)) seen.add(output);
      }
    }
  }
  return null;
}
