/**
 * @file The training graph: a forward graph, a loss, its gradients and an optimizer, as one graph whose step begins with what the
 * step before left. Trained weights, moments and the step's number are inputs with a first value (`initial`), since they change;
 * what is not trained stays a weight.
 */
import { batchDimensions } from '../batch.js';
import { flattenBlocks } from '../blocks/flatten-blocks.js';
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import type { Graph, Weight } from '../graph.js';
import { appendLoss, type LabelRange, type LossOptions } from './append-loss.js';
import { appendOptimizer, type OptimizerOptions } from './append-optimizer.js';
import { differentiate } from './differentiate.js';

export interface TrainingOptions {
  readonly loss: LossOptions;
  readonly optimizer: OptimizerOptions;
  /** Names of the weights to train; every floating-point parameter by default. */
  readonly trained?: readonly string[];
}

export interface TrainingGraph {
  /** Its first output is the loss; outputs of the model follow, then what is kept for the next step. */
  readonly graph: Graph;
  readonly loss: string;
  /** The input that labels or targets are fed to; null where the model makes its loss itself. */
  readonly labels: string | null;
  /** What labels may be where they are classes. */
  readonly classes: LabelRange | null;
  readonly trained: readonly string[];
}

/** @throws AutoparError (input) `nothing-to-train`; what loss and differentiation refuse */
export function trainingGraph(forward: Graph, options: TrainingOptions): TrainingGraph {
  const { graph: scored, loss, labels, classes, ratio } = appendLoss(flattenBlocks(forward), options.loss);
  const trained = options.trained ?? trainableWeights(scored);
  checkTrained(scored, trained);
  const { graph, gradients } = differentiate(scored, ratio?.numerator ?? loss, trained);
  const updated = appendOptimizer(
    graph,
    trained.map((name) => ({
      name,
      gradient: gradients.get(name) ?? '',
      // Biases and scales are left out of weight decay, as everybody does.
      decays: (graph.tensors.get(name)?.shape.length ?? 0) > 1,
    })),
    options.optimizer,
    ratio?.denominator ?? null,
  );
  const placed: Graph = { ...updated, batch: batchDimensions(updated) };
  return { graph: stateAsInputs(placed), loss, labels, classes, trained };
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
      'say which weights are parameters with --trainable GLOB; autopar inspect lists them',
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

/** What a step changes is an input of the graph with a first value. */
function stateAsInputs(graph: Graph): Graph {
  const kept = new Set(graph.state.map(({ input }) => input));
  const initial = new Map<string, Weight>();
  const weights = new Map<string, Weight>();
  for (const [name, weight] of graph.weights) (kept.has(name) ? initial : weights).set(name, weight);
  return { ...graph, weights, initial, inputs: [...graph.inputs, ...kept] };
}
