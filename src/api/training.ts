/**
 * @file A model to be trained: what was imported, with loss, gradients and optimizer.
 */

import type { LossOptions } from '../ir/autodiff/append-loss.js';
import type { OptimizerOptions } from '../ir/autodiff/append-optimizer.js';
import { trainingGraph } from '../ir/autodiff/training-graph.js';
import { isFloating } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { fingerprint } from '../ir/fingerprint.js';
import { matchesAny } from '../ir/glob.js';
import type { Graph } from '../ir/graph.js';
import { findLayers } from '../ir/passes/find-layers.js';
import type { ImportedModel } from './import.js';

/** What a step of training computes. */
export interface Training {
  readonly loss: LossOptions;
  readonly optimizer: OptimizerOptions;
  /** Globs of weights that are trained besides parameters, and of parameters that are not. */
  readonly trainable?: readonly string[];
  readonly frozen?: readonly string[];
}

/** @throws AutoparError (usage) `unknown-parameter` for a glob that fits no weight; what making the graph refuses */
export function withTraining(imported: ImportedModel, training: Training): ImportedModel {
  const trained = trainedWeights(imported.graph, training);
  const { graph: made } = trainingGraph(imported.graph, { ...training, trained });
  const graph = findLayers(made);
  const { loss, optimizer } = training;
  return {
    ...imported,
    graph,
    fingerprint: fingerprint(graph),
    training: {
      loss: { kind: loss.kind, ...(loss.output === undefined ? {} : { output: loss.output }) },
      optimizer: { ...optimizer },
      trained: trained.length,
    },
    passes: [...imported.passes, { name: 'train', options: { loss: loss.kind, optimizer: optimizer.kind } }],
  };
}

/** Parameters, and what `trainable` names, less what `frozen` does. */
function trainedWeights(graph: Graph, { trainable = [], frozen = [] }: Training): readonly string[] {
  const names = [...graph.weights.keys()];
  for (const glob of [...trainable, ...frozen]) {
    if (names.some((name) => matchesAny([glob], name))) continue;
    throw new AutoparError(
      'unknown-parameter',
      'usage',
      `no weight has a name that fits '${glob}'`,
      {},
      'autopar inspect --parameters lists them',
    );
  }
  return [...graph.weights].flatMap(([name, { role, dtype }]) => {
    const wanted = role === 'parameter' || matchesAny(trainable, name);
    return wanted && isFloating(dtype) && !matchesAny(frozen, name) ? [name] : [];
  });
}
