/**
 * @file Pass `module-names`: weights that an exporter gave names of its own (`val_460`, `onnx::MatMul_29`: matrices that it
 * stored transposed) take the name of their module's parameter, `h.0.fc.weight`, where the operator that reads them gives it.
 * Their name in the file stays with them (FileTensor).
 */
import { type Graph, plainFileTensor } from '../graph.js';
import type { InputKind } from '../onnx/model.js';
import type { IdentityUse } from './identities.js';
import { isMadeUp, parameterUnits } from './units.js';

/** The graph with such weights renamed. `kinds`: kinds of initializers in exporter metadata, whose names stay. */
export function moduleNames(
  graph: Graph,
  identities: readonly IdentityUse[],
  kinds: ReadonlyMap<string, InputKind>,
): Graph {
  const parameters = [...graph.weights].filter(([, { role }]) => role !== 'constant').map(([name]) => name);
  if (!parameters.some(isMadeUp)) return graph;
  const taken = new Set(graph.tensors.keys());
  const renamed = new Map<string, string>();
  for (const [name, [unit, ...others]] of parameterUnits(graph, parameters, identities)) {
    const weight = graph.weights.get(name);
    const stays = !isMadeUp(name) || kinds.has(weight?.file?.name ?? name) || weight?.source.kind === 'absent';
    // With several modules the weight has no single name, and a number at the end means that another weight has the name.
    if (stays || !unit || others.length > 0 || isMadeUp(unit.name) || /\.\d+$/.test(unit.name)) continue;
    if (taken.has(unit.name) || graph.outputs.includes(name)) continue;
    taken.add(unit.name);
    renamed.set(name, unit.name);
  }
  const named = (name: string): string => renamed.get(name) ?? name;
  return {
    ...graph,
    nodes: graph.nodes.map((node) =>
      node.inputs.some((input) => input !== null && renamed.has(input))
        ? { ...node, inputs: node.inputs.map((input) => input && named(input)) }
        : node,
    ),
    tensors: new Map([...graph.tensors].map(([name, type]) => [named(name), type])),
    weights: new Map(
      [...graph.weights].map(([name, weight]) => [
        named(name),
        renamed.has(name) ? { ...weight, file: weight.file ?? plainFileTensor(name, weight) } : weight,
      ]),
    ),
  };
}
