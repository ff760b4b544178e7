/**
 * @file Writing a loss at the end of a copy of a graph.
 */
import { type DType, onnxOfDtype } from '../dtype.js';
import type { ConstantTensor, Graph, Node, TensorType, Weight } from '../graph.js';
import { constant, constantWeight } from '../ops/constants.js';
import { plainNode } from '../plain-node.js';
import { unusedName } from '../unused-name.js';
import type { LossRatio } from './split-mean.js';

export class LossWriter {
  private readonly nodes: Node[];
  private readonly tensors: Map<string, TensorType>;
  private readonly weights: Map<string, Weight>;
  private readonly inputs: string[];

  constructor(private readonly base: Graph) {
    this.nodes = [...base.nodes];
    this.tensors = new Map(base.tensors);
    this.weights = new Map(base.weights);
    this.inputs = [...base.inputs];
  }

  typeOf(tensor: string): TensorType {
    const type = this.tensors.get(tensor);
    if (!type) throw new Error(`the loss reads ${tensor}, which nothing makes`);
    return type;
  }

  input(wanted: string, type: TensorType): string {
    const name = this.name(wanted, type);
    this.inputs.push(name);
    return name;
  }

  constant(wanted: string, value: ConstantTensor): string {
    const name = this.name(wanted, { dtype: value.dtype, shape: value.shape });
    this.weights.set(name, constantWeight(value));
    return name;
  }

  /** A float32 scalar that is kept from step to step: state, which the optimizer pairs with its next value. */
  stateScalar(wanted: string, initial: number): string {
    const { data, ...type } = constant('float32', [initial]);
    const name = this.name(wanted, type);
    this.weights.set(name, { ...type, role: 'buffer', source: { kind: 'inline', data } });
    return name;
  }

  /** A name that is free, for a tensor of this type. */
  name(wanted: string, type: TensorType): string {
    const name = unusedName(this.tensors, wanted);
    this.tensors.set(name, type);
    return name;
  }

  /** An operator per micro-batch. `further`: names of its results after the first. */
  node(
    op: string,
    inputs: readonly string[],
    type: TensorType,
    attributes: Node['attributes'] = {},
    wanted = `loss/${op}`,
    further: readonly string[] = [],
  ): string {
    const name = this.name(wanted, type);
    this.nodes.push(plainNode({ name, op, attributes, inputs, outputs: [name, ...further], module: ['loss'] }));
    return name;
  }

  cast(tensor: string, dtype: DType): string {
    const type = this.typeOf(tensor);
    return type.dtype === dtype ? tensor : this.node('Cast', [tensor], { ...type, dtype }, { to: onnxOfDtype(dtype) });
  }

  /** The quotient of two sums as `loss`, which has a type already: once per step, when all micro-batches are summed. */
  divide({ numerator, denominator }: LossRatio, loss: string): void {
    const sums = this.typeOf(numerator);
    const { dtype } = this.typeOf(loss);
    const once = { module: ['loss'], phase: 'update' } as const;
    const quotient = sums.dtype === dtype ? loss : this.name('loss/quotient', sums);
    const [name, cast] = [this.unusedNode(`${loss}/mean`), this.unusedNode(`${loss}/cast`)];
    const inputs = [numerator, denominator];
    this.nodes.push(plainNode({ ...once, name, op: 'Div', inputs, outputs: [quotient] }));
    if (quotient === loss) return;
    const attributes = { to: onnxOfDtype(dtype) };
    this.nodes.push(plainNode({ ...once, name: cast, op: 'Cast', attributes, inputs: [quotient], outputs: [loss] }));
  }

  /** The graph with `first` before its other outputs, if it is given. */
  graph(first?: string): Graph {
    const { base, nodes, tensors, weights, inputs } = this;
    const outputs = first === undefined ? base.outputs : [first, ...base.outputs];
    return { ...base, nodes, tensors, weights, inputs, outputs };
  }

  private unusedNode(wanted: string): string {
    return unusedName(new Set(this.nodes.map(({ name }) => name)), wanted);
  }
}
