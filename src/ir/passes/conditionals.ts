/**
 * @file Control flow: an `If` whose condition is known becomes the branch that it takes.
 */
import type { SourceNode } from '../onnx/model.js';
import type { Rewrite } from './rewrite.js';
import { bodyOf, instantiate, refusedControl } from './subgraph-body.js';

/** The branch's nodes under the name of the If; its results take the If's names. */
export const inlineConditional: Rewrite = async (node, context) => {
  const condition = await context.valueOf(node.inputs[0] ?? '');
  if (!condition) {
    throw refusedControl(
      node,
      context,
      'branches on a condition that depends on the data, which a static plan cannot follow',
      'make its condition a constant, for instance by binding dimensions with --dim or an input with --const NAME=VALUE',
    );
  }
  const branch = await bodyOf(node, condition.data[0] ? 'then_branch' : 'else_branch', context);
  const { nodes, results } = instantiate(branch, branch.prefix, [], context);
  const carried = results.flatMap((result, index): readonly SourceNode[] => {
    const output = node.outputs[index];
    if (!output) return [];
    const name = `${branch.prefix}/${branch.graph.outputs[index]?.name ?? index}`;
    return [{ ...node, name, op: 'Identity', domain: '', attributes: {}, inputs: [result], outputs: [output] }];
  });
  return [...nodes, ...carried];
};
