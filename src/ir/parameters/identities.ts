/**
 * @file Parameters that an exporter merged because their initial values were equal, and separated again by Identity:
 *
 *     layers.1.out_proj.weight = Identity(layers.0.out_proj.weight)
 *
 * Import drops the Identity of a matrix, since for inference the two are one; for training the Identity's name is a
 * parameter of its own. This module reads from the file which operator used which name.
 */
import type { OnnxModel, SourceNode } from '../onnx/model.js';

/** A parameter's own name where an operator reads an initializer through Identity. */
export interface IdentityUse {
  /** The initializer. */
  readonly weight: string;
  /** The name that the Identity gives it. */
  readonly name: string;
  /** The operator that reads it, as the file names it. */
  readonly node: string;
}

/** Operators that pass an initializer on under another name or form; readers of their result read the initializer. */
export const HANDS_ON: ReadonlySet<string> = new Set([
  'Identity',
  'Transpose',
  'Cast',
  'Reshape',
  'Squeeze',
  'Unsqueeze',
]);

/** Uses of initializers through Identity, among `nodes` (in order, functions inlined). Nodes without a name are skipped. */
export function identityUses(model: OnnxModel, nodes: readonly SourceNode[]): readonly IdentityUse[] {
  const named = new Map<string, { readonly weight: string; readonly name: string | null }>();
  for (const name of model.graph.initializers.keys()) named.set(name, { weight: name, name: null });
  const uses: IdentityUse[] = [];
  for (const node of nodes) {
    const [input = null] = node.inputs;
    const source = input === null ? undefined : named.get(input);
    const [output = null] = node.outputs;
    if (source && output !== null && node.domain === '' && HANDS_ON.has(node.op)) {
      named.set(output, { weight: source.weight, name: node.op === 'Identity' ? output : source.name });
      continue;
    }
    if (node.name === '') continue;
    for (const operand of node.inputs) {
      const found = operand === null ? undefined : named.get(operand);
      if (found?.name) uses.push({ weight: found.weight, name: found.name, node: node.name });
    }
  }
  return uses;
}
