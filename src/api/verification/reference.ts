/**
 * @file The results of the unsharded model: ONNX Runtime runs the model file itself, or, where the file alone cannot be run
 * (another batch, random weights), the imported graph before sharding.
 */

import { weightBytes } from '../../codegen/weights.js';
import { flattenRegions } from '../../ir/fused-regions/flatten-regions.js';
import type { ConstantTensor, Graph, Weight } from '../../ir/graph.js';
import { writeOnnx } from '../../ir/onnx/writer.js';
import type { ProgramNode } from '../../program/program.js';
import { type Complaint, meantBy } from '../../runtime/no-kernel.js';
import { type ReferenceOptions, runOnnx } from '../../runtime/reference.js';
import type { Arrays } from '../execution/arrays.js';

/** Weights with their values inside. @throws AutoparError where one has none */
export async function inlined(weights: Graph['weights']): Promise<ReadonlyMap<string, Weight>> {
  const all = new Map<string, Weight>();
  for (const [name, weight] of weights)
    all.set(name, { ...weight, source: { kind: 'inline', data: await weightBytes(name, weight) } });
  return all;
}

/** The values of the state before the first step. @throws AutoparError where one has none */
export async function initialValues({ initial }: Graph): Promise<Arrays> {
  const first: Record<string, ConstantTensor> = {};
  for (const [name, weight] of initial ?? [])
    first[name] = { dtype: weight.dtype, shape: weight.shape, data: await weightBytes(name, weight) };
  return first;
}

/** Runs the unsharded graph, its weights inlined; `extra` names tensors that are returned besides the outputs. */
export async function runGraph(
  graph: Graph,
  inputs: Arrays,
  extra: readonly string[] = [],
  options: ReferenceOptions = {},
): Promise<Arrays> {
  const weights = await inlined(graph.weights);
  const first = await initialValues(graph);
  const outputs = [...new Set([...graph.outputs, ...extra])];
  const computed = new Set(graph.nodes.flatMap((node) => node.outputs));
  const direct = outputs.filter((name) => computed.has(name));
  const results = await runOnnx(
    writeOnnx({ ...graph, weights, outputs: direct }),
    { ...inputs, ...first },
    { nodeOf: (complaint) => nodeOf(graph, complaint), ...options },
  );
  const given: Record<string, ConstantTensor> = { ...results };
  for (const name of outputs) {
    const weight = weights.get(name);
    const input = inputs[name];
    if (input) given[name] = input;
    else if (weight?.source.kind === 'inline')
      given[name] = { dtype: weight.dtype, shape: weight.shape, data: weight.source.data };
  }
  return given;
}

/** The node of the graph, or inside of one of its regions, that the complaint is about; null if there is none. */
function nodeOf(graph: Graph, complaint: Complaint): ProgramNode | null {
  const { nodes, tensors } = flattenRegions(graph);
  const all = nodes.map((node): ProgramNode => {
    const types = [...node.inputs, ...node.outputs].flatMap((tensor) =>
      tensor === null ? [] : [(tensors.get(tensor) ?? graph.weights.get(tensor))?.dtype],
    );
    return {
      name: node.name,
      op: node.domain === '' ? node.op : `${node.domain}.${node.op}`,
      dtypes: [...new Set(types.filter((dtype) => dtype !== undefined))],
    };
  });
  return all.find(({ name }) => name === complaint.node) ?? meantBy(complaint, all);
}
