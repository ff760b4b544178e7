/**
 * @file A loss appended to a model's output: PyTorch's F.cross_entropy and F.mse_loss, with the labels as an input of the
 * graph. `model-output` takes an output of the model that is a loss already.
 */
import { type DimensionRole, dimensionRoles } from '../dimension-roles.js';
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { addBalance } from '../experts/balance-loss.js';
import { type ConstantTensor, elementCount, type Graph, type TensorType, typeOf } from '../graph.js';
import { constant } from '../ops/constants.js';
import { summationType } from '../ops/expansion.js';
import { entryOf } from '../ops/index.js';
import { LossWriter } from './loss-writer.js';
import { type LossRatio, splitMean } from './split-mean.js';

export type LossKind = 'cross_entropy' | 'mse' | 'model-output';

export interface LossOptions {
  readonly kind: LossKind;
  /** The output to compute the loss of; the only floating-point output by default. */
  readonly output?: string;
  /** For cross_entropy: labels of this value are ignored; -100 by default, as in PyTorch. */
  readonly ignoreIndex?: number;
  /** For cross_entropy: the weight of each class; 1 by default. */
  readonly classWeights?: readonly number[];
  /** For cross_entropy: the share of the target that is spread evenly over all classes (Szegedy et al. 2016); 0 by default. */
  readonly labelSmoothing?: number;
  /** Coefficient of the routers' load-balancing loss that is added (experts/balance-loss.ts); none by default. */
  readonly moeBalance?: number;
}

export interface WithLoss {
  readonly graph: Graph;
  /** The scalar. */
  readonly loss: string;
  /** The input that was added for labels or targets; null where the model makes its loss itself. */
  readonly labels: string | null;
  /** The range of valid labels, where labels are classes. */
  readonly classes: LabelRange | null;
  /** The sums whose quotient is the loss, where it is a mean over a count that data decide; gradients are the numerator's. */
  readonly ratio: LossRatio | null;
}

/** A label is a class, 0 ≤ label < classes, or `ignoreIndex` where that is not null. */
export interface LabelRange {
  /** The input of the graph that holds them. */
  readonly input: string;
  readonly classes: number;
  readonly ignoreIndex: number | null;
}

/**
 * The graph with a loss as its first output.
 *
 * `cross_entropy`: of logits [N, C], [N, S, C] (classes last where there are three dimensions, as language models have them),
 * [N, C, H, W], or [N, H, W, C] where the height of an input arrives second (TensorFlow), against int64 labels without the class
 * dimension; the mean over labels that are not ignored, weighted by class.
 * `mse`: the mean of squared differences. With micro-batches every mean becomes a quotient of sums over all of them.
 * @throws AutoparError (input) `no-loss-output`, `ambiguous-loss`, `loss-not-scalar`, `class-weights`; (usage) `no-experts`
 */
export function appendLoss(graph: Graph, options: LossOptions, inMicroBatches = false): WithLoss {
  const scored = scoredBy(graph, options, inMicroBatches);
  return options.moeBalance === undefined ? scored : addBalance(scored, options.moeBalance);
}

function scoredBy(graph: Graph, options: LossOptions, inMicroBatches: boolean): WithLoss {
  const output = outputOf(graph, options);
  const type = typeOf(graph, output);
  if (options.kind === 'model-output') return ownLoss(graph, output, type, inMicroBatches);
  return options.kind === 'mse'
    ? withSquares(graph, output, type, inMicroBatches)
    : withEntropy(graph, output, type, options);
}

/** The output that the loss is taken of. @throws AutoparError (input) `no-loss-output`, `ambiguous-loss` */
export function outputOf(graph: Graph, { output }: Pick<LossOptions, 'output'>): string {
  const shared = graph.outputs.find((name, index) => graph.outputs.indexOf(name) !== index);
  if (shared !== undefined && (output === undefined || output === shared))
    throw new AutoparError(
      'ambiguous-loss',
      'input',
      `several outputs of the model have the name '${shared}'`,
      { tensor: shared },
      'export the model with a name for each output',
    );
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
    'name the output to take the loss of: --loss-output NAME',
  );
}

function ownLoss(graph: Graph, output: string, type: TensorType, evenFixed: boolean): WithLoss {
  if (elementCount(type.shape) !== 1 || !isFloating(type.dtype))
    throw new AutoparError(
      'loss-not-scalar',
      'input',
      `output '${output}' is ${type.dtype} [${type.shape.join(', ')}], and a loss must be one floating-point number`,
      { tensor: output },
      'append a loss: --loss cross_entropy or --loss mse',
    );
  const split = splitMean(graph, output, { evenFixed });
  const whole = { loss: output, labels: null, classes: ownLabels(graph, output) };
  if (!split) return { graph, ...whole, ratio: null };
  const write = new LossWriter(split.graph);
  write.divide(split.ratio, output);
  return { graph: write.graph(), ...whole, ratio: split.ratio };
}

/** The range of valid labels, where the model's own loss is over classes and reads its labels from an input. */
function ownLabels(graph: Graph, loss: string): LabelRange | null {
  const maker = graph.nodes.find(({ outputs }) => outputs[0] === loss);
  const [scores, labels] = maker?.inputs ?? [];
  const isOverClasses = maker && (entryOf(maker.op, maker.domain)?.ratio ?? null) !== null;
  if (!isOverClasses || !scores || !labels || !graph.inputs.includes(labels)) return null;
  const ignored = maker.attributes['ignore_index'];
  return {
    input: labels,
    classes: typeOf(graph, scores).shape[1] ?? 1,
    ignoreIndex: typeof ignored === 'number' ? ignored : null,
  };
}

function withSquares(graph: Graph, output: string, type: TensorType, evenFixed: boolean): WithLoss {
  const write = new LossWriter(graph);
  const labels = write.input('target', type);
  const difference = write.node('Sub', [output, labels], type);
  const square = write.node('Mul', [difference, difference], type);
  const axes = type.shape.map((_, axis) => axis);
  const loss = write.node('ReduceMean', [square], { dtype: type.dtype, shape: [] }, { axes, keepdims: 0 }, 'loss');
  const added = { loss, labels, classes: null };
  const split = splitMean(write.graph(loss), loss, { evenFixed });
  if (!split) return { graph: write.graph(loss), ...added, ratio: null };
  const behind = new LossWriter(split.graph);
  behind.divide(split.ratio, loss);
  return { graph: behind.graph(), ...added, ratio: split.ratio };
}

function withEntropy(graph: Graph, output: string, type: TensorType, options: LossOptions): WithLoss {
  const { ignoreIndex = -100, classWeights, labelSmoothing = 0 } = options;
  const { shape } = type;
  if (shape.length < 2)
    throw new AutoparError(
      'no-loss-output',
      'input',
      `output '${output}' is [${shape.join(', ')}], which has no dimension of classes`,
      { tensor: output },
      'take --loss mse, or another output',
    );
  const classAxis = hasClassesLast(graph, output) ? shape.length - 1 : 1;
  const classes = shape[classAxis] ?? 1;
  const write = new LossWriter(graph);
  const labels = write.input('labels', { dtype: 'int64', shape: shape.filter((_, axis) => axis !== classAxis) });
  const [scores, wanted] = rowsOf(write, output, labels, classAxis);
  const { dtype } = write.typeOf(scores);
  const weights = classWeights ? write.constant('loss/weights', weightsIn(classWeights, classes, dtype)) : null;
  const attributes = { reduction: 'mean', ignore_index: ignoreIndex };
  const operands = [scores, wanted, ...(weights === null ? [] : [weights])];
  const scalar = { dtype, shape: [] };
  const logs = write.name('loss/logs', write.typeOf(scores));
  const loss = write.node(
    'SoftmaxCrossEntropyLoss',
    operands,
    scalar,
    attributes,
    'loss',
    labelSmoothing > 0 ? [logs] : [],
  );
  const split = splitMean(write.graph(loss), loss);
  if (!split) throw new Error('a mean over labels that count is not a ratio');
  const behind = new LossWriter(split.graph);
  const ratio =
    labelSmoothing > 0
      ? smoothed(behind, split.ratio, { logs, labels: wanted, weights, ignoreIndex, share: labelSmoothing })
      : split.ratio;
  behind.divide(ratio, loss);
  return { graph: behind.graph(), loss, labels, classes: { input: labels, classes, ignoreIndex }, ratio };
}

function hasClassesLast(graph: Graph, output: string): boolean {
  const rank = typeOf(graph, output).shape.length;
  if (rank < 4) return rank === 3;
  const roles = dimensionRoles(graph).outputs.filter(({ tensor }) => tensor === output);
  const [second, last] = [roles[1], roles[rank - 1]].map((dimension) => POSITIONS.has(dimension?.role ?? 'other'));
  return second === true && last === false;
}

const POSITIONS: ReadonlySet<DimensionRole> = new Set(['depth', 'height', 'width']);

/** Logits as [samples, classes], in the type that sums are formed in, and labels as [samples]. */
function rowsOf(write: LossWriter, output: string, labels: string, classAxis: number): readonly [string, string] {
  const { dtype: given, shape } = write.typeOf(output);
  const { shape: labelShape } = write.typeOf(labels);
  const dtype = summationType(given);
  const classes = shape[classAxis] ?? 1;
  const rows = elementCount(labelShape);
  const exact = write.cast(output, dtype);
  const perm = [...shape.keys()].filter((axis) => axis !== classAxis).concat(classAxis);
  const last = classAxis === shape.length - 1;
  const transposed = last
    ? exact
    : write.node('Transpose', [exact], { dtype, shape: [...labelShape, classes] }, { perm });
  if (shape.length === 2) return [transposed, labels];
  return [
    write.node('Reshape', [transposed], { dtype, shape: [rows, classes] }, { shape: [rows, classes] }),
    write.node('Reshape', [labels], { dtype: 'int64', shape: [rows] }, { shape: [rows] }),
  ];
}

function weightsIn(weights: readonly number[], classes: number, dtype: TensorType['dtype']): ConstantTensor {
  if (weights.length === classes) return constant(dtype, weights, [classes]);
  throw new AutoparError(
    'class-weights',
    'input',
    `there are ${weights.length} weights of classes, and the loss has ${classes} classes`,
    {},
    'give one for each class',
  );
}

interface Smoothing {
  /** [samples, classes] */
  readonly logs: string;
  readonly labels: string;
  readonly weights: string | null;
  readonly ignoreIndex: number;
  readonly share: number;
}

/** (1 − share) · numerator + share / classes · Σ over samples that count and classes of −weight · log p, as PyTorch has it. */
function smoothed(
  write: LossWriter,
  ratio: LossRatio,
  { logs, labels, weights, ignoreIndex, share }: Smoothing,
): LossRatio {
  const type = write.typeOf(logs);
  const [rows = 1, classes = 1] = type.shape;
  const scalar: TensorType = { dtype: type.dtype, shape: [] };
  const perSample: TensorType = { dtype: type.dtype, shape: [rows] };
  const number = (dtype: TensorType['dtype'], value: number) =>
    write.constant('loss/constant', constant(dtype, [value]));
  const weighted = weights === null ? logs : write.node('Mul', [logs, weights], type);
  const each = write.node('ReduceSum', [weighted], perSample, { axes: [1], keepdims: 0 });
  const ignored = write.node('Equal', [labels, number('int64', ignoreIndex)], { dtype: 'bool', shape: [rows] });
  const counted = write.node('Where', [ignored, number(type.dtype, 0), each], perSample);
  const spread = write.node('ReduceSum', [counted], scalar, { axes: [0], keepdims: 0 });
  const own = write.node('Mul', [ratio.numerator, number(type.dtype, 1 - share)], scalar);
  const even = write.node('Mul', [spread, number(type.dtype, -share / classes)], scalar);
  return { ...ratio, numerator: write.node('Add', [own, even], scalar, {}, 'loss/smoothed') };
}
