/**
 * @file Operators of opsets 1 to 6 in their form of opset 7, as a table from operator to conversion. Operators that are not in
 * the table were the same, except for `consumed_inputs`, a hint about memory that opset 6 dropped.
 *
 * Before opset 7 operands were broadcast only where an attribute requested it, and training was an attribute of the operator.
 */
import { AutoparError } from '../error.js';
import type { SourceNode } from '../onnx/model.js';
import { numberAttribute, type Rewrite, type RewriteContext } from './rewrite.js';

/** The opset that the conversions lead to. */
export const BROADCASTING_OPSET = 7;

/** One conversion: applies to operators written for an opset below `below`. */
export interface Conversion {
  readonly below: number;
  readonly rewrite: Rewrite;
}

/** `axis` is the dimension of the first operand at which those of the second begin; by default they end together. */
const broadcast: Conversion = {
  below: 7,
  rewrite: (node, context) => {
    const [first, second] = node.inputs;
    const { axis, broadcast: broadcasts } = node.attributes;
    const bare = without(node, 'axis', 'broadcast');
    if (!first || !second || broadcasts !== 1 || typeof axis !== 'number') return [bare];
    const { shape } = context.typeOf(second);
    const after = context.typeOf(first).shape.length - axis - shape.length;
    if (axis < 0 || after <= 0) return [bare];
    const raised = `${context.prefix(node.outputs[0] ?? node.name)}/raised`;
    const sizes = [...shape, ...Array.from({ length: after }, () => 1)];
    return [
      { ...node, name: raised, op: 'Reshape', attributes: { shape: sizes }, inputs: [second], outputs: [raised] },
      { ...bare, inputs: [first, raised] },
    ];
  },
};

/** One slope per channel was a vector. */
const slope: Conversion = {
  below: 7,
  rewrite: (node, context) => {
    const [input, slopes] = node.inputs;
    if (!input || !slopes) return null;
    const rank = context.typeOf(input).shape.length;
    const { shape } = context.typeOf(slopes);
    const [channels = 1] = shape;
    if (shape.length !== 1 || channels === 1 || rank <= 2) return [node];
    const raised = `${context.prefix(node.outputs[0] ?? node.name)}/slope`;
    const sizes = [channels, ...Array.from({ length: rank - 2 }, () => 1)];
    return [
      { ...node, name: raised, op: 'Reshape', attributes: { shape: sizes }, inputs: [slopes], outputs: [raised] },
      { ...node, inputs: [input, raised] },
    ];
  },
};

/** Operators that learn, or drop, unless `is_test` is set. */
const inference: Conversion = {
  below: 7,
  rewrite: (node, context) => {
    if (numberAttribute(node.attributes, 'is_test', 0) !== 0) return [without(node, 'is_test')];
    throw new AutoparError(
      'unsupported-attribute',
      'input',
      `node '${node.name || node.op}' (${node.op} of opset ${node.opset}) is in training mode: its attribute is_test is not set`,
      { file: context.file, node: node.name || node.op },
      'export the model for inference',
    );
  },
};

const CONVERSIONS: Readonly<Record<string, readonly Conversion[]>> = {
  Add: [broadcast],
  Sub: [broadcast],
  Mul: [broadcast],
  Div: [broadcast],
  Pow: [broadcast],
  And: [broadcast],
  Or: [broadcast],
  Xor: [broadcast],
  Greater: [broadcast],
  Less: [broadcast],
  Equal: [broadcast],
  PRelu: [slope],
  BatchNormalization: [inference],
  Dropout: [inference],
  Gemm: [{ below: 7, rewrite: (node) => [without(node, 'broadcast')] }],
  LSTM: [{ below: 7, rewrite: (node) => [without(node, 'output_sequence')] }],
  GRU: [{ below: 7, rewrite: (node) => [without(node, 'output_sequence')] }],
  RNN: [{ below: 7, rewrite: (node) => [without(node, 'output_sequence')] }],
  Concat: [{ below: 4, rewrite: defaults({ axis: 1 }) }],
  Selu: [{ below: 6, rewrite: defaults({ alpha: 1.6732, gamma: 1.0507 }) }],
  Pad: [{ below: 2, rewrite: (node) => [renamed(node, 'paddings', 'pads')] }],
  Tile: [{ below: 6, rewrite: tooOld }],
  Cast: [{ below: 6, rewrite: tooOld }],
  Upsample: [{ below: 7, rewrite: tooOld }],
};

/** The node in its form of opset 7: itself, or the nodes that replace it. */
export const convertFirstOpsets: Rewrite = (given, context) => {
  const node = without(given, 'consumed_inputs');
  const known = Object.hasOwn(CONVERSIONS, node.op) ? CONVERSIONS[node.op] : undefined;
  const conversion = known?.find((item) => node.opset < item.below);
  const converted = conversion?.rewrite(node, context) ?? [node];
  if (converted instanceof Promise) throw new Error('conversions are synchronous');
  return converted.map((item) => ({ ...item, opset: BROADCASTING_OPSET }));
};

function without(node: SourceNode, ...names: readonly string[]): SourceNode {
  if (!names.some((name) => name in node.attributes)) return node;
  const kept = Object.entries(node.attributes).filter(([name]) => !names.includes(name));
  return { ...node, attributes: Object.fromEntries(kept) };
}

function renamed(node: SourceNode, from: string, to: string): SourceNode {
  const value = node.attributes[from];
  return value === undefined ? node : { ...node, attributes: { ...without(node, from).attributes, [to]: value } };
}

function defaults(values: SourceNode['attributes']): Rewrite {
  return (node) => [{ ...node, attributes: { ...values, ...node.attributes } }];
}

function tooOld(node: SourceNode, context: RewriteContext): never {
  throw new AutoparError(
    'opset-too-old',
    'input',
    `node '${node.name || node.op}' is ${node.op} of opset ${node.opset}, which has an older form`,
    { file: context.file, node: node.name || node.op },
    'convert the model with onnx.version_converter, or export it again',
  );
}
