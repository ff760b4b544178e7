/**
 * @file A sample operator as a model file: its operands x0, x1, … are the inputs, its results y0, y1, … the outputs.
 */
import type { Graph, TensorType } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import type { OperatorView } from '../../src/ir/operator.js';

type OneOperator = Pick<OperatorView, 'op' | 'domain' | 'attributes' | 'inputs' | 'outputs'>;

export function operatorModel(view: OneOperator): Uint8Array {
  return writeOnnx(operatorGraph(view));
}

export function operatorGraph(view: OneOperator): Graph {
  const named = (types: OperatorView['inputs'], prefix: string) =>
    types.map((type, index) => (type ? `${prefix}${index}` : null));
  const [inputs, outputs] = [named(view.inputs, 'x'), named(view.outputs, 'y')];
  const tensors = new Map<string, TensorType>();
  for (const [index, type] of view.inputs.entries()) if (type) tensors.set(`x${index}`, type);
  for (const [index, type] of view.outputs.entries()) if (type) tensors.set(`y${index}`, type);
  const { op, domain, attributes } = view;
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
