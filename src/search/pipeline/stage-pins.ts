/**
 * @file Pins of a pipeline whose stages have different meshes: each is resolved on the mesh of its stage.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { meshOfOperators, type PipelineLayout } from '../../partition/lower-stages.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { Pin } from '../../sharding-propagation/pin.js';

/**
 * Pins of each stage's operators, and of the tensors that they make or are the first to read. Where all stages have one mesh,
 * the pins on that mesh.
 * @param mesh the common mesh of all stages
 */
export function stagePins(
  graph: Graph,
  layout: PipelineLayout | undefined,
  mesh: Mesh,
  pinsOn: (mesh: Mesh) => readonly Pin[],
): readonly Pin[] {
  const meshOf = layout && meshOfOperators(graph, layout);
  if (!meshOf) return pinsOn(mesh);
  const ofNode = new Map(graph.nodes.map((node) => [node.name, meshOf(node)]));
  const ofTensor = meshesOfTensors(graph, meshOf);
  const meshIn = (pin: Pin) => (pin.kind === 'tensor' ? ofTensor.get(pin.tensor) : ofNode.get(pin.node));
  return [...new Set(layout.meshes?.stages)].flatMap((own) => pinsOn(own).filter((pin) => meshIn(pin) === own));
}

/** The mesh of the first operator that reads or makes each tensor. */
export function meshesOfTensors({ nodes }: Graph, meshOf: (node: Node) => Mesh): ReadonlyMap<string, Mesh> {
  const meshes = new Map<string, Mesh>();
  for (const node of nodes)
    for (const name of [...node.inputs, ...node.outputs])
      if (name !== null && !meshes.has(name)) meshes.set(name, meshOf(node));
  return meshes;
}
