/**
 * @file Operands that must be known when planning (a Reshape's shape, a Slice's ends) become attributes.
 */
import { AutoparError } from '../error.js';
import { type Attributes, type ConstantTensor, elementCount } from '../graph.js';
import { isOpaque, isReference, isSourceGraph, type SourceNode } from '../onnx/model.js';
import type { ConstantInput } from '../operator.js';
import { numbersOf } from '../ops/constants.js';
import type { RewriteContext } from './rewrite.js';

/** A node's attributes with its constant operands among them, and the operands that are left. */
interface WithoutConstants {
  readonly attributes: Attributes;
  readonly inputs: readonly (string | null)[];
}

/** Reads the operands in `wanted`. Throws the error of `unknown` for one whose value depends on the data. */
export async function readConstantInputs(
  node: SourceNode,
  wanted: readonly ConstantInput[],
  context: RewriteContext,
  unknown: (item: ConstantInput, input: string) => AutoparError,
): Promise<WithoutConstants> {
  const attributes: Record<string, Attributes[string]> = { ...plainAttributes(node, context.file) };
  const inputs = [...node.inputs];
  for (const item of wanted) {
    const input = inputs[item.index];
    if (!input) continue;
    const value = await context.valueOf(input);
    if (!value) throw unknown(item, input);
    inputs[item.index] = null;
    const attribute = asAttribute(item, value);
    if (attribute !== null) attributes[item.attribute] = attribute;
  }
  return { attributes, inputs };
}

function plainAttributes(node: SourceNode, file: string): Attributes {
  const entries = Object.entries(node.attributes).map(([name, value]): [string, Attributes[string]] => {
    if (isSourceGraph(value) || isReference(value) || isOpaque(value)) {
      throw new AutoparError(
        'unsupported-attribute',
        'input',
        `node '${node.name || node.op}' (${node.op}) has an attribute '${name}' of a kind that autopar does not handle`,
        { file, node: node.name },
      );
    }
    return [name, value];
  });
  return Object.fromEntries(entries);
}

/** A constant operand as an attribute; null for a tensor without elements, which counts as left out. */
function asAttribute(item: ConstantInput, value: ConstantTensor): Attributes[string] | null {
  if (item.form === 'tensor') return elementCount(value.shape) === 0 ? null : value;
  const numbers = numbersOf(value);
  return item.form === 'ints' ? numbers : (numbers[0] ?? 0);
}
