/**
 * @file The training graph: a forward graph, a loss, its gradients and an optimizer, as one graph whose step begins with the
 * state of the step before. Trained weights, moments and the step number are inputs with an initial value (`initial`), since
 * they change; weights that are not trained stay weights.
 */
import { batchDimensions } from '../batch.js';
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { flattenRegions } from '../fused-regions/flatten-regions.js';
import { type Graph, type Node, typeOf, type Weight } from '../graph.js';
import { readersOf } from '../makers-and-readers.js';
import { isAccumulator } from '../ops/accumulate.js';
import { operatorFamily } from '../ops/index.js';
import { appendLoss, type LabelRange, type LossOptions, type WithLoss } from './append-loss.js';
import { appendOptimizer } from './append-optimizer.js';
import { differentiate } from './differentiate.js';
import { canBeHeldInFloat32, heldInFloat32 } from './held-in-float32.js';
import { scaleLoss } from './loss-scale.js';
import { atTheirPositions, type BatchCut, cutMicroBatches, withAccumulators } from './micro-batches.js';
import { inMixedPrecision, type LowType } from './mixed-precision.js';
import type { OptimizerOptions } from './optimizer-options.js';
import { summedOverRanks } from './sum-over-ranks.js';
import { withoutUnread } from './without-unread.js';

export interface TrainingOptions {
  readonly loss: LossOptions;
  readonly optimizer: OptimizerOptions;
  /** Names of the weights to train; every floating-point parameter by default. */
  readonly trained?: readonly string[];
  /** Whether weight decay applies to a weight; by default to those of two dimensions and more, not to biases and scales. */
  readonly decays?: (name: string) => boolean;
  /** float32 throughout by default; else computed in 16 bit with weights and state in float32 (mixed-precision.ts). */
  readonly precision?: TrainingPrecision;
  /** The loss scale of its gradients; dynamic by default for fp16, 1 for the others. */
  readonly lossScale?: number | 'dynamic';
  /** Data-parallel ranks whose gradients, each of the mean loss of its samples, are added up; left out: gradients of the mean. */
  readonly summedOver?: number;
  /** Devices lack 16-bit types: 16-bit tensors are held in float32, and rounded (held-in-float32.ts). */
  readonly isHeldInFloat32?: boolean;
  /** How a step is cut into micro-batches, of which `forward` is one; left out where it is one batch. */
  readonly microBatches?: BatchCut;
  /**
   * The loss is a quotient of sums wherever it is one in micro-batches; gradients are then the same with micro-batches and
   * without.
   */
  readonly inSums?: boolean;
}

export type TrainingPrecision = 'fp32' | 'fp16' | 'bf16';

/** The recipes that compute in 16 bit. */
export type LowPrecision = Exclude<TrainingPrecision, 'fp32'>;

export const LOW_TYPES: Readonly<Record<LowPrecision, LowType>> = { fp16: 'float16', bf16: 'bfloat16' };

export interface TrainingGraph {
  /** Its first output is the loss; outputs of the model follow, then the state for the next step. */
  readonly graph: Graph;
  readonly loss: string;
  /** The input that labels or targets are fed to; null where the model makes its loss itself. */
  readonly labels: string | null;
  /** The range of valid labels, where labels are classes. */
  readonly classes: LabelRange | null;
  readonly trained: readonly string[];
  /** By trained weight the gradient that its update reads: of all micro-batches, before loss scale, denominator and clipping. */
  readonly gradients: ReadonlyMap<string, string>;
  /** Scalar that all gradients are divided by before clipping, so that they are those of the mean; null for 1. */
  readonly divisor: string | null;
  /** Gradients are also divided by the loss scale over this number, where there is a loss scale. */
  readonly lossScaleSamples: number;
}

/** @throws AutoparError (input) `nothing-to-train`; errors of the loss and of differentiation */
export function trainingGraph(given: Graph, options: TrainingOptions): TrainingGraph {
  const { precision = 'fp32', lossScale = precision === 'fp16' ? 'dynamic' : undefined, microBatches } = options;
  const { inSums = microBatches !== undefined } = options;
  const forward = microBatches ? atTheirPositions(given, microBatches) : given;
  const low = precision === 'fp32' ? null : LOW_TYPES[precision];
  const computed = low === null ? forward : inMixedPrecision(forward, low);
  const withMean = withLoss(computed, options.loss, inSums);
  const { loss, labels, classes, ratio } = withMean;
  const { graph: scored, loss: derived } = summedOverRanks(
    withMean,
    options.summedOver ?? 1,
    () => options.loss.kind !== 'model-output' || withLoss(computed, options.loss, true).ratio !== null,
  );
  const trained = options.trained ?? trainableWeights(scored);
  checkTrained(scored, trained);
  // Gradients of a sum are scaled to those of the mean over the whole batch: larger ones may overflow in 16 bit.
  const samples = (ratio?.samples ?? 1) * (ratio ? (microBatches?.count ?? 1) : 1);
  const scaled = lossScale === undefined ? null : scaleLoss(scored, derived, lossScale, samples);
  const { graph, gradients } = differentiate(scaled?.graph ?? scored, scaled?.loss ?? derived, trained);
  const readers = readersOf(forward.nodes);
  const updated = appendOptimizer(
    graph,
    trained.map((name) => ({
      name,
      gradient: gradients.get(name) ?? '',
      decays: options.decays?.(name) ?? typeOf(graph, name).shape.length > 1,
      parts: stackedParts(readers.get(name)?.[0], forward, name),
    })),
    options.optimizer,
    { denominator: ratio?.denominator ?? null, lossScale: scaled?.scale ?? null },
  );
  const isHeld = low !== null && options.isHeldInFloat32 && canBeHeldInFloat32(updated, low);
  const held = isHeld ? heldInFloat32(updated, low) : updated;
  const batch = batchDimensions(held).filter(({ input }) => input !== held.microBatches?.index);
  const placed: Graph = { ...held, batch };
  const summed = microBatches ? withAccumulators(placed, loss) : placed;
  return {
    graph: stateAsInputs(withoutUnread(summed)),
    ...{ loss, labels, classes, trained },
    divisor: ratio ? (sumsIn(summed).get(ratio.denominator) ?? ratio.denominator) : null,
    lossScaleSamples: samples,
    gradients: accumulated(summed, trained, gradients),
  };
}

/** Parts of a recurrence's weight: each direction has its own weights and two biases, one for its input and one for its state. */
function stackedParts(reader: Node | undefined, { tensors }: Graph, name: string): number {
  if (!reader || operatorFamily(reader) !== 'recurrent') return 1;
  const [directions = 1] = tensors.get(name)?.shape ?? [];
  return reader.inputs.indexOf(name) === 3 ? 2 * directions : directions;
}

/**
 * How a training step of `forward`, which holds the whole batch, is cut into `count` micro-batches.
 * @throws AutoparError the errors of `appendLoss` and of `cutMicroBatches`
 */
export function cutInMicroBatches(forward: Graph, options: Pick<TrainingOptions, 'loss'>, count: number): BatchCut {
  const plain = flattenRegions(forward);
  const { graph, loss, ratio } = appendLoss(plain, options.loss, true);
  // The sums whose quotient is the loss, and the tensors they need, add up over micro-batches.
  const own = new Set(plain.nodes);
  const made = graph.nodes
    .filter((node) => !own.has(node))
    .flatMap((node) => node.outputs.filter((name) => name !== null));
  return cutMicroBatches({ ...graph, batch: batchDimensions(graph) }, count, loss, new Set(ratio ? made : []));
}

/** The gradients, or their sums over micro-batches. */
function accumulated(
  graph: Graph,
  trained: readonly string[],
  gradients: ReadonlyMap<string, string>,
): ReadonlyMap<string, string> {
  const sums = sumsIn(graph);
  return new Map(
    trained.map((weight) => {
      const gradient = gradients.get(weight) ?? '';
      return [weight, sums.get(gradient) ?? gradient] as const;
    }),
  );
}

/** By tensor of a micro-batch its sum over all of them. */
function sumsIn({ nodes }: Graph): ReadonlyMap<string, string> {
  return new Map(
    nodes.filter(isAccumulator).map(({ inputs, outputs }) => [inputs[0] ?? '', outputs[0] ?? ''] as const),
  );
}

/** The forward with its loss. A loss of the model's own that is split into two sums is not a region any more. */
export function withLoss(forward: Graph, options: LossOptions, inMicroBatches: boolean): WithLoss {
  if (options.kind !== 'model-output') return appendLoss(forward, options, inMicroBatches);
  const opened = appendLoss(flattenRegions(forward, 'CrossEntropy'), options, inMicroBatches);
  // Only the operators show the range of its labels; a region of them does not.
  return opened.ratio ? opened : { ...appendLoss(forward, options, inMicroBatches), classes: opened.classes };
}

function trainableWeights(graph: Graph): readonly string[] {
  return [...graph.weights].flatMap(([name, { role, dtype }]) =>
    role === 'parameter' && isFloating(dtype) ? [name] : [],
  );
}

function checkTrained(graph: Graph, trained: readonly string[]): void {
  if (trained.length === 0)
    throw new AutoparError(
      'nothing-to-train',
      'input',
      'the model has no floating-point parameter to train',
      {},
      'select parameters with --trainable GLOB; autopar inspect lists weights',
    );
  const whole = trained.find((name) => !isFloating(graph.weights.get(name)?.dtype ?? 'int64'));
  if (whole !== undefined)
    throw new AutoparError(
      'nothing-to-train',
      'input',
      `weight '${whole}' holds whole numbers, which cannot be trained`,
      { tensor: whole },
      'leave it out of --trainable',
    );
}

/** Makes the state that a step changes an input of the graph with an initial value. */
function stateAsInputs(graph: Graph): Graph {
  const kept = new Set(graph.state.map(({ input }) => input));
  const initial = new Map<string, Weight>();
  const weights = new Map<string, Weight>();
  for (const [name, weight] of graph.weights) (kept.has(name) ? initial : weights).set(name, weight);
  return { ...graph, weights, initial, inputs: [...graph.inputs, ...kept] };
}
