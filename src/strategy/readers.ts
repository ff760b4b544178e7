/**
 * @file Readers of tensors, and their names in plan.json: `operator:operand`, or `output` for a graph output.
 */
import type { Graph } from '../ir/graph.js';
import type { TensorReader } from '../partition/assignment.js';

/** Readers of every input and computed tensor, in graph order; weights have none. */
export function readersByTensor(graph: Graph): ReadonlyMap<string, readonly TensorReader[]> {
  const readers = new Map<string, TensorReader[]>();
  const add = (tensor: string, reader: TensorReader) => {
    if (graph.weights.has(tensor)) return;
    const list = readers.get(tensor);
    if (list) list.push(reader);
    else readers.set(tensor, [reader]);
  };
  for (const node of graph.nodes) {
    node.inputs.forEach((tensor, operand) => {
      if (tensor !== null) add(tensor, { kind: 'operator', name: node.name, operand });
    });
  }
  for (const output of graph.outputs) add(output, { kind: 'output', name: output, operand: 0 });
  return readers;
}

/** A reader's name in plan.json. */
export function readerText(reader: TensorReader): string {
  return reader.kind === 'output' ? 'output' : `${reader.name}:${reader.operand}`;
}
