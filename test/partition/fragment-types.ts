/**
 * @file Findings of the checker of sharded graphs about a fragment, seen as a graph of its own.
 */
import { checkSharded } from '../../src/partition/check.js';
import type { Fragment } from '../../src/partition/fragment.js';
import { readsOf, resultsOf } from '../../src/partition/sharded-graph.js';

/** Findings in sentences. Results may be partial. */
export function findingsOf(fragment: Fragment): readonly string[] {
  const made = new Set(fragment.nodes.flatMap(resultsOf));
  const read = new Set(fragment.nodes.flatMap(readsOf));
  const findings = checkSharded({
    mesh: fragment.mesh,
    nodes: fragment.nodes.map((node, index) => ({
      ...node,
      name: `${index}`,
      origin: '',
      layer: null,
      phase: 'forward',
    })),
    tensors: fragment.tensors,
    coordinates: [...fragment.coordinates.values()],
    weights: [],
    constants: fragment.constants,
    inputs: [...fragment.tensors.keys()].filter((name) => !made.has(name)).map((tensor) => ({ tensor, input: tensor })),
    outputs: [...made].filter((name) => !read.has(name)).map((tensor) => ({ tensor, output: tensor })),
    state: [],
  });
  return findings
    .filter(({ problem }) => !problem.endsWith('is partial or varying'))
    .map(({ node, problem }) => `${node}: ${problem}`);
}
