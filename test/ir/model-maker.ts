/**
 * @file Small ONNX models for tests, written with the schema alone, so that they can be wrong in every way.
 */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type DType, onnxOfDtype } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import {
  ATTRIBUTE_TYPE,
  type AttributeProto,
  encodeModel,
  type GraphProto,
  type ModelProto,
  type NodeProto,
  type TensorProto,
  type ValueInfoProto,
} from '../../src/ir/onnx/schema.js';
import { constant } from '../../src/ir/ops/constants.js';

/** An attribute's value: numbers are integers unless wrapped by `float`. */
export type Given = number | string | readonly number[] | ConstantTensor | GraphProto | { readonly float: number };

export function float(value: number): { readonly float: number } {
  return { float: value };
}

export function node(
  op: string,
  inputs: readonly string[],
  outputs: readonly string[],
  attributes: Readonly<Record<string, Given>> = {},
  more: Partial<NodeProto> = {},
): NodeProto {
  return {
    op_type: op,
    input: inputs,
    output: outputs,
    attribute: Object.entries(attributes).map(([name, value]) => attribute(name, value)),
    ...more,
  };
}

/** An operator that the traced program's operator became, which reads these parameters: `p_` and the name. */
export function traced(
  op: string,
  inputs: readonly string[],
  output: string,
  read: string,
  attributes: Readonly<Record<string, Given>> = {},
): NodeProto {
  const args = read.split(' ').map((name) => `%p_${name.replaceAll('.', '_')}`);
  const metadata = {
    key: 'pkg.torch.onnx.fx_node',
    value: `%${output} : (args = (%${inputs[0]}, ${args.join(', ')}))`,
  };
  return node(op, inputs, [output], attributes, { name: `node_${output}`, metadata_props: [metadata] });
}

/** The record of PyTorch's exporter that these are the parameters of the traced program. */
export function recordOf(names: readonly string[]): { readonly key: string; readonly value: string } {
  const lines = names.map((name) => `p_${name.replaceAll('.', '_')}: PARAMETER target='${name}'\n`);
  return { key: 'pkg.torch.export.ExportedProgram.graph_signature', value: lines.join('') };
}

/** A value of float32 by default; dimensions are sizes or names. */
export function value(name: string, shape: readonly (number | string)[], dtype: DType = 'float32'): ValueInfoProto {
  const dim = shape.map((size) => (typeof size === 'number' ? { dim_value: size } : { dim_param: size }));
  return { name, type: { tensor_type: { elem_type: onnxOfDtype(dtype), shape: { dim } } } };
}

export function tensor(
  name: string,
  shape: readonly number[],
  values: readonly number[],
  dtype: DType = 'float32',
): TensorProto {
  return { name, dims: shape, data_type: onnxOfDtype(dtype), raw_data: constant(dtype, values, shape).data };
}

/** 0.1, 0.2, … over a shape: a weight without meaning. */
export function ramp(name: string, shape: readonly number[]): TensorProto {
  const count = shape.reduce((product, size) => product * size, 1);
  return tensor(
    name,
    shape,
    Array.from({ length: count }, (_, index) => ((index % 23) - 11) / 10),
  );
}

export function model(graph: GraphProto, opset = 18, more: Partial<ModelProto> = {}): ModelProto {
  return { ir_version: 8, opset_import: [{ domain: '', version: opset }], graph: { name: 'test', ...graph }, ...more };
}

/** Writes bytes into a folder of its own under the system's temporary folder; returns the file's path. */
export async function saved(content: ModelProto | Uint8Array, name = 'model.onnx'): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'autopar-test-'));
  const file = join(folder, name);
  await writeFile(file, content instanceof Uint8Array ? content : encodeModel(content));
  return file;
}

function attribute(name: string, given: Given): AttributeProto {
  if (typeof given === 'number') return { name, type: ATTRIBUTE_TYPE.int, i: given };
  if (typeof given === 'string') return { name, type: ATTRIBUTE_TYPE.string, s: new TextEncoder().encode(given) };
  if (Array.isArray(given)) return { name, type: ATTRIBUTE_TYPE.ints, ints: given };
  if ('float' in given) return { name, type: ATTRIBUTE_TYPE.float, f: given.float };
  if ('data' in given)
    return {
      name,
      type: ATTRIBUTE_TYPE.tensor,
      t: { dims: given.shape, data_type: onnxOfDtype(given.dtype), raw_data: given.data },
    };
  return { name, type: ATTRIBUTE_TYPE.graph, g: given as GraphProto };
}

/** A model of some nodes, from x [4, 8] to y by default. */
export const small = (nodes: readonly NodeProto[], more: Partial<GraphProto> = {}): ModelProto =>
  model({ node: nodes, input: [value('x', [4, 8])], output: [value('y', [4, 8])], ...more });
