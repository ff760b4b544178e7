/**
 * @file Weights that ranks keep sharded and gather where they are used: state that no step changes. As a weight, each reader has
 * its own shard from the file; as state, the weight has one layout at rest, which is resharded for each reader, like a parameter
 * in training.
 */
import type { Graph, StatePair } from '../graph.js';

/** The parameters that a step does not change, which may be held as state. */
export function fixedParameters({ weights }: Graph): readonly string[] {
  return [...weights].flatMap(([name, { role, shape }]) =>
    role === 'parameter' && shape.some((size) => size > 1) ? [name] : [],
  );
}

/** The graph with these weights as state. */
export function withWeightsAsState(graph: Graph, names: readonly string[]): Graph {
  if (names.length === 0) return graph;
  const held = new Set(names);
  const moved = [...graph.weights].filter(([name]) => held.has(name));
  return {
    ...graph,
    weights: new Map([...graph.weights].filter(([name]) => !held.has(name))),
    initial: new Map([...(graph.initial ?? []), ...moved]),
    inputs: [...graph.inputs, ...moved.map(([name]) => name)],
    state: [...graph.state, ...moved.map(([name]): StatePair => ({ input: name, output: name }))],
  };
}

/** Whether a state is a weight that no step changes. */
export function isStateWeight({ input, output }: StatePair): boolean {
  return input === output;
}

/** The names of weights that are held as state. */
export function stateWeights({ state }: Graph): ReadonlySet<string> {
  return new Set(state.flatMap((pair) => (isStateWeight(pair) ? [pair.input] : [])));
}
