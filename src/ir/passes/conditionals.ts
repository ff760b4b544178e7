/**
 * @file Control flow: an `If` whose condition is known becomes the branch that it takes; everything else that holds a
 * subgraph is refused by name.
 */
import { AutoparError } from '../error.js';
import { isSourceGraph, type SourceGraph, type SourceNode } from '../onnx/model.js';
import { renameNode } from './inline-functions.js';
import type { Rewrite, RewriteContext } from './rewrite.js';

/** Rewrites any node that holds a subgraph. */
export const inlineConditional: Rewrite = async (node, context) => {
  if (!Object.values(node.attributes).some(isSourceGraph)) return null;
  const condition = node.op === 'If' && node.domain === '' ? await context.valueOf(node.inputs[0] ?? '') : null;
  const branch = node.attributes[condition?.data[0] ? 'then_branch' : 'else_branch'];
  if (!condition || !isSourceGraph(branch)) throw refused(node, context);
  return inlineBranch(node, branch, context);
};

/** The branch's nodes under the name of the If; its results take the If's names. */
function inlineBranch(node: SourceNode, branch: SourceGraph, context: RewriteContext): readonly SourceNode[] {
  const prefix = node.name || node.outputs.find((name) => name !== null) || node.op;
  const own = new Set<string | null>([...branch.initializers.keys(), ...branch.nodes.flatMap((item) => item.outputs)]);
  const rename = (name: string): string => (own.has(name) ? `${prefix}/${name}` : name);
  for (const [name, value] of branch.initializers) {
    if (value.source.kind !== 'inline') throw refused(node, context);
    const literal = context.literal(rename(name), { dtype: value.dtype, shape: value.shape, data: value.source.data });
    if (literal !== rename(name)) context.alias(rename(name), literal);
  }
  const body = branch.nodes.map((item) => {
    const renamed = renameNode(item, rename, prefix);
    return { ...renamed, module: item.module.length > 0 ? item.module : node.module };
  });
  const results = branch.outputs.flatMap((value, index): readonly SourceNode[] => {
    const result = node.outputs[index];
    if (!result) return [];
    return [
      {
        ...node,
        name: `${prefix}/${value.name}`,
        op: 'Identity',
        domain: '',
        attributes: {},
        inputs: [rename(value.name)],
        outputs: [result],
      },
    ];
  });
  return [...body, ...results];
}

function refused(node: SourceNode, context: RewriteContext): AutoparError {
  return new AutoparError(
    'control-flow',
    'input',
    `node '${node.name || node.op}' (${node.op}) is control flow that depends on the data, which a static plan cannot follow`,
    { file: context.file, node: node.name || node.op },
    node.op === 'If'
      ? 'make its condition a constant, for instance by binding dimensions with --dim or an input with --const'
      : 'export the model with the loop unrolled',
  );
}
