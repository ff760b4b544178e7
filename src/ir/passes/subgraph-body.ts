/**
 * @file The body of an operator that holds a subgraph, ready to be put in the operator's place, once or many times.
 */
import { AutoparError } from '../error.js';
import { isSourceGraph, type SourceGraph, type SourceNode } from '../onnx/model.js';
import { loadWeight } from '../onnx/tensors.js';
import { renameNode } from './inline-functions.js';
import type { RewriteContext } from './rewrite.js';

export interface SubgraphBody {
  readonly graph: SourceGraph;
  readonly node: SourceNode;
  /** The prefix of the operator's derived names; no other name in the model begins so. */
  readonly prefix: string;
  /** Names of the body's own initializers → the constants that they became. */
  readonly constants: ReadonlyMap<string, string>;
}

/** A body's nodes under names of their own, and the new names of its outputs. */
interface InlinedBody {
  readonly nodes: readonly SourceNode[];
  readonly results: readonly string[];
}

/** The subgraph in the attribute given. Its initializers become constants, once for all instances. */
export async function bodyOf(node: SourceNode, attribute: string, context: RewriteContext): Promise<SubgraphBody> {
  const graph = node.attributes[attribute];
  if (!isSourceGraph(graph)) throw refusedControl(node, context, `lacks its subgraph '${attribute}'`);
  const prefix = context.prefix(node.name || node.outputs.find((name) => name !== null) || node.op);
  const constants = new Map<string, string>();
  for (const [name, { dtype, shape, source }] of graph.initializers) {
    const data = await loadWeight(source);
    if (!data) throw refusedControl(node, context, `has a subgraph whose weight '${name}' is absent`);
    constants.set(name, context.literal(`${prefix}/${name}`, { dtype, shape, data }));
  }
  return { graph, node, prefix, constants };
}

/**
 * The body with its inputs bound to the values named (null: an operand left out), every other name of its own below
 * `prefix`; names of the graph around it stay. The nodes are of `module`, of their own or the operator's by default.
 */
export function instantiate(
  { graph, node, constants }: SubgraphBody,
  prefix: string,
  bindings: readonly (string | null)[],
  context: RewriteContext,
  module?: readonly string[],
): InlinedBody {
  const own = new Set<string | null>(graph.nodes.flatMap((item) => item.outputs));
  graph.inputs.forEach(({ name }, index) => {
    const value = bindings[index] ?? null;
    own.add(name);
    if (value === null) context.absent(`${prefix}/${name}`);
    else context.alias(`${prefix}/${name}`, value);
  });
  const rename = (name: string): string => constants.get(name) ?? (own.has(name) ? `${prefix}/${name}` : name);
  const nodes = graph.nodes.map((item) => ({
    ...renameNode(item, rename, prefix),
    module: module ?? (item.module.length > 0 ? item.module : node.module),
  }));
  return { nodes, results: graph.outputs.map(({ name }) => rename(name)) };
}

/** How many nodes the graph has, those of its subgraphs included; at least 1, so that iterations of nothing count too. */
export function nodeCount(graph: SourceGraph): number {
  let count = 0;
  const stack = [graph];
  for (let top = stack.pop(); top; top = stack.pop()) {
    count += top.nodes.length;
    for (const { attributes } of top.nodes) stack.push(...Object.values(attributes).filter(isSourceGraph));
  }
  return Math.max(1, count);
}

/** The error for control flow that cannot be followed before the run. */
export function refusedControl(node: SourceNode, context: RewriteContext, why: string, hint?: string): AutoparError {
  return new AutoparError(
    'control-flow',
    'input',
    `node '${node.name || node.op}' (${node.op}) ${why}`,
    { file: context.file, node: node.name || node.op },
    hint ?? 'export the model without it',
  );
}
