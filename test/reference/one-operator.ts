/**
 * @file A sample operator as a model file: its operands x0, x1, … are the inputs, its results y0, y1, … the outputs.
 */
import type { Graph, TensorType } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import type { Operator } from '../../src/ir/operator.js';

type OneOperator = Pick<Operator, 'op' | 'domain' | 'attributes' | 'inputs' | 'outputs'>;

export function operatorModel(operator: OneOperator): Uint8Array {
  return writeOnnx(operatorGraph(operator));
}

export function operatorGraph(operator: OneOperator): Graph {
  const named = (types: Operator['inputs'], prefix: string) =>
    types.map((type, index) => (type ? `${prefix}${index}` : null));
  const [inputs, outputs] = [named(operator.inputs, 'x'), named(operator.outputs, 'y')];
  const tensors = new Map<string, TensorType>();
  for (const [index, type] of operator.inputs.entries()) if (type) tensors.set(`x${index}`, type);
  for (const [index, type] of operator.outputs.entries()) if (type) tensors.set(`y${index}`, type);
  const { op, domain, attributes } = operator;
  return {
    name: op,
    nodes: [
      {
        op,
        domain,
        attributes,
        name: 'node',
        inputs,
        outputs,
        module: [],
        layer: null,
        forward: null,
        phase: 'forward',
        group: 'node',
        body: null,
      },
    ],
    tensors,
    inputs: inputs.flatMap((name) => name ?? []),
    outputs: outputs.flatMap((name) => name ?? []),
    weights: new Map(),
    state: [],
    batch: [],
  };
}
