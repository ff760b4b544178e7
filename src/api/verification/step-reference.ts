/**
 * @file A step of the unsharded training graph, from a given state, and cut at gradients and new state: readers of these tensors
 * read the values that the sharded program has for them. So a difference in rounding does not propagate: Adam makes a full-size
 * step from a gradient that is zero except for rounding.
 */

import { type DType, isFloating } from '../../ir/dtype.js';
import { flattenRegions } from '../../ir/fused-regions/flatten-regions.js';
import type { Graph, Node, TensorType } from '../../ir/graph.js';
import { writeOnnx } from '../../ir/onnx/writer.js';
import { operatorRole } from '../../ir/ops/index.js';
import { unusedName } from '../../ir/unused-name.js';
import { openOnnx } from '../../runtime/reference.js';
import type { Arrays } from '../execution/arrays.js';
import { makeTensor, numberReader, uniform } from './numbers.js';
import { inlined } from './reference.js';

export interface StepReference {
  /**
   * One step from `state` (by input of the graph). `handedIn` are values of gradients and new state, by the graph's name: readers
   * of those tensors read these values. Returns outputs, extra tensors and new state as they were computed.
   */
  readonly run: (inputs: Arrays, state: Arrays, handedIn: Arrays) => Promise<Arrays>;
  readonly release: () => Promise<void>;
}

/**
 * @param extra names of tensors to compute besides the outputs
 * @param gradients those of them whose values are handed in to their readers, like new state
 * @throws AutoparError where a weight has no value, or ONNX Runtime refuses the graph
 */
export async function openStep(
  given: Graph,
  extra: readonly string[],
  gradients: readonly string[],
): Promise<StepReference> {
  const { graph, handIn } = cut(flattenRegions(given), gradients);
  const weights = await inlined(graph.weights);
  const made = new Set(graph.nodes.flatMap((node) => node.outputs));
  const outputs = [...new Set([...graph.outputs, ...extra])].filter((name) => made.has(name));
  const opened = await openOnnx(writeOnnx({ ...graph, weights, outputs }));
  return {
    run: async (inputs, state, handedIn) => {
      const fed = [...handIn].map(([name, input]) => [input, handedIn[name]] as const);
      const absent = fed.find(([, value]) => value === undefined);
      if (absent) throw new Error(`${absent[0]} has no value`);
      // State that a step does not change is not a result of an operator.
      return {
        ...inputs,
        ...state,
        ...(await opened.run({ ...inputs, ...state, ...(Object.fromEntries(fed) as Arrays) })),
      };
    },
    release: opened.release,
  };
}

/**
 * The graph with an input in place of every gradient and every new state that is read; `handIn` has the inputs by the tensors
 * that they replace. Where a step is conditional (a loss scale may overflow), new state is a choice between the computed and the
 * previous state: readers of the computed state read the input, too.
 */
function cut(
  graph: Graph,
  gradients: readonly string[],
): { readonly graph: Graph; readonly handIn: ReadonlyMap<string, string> } {
  const makers = new Map(graph.nodes.flatMap((node) => node.outputs.map((name) => [name, node] as const)));
  const tensors = new Map<string, TensorType>(graph.tensors);
  const handIn = new Map<string, string>();
  const inPlace = new Map<string, string>();
  const choices = new Set<Node>();
  const stand = (name: string, values: readonly string[], maker: Node) => {
    const isRead = graph.nodes.some(
      (node) => node !== maker && node.inputs.some((read) => values.includes(read ?? '')),
    );
    const type = graph.tensors.get(name);
    if (!isRead || !type || handIn.has(name)) return;
    const input = unusedName(tensors, `${name}/handed-in`);
    tensors.set(input, type);
    handIn.set(name, input);
    for (const value of values) inPlace.set(value, input);
  };
  for (const { input, output } of graph.state) {
    const maker = makers.get(output);
    const [, computed, before] = maker?.inputs ?? [];
    const choosesNew = before === input && typeof computed === 'string' && makers.has(computed);
    const isChoice = maker && operatorRole(maker) === 'choice' && choosesNew;
    if (maker && isChoice) choices.add(maker);
    if (maker) stand(output, isChoice ? [output, computed] : [output], maker);
  }
  for (const gradient of gradients) {
    const maker = makers.get(gradient);
    if (maker) stand(gradient, [gradient], maker);
  }
  const nodes = graph.nodes.map((node) => {
    if (choices.has(node)) return node;
    return { ...node, inputs: node.inputs.map((name) => (name === null ? null : (inPlace.get(name) ?? name))) };
  });
  return { graph: { ...graph, nodes, tensors, inputs: [...graph.inputs, ...handIn.values()] }, handIn };
}

/** The unit roundoff of the narrowest floating-point type among these; at least that of float32. */
export function roundoff(types: Iterable<DType>): number {
  let largest = ROUNDOFF.float32;
  for (const dtype of types) if (isFloating(dtype)) largest = Math.max(largest, ROUNDOFF[dtype as 'float32'] ?? 0);
  return largest;
}

const ROUNDOFF = { float32: 2 ** -24, float16: 2 ** -11, bfloat16: 2 ** -8 } as const satisfies Partial<
  Record<DType, number>
>;

/** The arrays with every floating-point number off by one unit in the last place (two of roundoff), up or down at random. */
export function perturbed(arrays: Arrays, unit: number, seed: number): Arrays {
  return Object.fromEntries(
    Object.entries(arrays).map(([name, value], ordinal) => {
      if (!isFloating(value.dtype)) return [name, value];
      const share = 2 * Math.max(unit, roundoff([value.dtype]));
      const [read, next] = [numberReader(value), uniform(seed * 1000003 + ordinal)];
      return [name, makeTensor(value, (index) => read(index) * (next() < 0.5 ? 1 - share : 1 + share))];
    }),
  );
}
