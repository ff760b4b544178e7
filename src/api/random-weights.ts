/**
 * @file Random values for weights that a model file names but does not hold, so that its program can be run.
 */
import { isFloating } from '../ir/dtype.js';
import type { ConstantTensor, TensorType, Weight } from '../ir/graph.js';
import type { ImportedModel } from './import.js';
import { makeTensor, normal, uniform } from './numbers.js';

/**
 * The model with every absent weight given seeded values. Equal seeds and names give equal values on every machine:
 * matrices are normal with deviation 0.02 (as GPT-2 and Llama are initialised), vectors close to 1, integers 0.
 */
export function withRandomWeights(imported: ImportedModel, seed: number): ImportedModel {
  const { graph } = imported;
  const weights = filled(graph.weights, seed);
  const initial = graph.initial ? { initial: filled(graph.initial, seed) } : {};
  return { ...imported, graph: { ...graph, weights, ...initial }, weightsPresent: true };
}

function filled(weights: ReadonlyMap<string, Weight>, seed: number): ReadonlyMap<string, Weight> {
  return new Map(
    [...weights].map(([name, weight]): [string, Weight] => {
      if (weight.source.kind !== 'absent') return [name, weight];
      return [name, { ...weight, source: { kind: 'inline', data: randomWeight(name, weight, seed).data } }];
    }),
  );
}

function randomWeight(name: string, { dtype, shape }: TensorType, seed: number): ConstantTensor {
  let hash = seed >>> 0;
  for (const character of name) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) >>> 0;
  const next = uniform(hash);
  if (!isFloating(dtype)) return makeTensor({ dtype, shape }, () => 0);
  const center = shape.length < 2 ? 1 : 0;
  return makeTensor({ dtype, shape }, () => center + 0.02 * normal(next));
}
