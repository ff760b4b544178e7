/**
 * @file Random values for weights that a model file names but does not hold, so that its program can be run.
 */
import { isFloating } from '../../ir/dtype.js';
import type { Graph, TensorType, Weight, WeightSource } from '../../ir/graph.js';
import type { HalfType } from '../../ir/half.js';
import { interruptible, listening } from '../../ir/interruption.js';
import { convertedSource } from '../../ir/onnx/converted-source.js';
import { makeTensorInTurns, normal, uniform } from '../verification/numbers.js';
import type { ImportedModel } from './import.js';

/**
 * The model with every absent weight given seeded values. Equal seeds and names give equal values on every machine:
 * matrices are normal with deviation 0.02 (as GPT-2 and Llama are initialised), vectors close to 1, integers 0.
 * @throws the signal's reason where it was given
 */
export async function withRandomWeights(
  imported: ImportedModel,
  seed: number,
  signal?: AbortSignal,
): Promise<ImportedModel> {
  const { graph } = imported;
  const [weights, state] = await listening(signal, async () => [
    await filled(graph.weights, seed, signal),
    graph.initial ? await filled(graph.initial, seed, signal) : null,
  ]);
  const initial = state ? { initial: state } : {};
  return { ...imported, graph: { ...graph, weights, ...initial }, weightsPresent: true };
}

/** A graph with the values that weights and state of the same names have in another graph. */
export function withValuesOf(graph: Graph, { weights, initial }: Graph): Graph {
  const known = (name: string) => initial?.get(name) ?? weights.get(name);
  const filled = (own: Graph['weights']) => new Map([...own].map(([name, weight]) => [name, known(name) ?? weight]));
  return { ...graph, weights: filled(graph.weights), ...(graph.initial ? { initial: filled(graph.initial) } : {}) };
}

async function filled(
  weights: ReadonlyMap<string, Weight>,
  seed: number,
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<string, Weight>> {
  const all = new Map<string, Weight>();
  for (const [name, weight] of weights) {
    const { source } = weight;
    const present = source.kind === 'absent' ? await randomSource(name, weight, source.rounded, seed, signal) : source;
    all.set(name, { ...weight, source: present });
  }
  return all;
}

/** @param rounded the type that the values are rounded to, where the weight holds them in float32 */
async function randomSource(
  name: string,
  { dtype: held, shape }: TensorType,
  rounded: HalfType | undefined,
  seed: number,
  signal: AbortSignal | undefined,
): Promise<WeightSource> {
  let hash = seed >>> 0;
  for (const character of name) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) >>> 0;
  const next = uniform(hash);
  const center = shape.length < 2 ? 1 : 0;
  const dtype = rounded ?? held;
  const value = isFloating(dtype) ? () => center + 0.02 * normal(next) : () => 0;
  const { data } = await makeTensorInTurns({ dtype, shape }, value, () => interruptible(signal));
  const made: WeightSource = { kind: 'inline', data };
  return rounded !== undefined && held === 'float32' ? convertedSource(made, rounded, held) : made;
}
