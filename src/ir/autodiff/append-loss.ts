/**
 * @file A loss behind a model's output: what PyTorch calls F.cross_entropy and F.mse_loss, with the labels as an input of the
 * graph. `model-output` takes an output of the model that is a loss already.
 */
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { elementCount, type Graph, type Node, type TensorType, typeOf } from '../graph.js';
import { unusedName } from '../unused-name.js';

export type LossKind = 'cross_entropy' | 'mse' | 'model-output';

export interface LossOptions {
  readonly kind: LossKind;
  /** The output that the loss is of; the only floating-point one by default. */
  readonly output?: string;
  /** Labels of this value count for nothing; -100 by default, as in PyTorch. */
  readonly ignoreIndex?: number;
}

export interface WithLoss {
  readonly graph: Graph;
  /** The scalar. */
  readonly loss: string;
  /** The input that was added for labels or targets; null where the model makes its loss itself. */
  readonly labels: string | null;
}

/**
 * The graph with a loss as its first output.
 *
 * `cross_entropy`: of logits [N, C], [N, S, C] (classes last where there are three dimensions, as language models have them) or
 * [N, C, H, W] against int64 labels without the classes; the mean over the labels that count. `mse`: the mean of squares.
 * @throws AutoparError (input) `no-loss-output`, `ambiguous-loss`, `loss-not-scalar`
 */
export function appendLoss(graph: Graph, options: LossOptions): WithLoss {
  const output = outputOf(graph, options);
  const type = typeOf(graph, output);
  if (options.kind === 'model-output') {
    if (elementCount(type.shape) !== 1)
      throw new AutoparError(
        'loss-not-scalar',
        'input',
        `output '${output}' is [${type.shape.join(', ')}], and a loss is one number`,
        { tensor: output },
        'have a loss appended: --loss cross_entropy or --loss mse',
      );
    return { graph, loss: output, labels: null };
  }
  return options.kind === 'mse' ? withSquares(graph, output, type) : withEntropy(graph, output, type, options);
}

function outputOf(graph: Graph, { output }: LossOptions): string {
  if (output !== undefined) {
    if (graph.outputs.includes(output)) return output;
    throw new AutoparError(
      'no-loss-output',
      'input',
      `the model has no output '${output}' to take a loss of`,
      { tensor: output },
      `its outputs are ${graph.outputs.join(', ')}`,
    );
  }
  const floating = graph.outputs.filter((name) => isFloating(typeOf(graph, name).dtype));
  const [only, ...others] = floating;
  if (only !== undefined && others.length === 0) return only;
  throw new AutoparError(
    only === undefined ? 'no-loss-output' : 'ambiguous-loss',
    'input',
    only === undefined
      ? 'the model has no floating-point output to take a loss of'
      : `the model has ${floating.length} floating-point outputs: ${floating.join(', ')}`,
    {},
    'name the one that the loss is of',
  );
}

function withSquares(graph: Graph, output: string, type: TensorType): WithLoss {
  const write = new Appending(graph);
  const labels = write.input('target', type);
  const difference = write.node('Sub', [output, labels], type);
  const square = write.node('Mul', [difference, difference], type);
  const axes = type.shape.map((_, axis) => axis);
  const loss = write.node('ReduceMean', [square], { dtype: type.dtype, shape: [] }, { axes, keepdims: 0 }, 'loss');
  return { graph: write.graph(loss), loss, labels };
}

function withEntropy(graph: Graph, output: string, type: TensorType, { ignoreIndex = -100 }: LossOptions): WithLoss {
  const { dtype, shape } = type;
  if (shape.length < 2)
    throw new AutoparError(
      'no-loss-output',
      'input',
      `output '${output}' is [${shape.join(', ')}], which has no dimension of classes`,
      { tensor: output },
      'take --loss mse, or another output',
    );
  const classAxis = shape.length === 3 ? 2 : 1;
  const classes = shape[classAxis] ?? 1;
  const labelShape = shape.filter((_, axis) => axis !== classAxis);
  const write = new Appending(graph);
  const labels = write.input('labels', { dtype: 'int64', shape: labelShape });
  const rows = elementCount(labelShape);
  const scored = { dtype, shape: [rows, classes] };
  const last = classAxis === shape.length - 1;
  const perm = [...shape.keys()].filter((axis) => axis !== classAxis).concat(classAxis);
  const turned = last
    ? output
    : write.node('Transpose', [output], { dtype, shape: [...labelShape, classes] }, { perm });
  const flat = shape.length === 2 ? turned : write.node('Reshape', [turned], scored, { shape: scored.shape });
  const wanted =
    labelShape.length === 1
      ? labels
      : write.node('Reshape', [labels], { dtype: 'int64', shape: [rows] }, { shape: [rows] });
  const attributes = { reduction: 'mean', ignore_index: ignoreIndex };
  const loss = write.node('SoftmaxCrossEntropyLoss', [flat, wanted], { dtype, shape: [] }, attributes, 'loss');
  return { graph: write.graph(loss), loss, labels };
}

/** Grows a copy of a graph at its end. */
class Appending {
  private readonly nodes: Node[];
  private readonly tensors: Map<string, TensorType>;
  private readonly inputs: string[];

  constructor(private readonly base: Graph) {
    this.nodes = [...base.nodes];
    this.tensors = new Map(base.tensors);
    this.inputs = [...base.inputs];
  }

  input(wanted: string, type: TensorType): string {
    const name = unusedName(this.tensors, wanted);
    this.tensors.set(name, type);
    this.inputs.push(name);
    return name;
  }

  node(
    op: string,
    inputs: readonly string[],
    type: TensorType,
    attributes: Node['attributes'] = {},
    wanted = `loss/${op}`,
  ): string {
    const name = unusedName(this.tensors, wanted);
    this.tensors.set(name, type);
    this.nodes.push({
      name,
      op,
      domain: '',
      attributes,
      inputs,
      outputs: [name],
      module: ['loss'],
      layer: null,
      scope: 'micro',
      phase: 'forward',
      group: name,
      body: null,
    });
    return name;
  }

  graph(loss: string): Graph {
    const { base } = this;
    return { ...base, nodes: this.nodes, tensors: this.tensors, inputs: this.inputs, outputs: [loss, ...base.outputs] };
  }
}
