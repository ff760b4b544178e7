/**
 * @file A model to be trained: what was imported, with loss, gradients and optimizer.
 */

import { type TrainingGraph, trainingGraph } from '../ir/autodiff/training-graph.js';
import { isFloating } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { fingerprint } from '../ir/fingerprint.js';
import { matchesAny } from '../ir/glob.js';
import type { Graph } from '../ir/graph.js';
import { findLayers } from '../ir/passes/find-layers.js';
import type { PlanTraining } from '../strategy/plan.js';
import type { ImportedModel } from './import.js';
import { checkTraining, type Training } from './training-request.js';

export type { Training };

/**
 * @throws AutoparError (usage) `bad-option` for what contradicts itself, `unknown-parameter` for a glob that fits no weight; what
 * making the graph refuses
 */
export function withTraining(imported: ImportedModel, training: Training): ImportedModel {
  const made = trainingGraphOf(imported.graph, training);
  const graph = findLayers(made.graph);
  const { loss, optimizer } = training;
  return {
    ...imported,
    graph,
    fingerprint: fingerprint(graph),
    training: planned(made, training),
    passes: [...imported.passes, { name: 'train', options: { loss: loss.kind, optimizer: optimizer.kind } }],
  };
}

/** The graph of a step. @throws AutoparError as `withTraining` */
export function trainingGraphOf(graph: Graph, training: Training): TrainingGraph {
  checkTraining(training);
  const trained = trainedWeights(graph, training);
  const { trainable: _trainable, frozen: _frozen, decayed: _decayed, undecayed: _undecayed, ...options } = training;
  return trainingGraph(graph, { ...options, trained, decays: decayOf(graph, training) });
}

/** What the plan says of a step. */
function planned(
  { classes, trained }: TrainingGraph,
  { loss, optimizer, precision, lossScale }: Training,
): PlanTraining {
  return {
    loss: {
      kind: loss.kind,
      ...(loss.output === undefined ? {} : { output: loss.output }),
      ...(classes ? { labels: classes } : {}),
      ...(loss.labelSmoothing === undefined ? {} : { labelSmoothing: loss.labelSmoothing }),
    },
    optimizer: { ...optimizer },
    trained: trained.length,
    ...(precision === undefined ? {} : { precision }),
    ...(lossScale === undefined ? {} : { lossScale }),
  };
}

/** Parameters, and what `trainable` names, less what `frozen` does. */
function trainedWeights(graph: Graph, { trainable = [], frozen = [] }: Training): readonly string[] {
  checkGlobs(graph, [...trainable, ...frozen]);
  const whole = trainable.find((glob) => !floatingNames(graph).some((name) => matchesAny([glob], name)));
  if (whole !== undefined)
    throw new AutoparError(
      'nothing-to-train',
      'input',
      `weights that fit '${whole}' hold whole numbers, which cannot be trained`,
      {},
      'leave it out of --trainable',
    );
  return [...graph.weights].flatMap(([name, { role, dtype }]) => {
    const wanted = role === 'parameter' || matchesAny(trainable, name);
    return wanted && isFloating(dtype) && !matchesAny(frozen, name) ? [name] : [];
  });
}

function floatingNames(graph: Graph): readonly string[] {
  return [...graph.weights].flatMap(([name, { dtype }]) => (isFloating(dtype) ? [name] : []));
}

/** Which weights decay: matrices, not biases and scales, but for what is said. */
export function decayOf(graph: Graph, { decayed = [], undecayed = [] }: Training): (name: string) => boolean {
  checkGlobs(graph, [...decayed, ...undecayed]);
  return (name) => {
    if (matchesAny(undecayed, name)) return false;
    return matchesAny(decayed, name) || (graph.weights.get(name)?.shape.length ?? 0) > 1;
  };
}

function checkGlobs(graph: Graph, globs: readonly string[]): void {
  const names = [...graph.weights.keys()];
  const stray = globs.find((glob) => !names.some((name) => matchesAny([glob], name)));
  if (stray === undefined) return;
  throw new AutoparError(
    'unknown-parameter',
    'usage',
    `no weight has a name that fits '${stray}'`,
    {},
    'autopar inspect --parameters lists them',
  );
}
