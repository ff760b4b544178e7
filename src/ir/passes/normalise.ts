/**
 * @file Pass `normalise`: fewer kinds of operators, and none that do nothing.
 *
 *     Gemm                  Transpose, MatMul, scale, Add
 *     Identity, Dropout     another name of their operand (Dropout stays where the model is to be trained)
 *     Reshape ∘ Reshape     one Reshape; Transpose ∘ Transpose one Transpose; none where they undo each other
 *     GatherND in order     a Reshape (exporters index a mask by [n, t] for all n and t), and so does Gather by 0, 1, 2, …
 *     GatherND of rows      Gather (exporters write table[index] so), the lookup that tables of parameters are known by
 */
import { type DType, dtypeOfOnnx, isFloating, onnxOfDtype } from '../dtype.js';
import { AutoparError } from '../error.js';
import { resultOf } from '../fused-regions/matching.js';
import { type ConstantTensor, elementCount, INTERNAL_OPSET, type TensorType } from '../graph.js';
import type { SourceAttribute, SourceNode } from '../onnx/model.js';
import { constant, numbersOf } from '../ops/constants.js';
import { numberAttribute, numbersAttribute, type Rewrite, type RewriteContext } from './rewrite.js';

/** Rewrites by operator of ONNX's own domain; operands are typed and the node is of INTERNAL_OPSET. */
const normalisations: Readonly<Record<string, Rewrite>> = {
  Constant: (node, context) => named(node, context, constantValue(node, context)),
  Shape: (node, context) => {
    const { shape } = context.typeOf(operandOf(node));
    const clamp = (value: number): number =>
      Math.min(Math.max(value < 0 ? value + shape.length : value, 0), shape.length);
    const sizes = shape.slice(
      clamp(numberAttribute(node.attributes, 'start', 0)),
      clamp(numberAttribute(node.attributes, 'end', shape.length)),
    );
    return named(node, context, constant('int64', sizes, [sizes.length]));
  },
  Size: (node, context) =>
    named(node, context, constant('int64', [elementCount(context.typeOf(operandOf(node)).shape)])),
  Identity: (node, context) => {
    const input = operandOf(node);
    // A vector that exporters share is an equal initial value; a shared matrix is a real tie.
    const vector = context.elementsOf(input) === null && isVector(context.typeOf(input));
    if (!(vector && context.copyParameter(resultOf(node), input))) context.alias(resultOf(node), input);
    return [];
  },
  Dropout: async (node, context) => {
    const training = node.inputs[2] ? await context.valueOf(node.inputs[2]) : null;
    if (node.inputs[2] && training?.data[0] !== 0) return null;
    if (context.forTraining) {
      const { ratio } = node.attributes;
      const given = node.inputs[1] ? await context.valueOf(node.inputs[1]) : null;
      const share = given ? numbersOf(given)[0] : ratio;
      if (share !== 0) return typeof ratio === 'number' ? [withRatio(node, ratio, context)] : null;
    }
    context.alias(resultOf(node), operandOf(node));
    const mask = node.outputs[1];
    if (!mask) return [];
    const { dtype, shape } = context.typeOf(operandOf(node));
    return [
      {
        ...node,
        op: 'ConstantOfShape',
        attributes: { shape: [...shape], value: dropoutMask(node.opset, dtype) },
        inputs: [],
        outputs: [mask],
      },
    ];
  },
  Cast: (node, context) => {
    const to = dtypeOfOnnx(numberAttribute(node.attributes, 'to', 0));
    return to === context.typeOf(operandOf(node)).dtype ? aliased(node, context) : null;
  },
  CastLike: (node, context) => {
    const { dtype } = context.typeOf(node.inputs[1] ?? '');
    return [{ ...node, op: 'Cast', attributes: { to: onnxOfDtype(dtype) }, inputs: [operandOf(node)] }];
  },
  Flatten: (node, context) => {
    const { shape } = context.typeOf(operandOf(node));
    const given = numberAttribute(node.attributes, 'axis', 1);
    const axis = given < 0 ? given + shape.length : given;
    if (axis < 0 || axis > shape.length) return null;
    return [
      {
        ...node,
        op: 'Reshape',
        attributes: { shape: [elementCount(shape.slice(0, axis)), elementCount(shape.slice(axis))] },
      },
    ];
  },
  Concat: (node, context) => (node.inputs.length === 1 ? aliased(node, context) : null),
  Sum: (node, context) => (node.inputs.length === 1 ? aliased(node, context) : null),
  Max: (node, context) => (node.inputs.length === 1 ? aliased(node, context) : null),
  Min: (node, context) => (node.inputs.length === 1 ? aliased(node, context) : null),
  Compress: pick,
  Range: scalarBounds,
  Gemm: gemm,
  Gather: gatherAll,
  GatherND: async (node, context) => (await gatherInOrder(node, context)) ?? gatherRows(node, context),
};

/** Compress keeps elements for which a condition is true: where that is known, a Gather of known places. */
async function pick(node: SourceNode, context: RewriteContext): Promise<readonly SourceNode[] | null> {
  const condition = await context.valueOf(node.inputs[1] ?? '');
  if (!condition) return null;
  const places = numbersOf(condition).flatMap((holds, index) => (holds === 0 ? [] : [index]));
  const indices = context.literal(`${resultOf(node)}/places`, constant('int64', places, [places.length]));
  const { axis } = node.attributes;
  if (axis !== undefined) return [{ ...node, op: 'Gather', inputs: [operandOf(node), indices] }];
  const flat = `${resultOf(node)}/flat`;
  return [
    {
      ...node,
      name: `${node.name}/flat`,
      op: 'Reshape',
      attributes: { shape: [-1] },
      inputs: [operandOf(node)],
      outputs: [flat],
    },
    { ...node, op: 'Gather', attributes: { axis: 0 }, inputs: [flat, indices] },
  ];
}

/** Before opset 12 the ratio was an attribute. */
function withRatio(node: SourceNode, ratio: number, context: RewriteContext): SourceNode {
  const { ratio: _, ...attributes } = node.attributes;
  const operand = context.literal(`${resultOf(node)}/ratio`, constant('float32', [ratio]));
  return { ...node, attributes, inputs: [operandOf(node), operand], opset: INTERNAL_OPSET };
}

/** The mask of ONNX Runtime's Dropout when it drops nothing: all true since opset 12, all zero before. */
function dropoutMask(opset: number, dtype: DType): ConstantTensor {
  if (opset >= 12 || opset === 0) return constant('bool', [1], [1]);
  return constant(opset >= 10 ? 'bool' : dtype, [0], [1]);
}

/** Exporters give vectors of one element where scalars are required; ONNX Runtime takes them unless they are constants. */
async function scalarBounds(node: SourceNode, context: RewriteContext): Promise<readonly SourceNode[] | null> {
  const inputs = await Promise.all(
    node.inputs.map(async (input, index) => {
      if (input === null || context.typeOf(input).shape.length === 0) return input;
      const value = await context.valueOf(input);
      return value && elementCount(value.shape) === 1
        ? context.literal(`${resultOf(node)}.${index}`, { ...value, shape: [] })
        : input;
    }),
  );
  return inputs.some((input, index) => input !== node.inputs[index]) ? [{ ...node, inputs }] : null;
}

/** Rewrites by operator of ONNX's domain for classical machine learning. */
const classicalNormalisations: Readonly<Record<string, Rewrite>> = {
  // A list of dictionaries, one per row, from labels to the row's values: the program gives the values, in the labels' order.
  ZipMap: (node, context) => aliased(node, context),
};

/** The rewrite of an operator, if it has one. */
export function normalisationOf({ op, domain }: SourceNode): Rewrite | undefined {
  const table = domain === '' ? normalisations : domain === 'ai.onnx.ml' ? classicalNormalisations : {};
  return Object.hasOwn(table, op) ? table[op] : undefined;
}

/** Rewrites once attributes are complete and the result's type is known: operators that change nothing, and pairs. */
export const viewNormalisations: Readonly<
  Record<string, (node: SourceNode, type: TensorType, context: RewriteContext) => readonly SourceNode[] | null>
> = {
  Reshape: (node, type, context) => {
    if (sameShape(node, type, context)) return aliased(node, context);
    const before = context.producerOf(operandOf(node));
    const source = before?.op === 'Reshape' && before.domain === '' ? before.inputs[0] : null;
    return source ? [{ ...node, inputs: [source] }] : null;
  },
  Expand: (node, type, context) => (sameShape(node, type, context) ? aliased(node, context) : null),
  Tile: (node, type, context) => (sameShape(node, type, context) ? aliased(node, context) : null),
  Pad: (node, type, context) =>
    sameShape(node, type, context) && numbersAttribute(node.attributes, 'pads').every((pad) => pad === 0)
      ? aliased(node, context)
      : null,
  Slice: (node, type, context) =>
    sameShape(node, type, context) && numbersAttribute(node.attributes, 'steps').every((step) => step === 1)
      ? aliased(node, context)
      : null,
  Split: (node, _type, context) => (node.outputs.length === 1 ? aliased(node, context) : null),
  Squeeze: (node, type, context) => (sameShape(node, type, context) ? aliased(node, context) : null),
  Unsqueeze: (node, type, context) => (sameShape(node, type, context) ? aliased(node, context) : null),
  Transpose: (node, _type, context) => {
    const order = permutationOf(node.attributes['perm'], context.typeOf(operandOf(node)).shape.length);
    if (order.every((axis, index) => axis === index)) return aliased(node, context);
    const before = context.producerOf(operandOf(node));
    const source = before?.op === 'Transpose' && before.domain === '' ? before.inputs[0] : null;
    if (!before || !source) return null;
    const first = permutationOf(before.attributes['perm'], order.length);
    return [{ ...node, attributes: { perm: order.map((axis) => first[axis] ?? 0) }, inputs: [source] }];
  },
};

function gemm(node: SourceNode, context: RewriteContext): readonly SourceNode[] {
  const { attributes } = node;
  const [left = '', right = '', addend = null] = node.inputs.map((name) => name ?? '');
  const result = resultOf(node);
  const { dtype } = context.typeOf(left);
  const alpha = numberAttribute(attributes, 'alpha', 1);
  const beta = numberAttribute(attributes, 'beta', 1);
  const nodes: SourceNode[] = [];
  const add = (
    part: string,
    op: string,
    inputs: readonly string[],
    output: string,
    more: SourceNode['attributes'] = {},
  ): string => {
    nodes.push({
      ...node,
      name: part === '' ? node.name : `${node.name || result}/${part}`,
      op,
      attributes: more,
      inputs,
      outputs: [output],
    });
    return output;
  };
  const transposed = (name: string, attribute: string, output: string): string =>
    numberAttribute(attributes, attribute, 0) === 0
      ? name
      : add(attribute, 'Transpose', [name], output, { perm: [1, 0] });
  const scaled = (name: string, factor: number, part: string, output: string): string =>
    factor === 1
      ? name
      : add(part, 'Mul', [name, context.literal(`${result}/${part}`, constant(dtype, [factor]))], output);
  const a = transposed(left, 'transA', `${result}/${left}.transposed`);
  const b = transposed(right, 'transB', `${result}/${right}.transposed`);
  const plain = addend === null || addend === '' || beta === 0;
  const matmul = add('', 'MatMul', [a, b], plain && alpha === 1 ? result : `${result}/product`);
  const raised = scaled(matmul, alpha, 'alpha', plain ? result : `${result}/scaled`);
  if (!plain) add('add', 'Add', [raised, scaled(addend, beta, 'beta', `${result}/addend`)], result);
  return nodes;
}

/** Indices that run through a whole dimension in order only give it another shape: exporters write strides like that. */
async function gatherAll(node: SourceNode, context: RewriteContext): Promise<readonly SourceNode[] | null> {
  const [data, indices] = node.inputs;
  if (!data || !indices) return null;
  const { shape } = context.typeOf(data);
  const rows = context.typeOf(indices).shape;
  const given = numberAttribute(node.attributes, 'axis', 0);
  const axis = given < 0 ? given + shape.length : given;
  const size = shape[axis];
  // A dimension of size 1 is left alone: its index may be one that a batch would count on.
  if (size === undefined || size < 2 || elementCount(rows) !== size) return null;
  const value = await context.heldValueOf(indices);
  if (!value || !runsInOrder(numbersOf(value), [size])) return null;
  const target = [...shape.slice(0, axis), ...rows, ...shape.slice(axis + 1)];
  return [{ ...node, op: 'Reshape', attributes: { shape: target }, inputs: [data] }];
}

/** Indices that run through all leading positions of the data in order select nothing: they only shape. */
async function gatherInOrder(node: SourceNode, context: RewriteContext): Promise<readonly SourceNode[] | null> {
  const [data, indices] = node.inputs;
  if (!data || !indices || numberAttribute(node.attributes, 'batch_dims', 0) !== 0) return null;
  const { shape } = context.typeOf(data);
  const rows = context.typeOf(indices).shape;
  const depth = rows.at(-1) ?? 0;
  const leading = shape.slice(0, depth);
  const count = elementCount(rows.slice(0, -1));
  if (count !== elementCount(leading) || depth === 0) return null;
  const value = await context.heldValueOf(indices);
  if (!value || !runsInOrder(numbersOf(value), leading)) return null;
  return [
    { ...node, op: 'Reshape', attributes: { shape: [...rows.slice(0, -1), ...shape.slice(depth)] }, inputs: [data] },
  ];
}

/** Indices of one coordinate each: rows of a table. */
function gatherRows(node: SourceNode, context: RewriteContext): readonly SourceNode[] | null {
  const [data, indices] = node.inputs;
  if (!data || !indices || numberAttribute(node.attributes, 'batch_dims', 0) !== 0) return null;
  const { shape } = context.typeOf(indices);
  if (shape.at(-1) !== 1) return null;
  const rows = shape.slice(0, -1);
  const gather = (by: string): SourceNode => ({ ...node, op: 'Gather', attributes: { axis: 0 }, inputs: [data, by] });
  const before = context.producerOf(indices);
  const [source] = before?.op === 'Unsqueeze' && before.domain === '' ? before.inputs : [];
  if (source && context.typeOf(source).shape.join() === rows.join()) return [gather(source)];
  const flat = `${resultOf(node)}/rows`;
  const view = { op: 'Reshape', attributes: { shape: rows }, inputs: [indices], outputs: [flat] };
  return [{ ...node, name: `${node.name}/rows`, ...view }, gather(flat)];
}

function runsInOrder(coordinates: readonly number[], sizes: readonly number[]): boolean {
  const depth = sizes.length;
  return coordinates.every((coordinate, position) => {
    const axis = position % depth;
    const inner = elementCount(sizes.slice(axis + 1));
    const expected = Math.floor(Math.floor(position / depth) / inner) % (sizes[axis] ?? 1);
    return (coordinate < 0 ? coordinate + (sizes[axis] ?? 0) : coordinate) === expected;
  });
}

function constantValue(node: SourceNode, context: RewriteContext): ConstantTensor {
  const { value, value_float, value_floats, value_int, value_ints } = node.attributes;
  if (typeof value === 'object' && 'dtype' in value) return value;
  if (typeof value_float === 'number') return constant('float32', [value_float]);
  if (typeof value_int === 'number') return constant('int64', [value_int]);
  if (value_floats !== undefined) return listValue('float32', numbersAttribute(node.attributes, 'value_floats'));
  if (value_ints !== undefined) return listValue('int64', numbersAttribute(node.attributes, 'value_ints'));
  throw new AutoparError(
    'unsupported-constant',
    'input',
    `node '${node.name || resultOf(node)}' is a Constant that holds ` +
      `${Object.keys(node.attributes).join(', ') || 'no value'}; numeric tensors are handled`,
    { file: context.file, node: node.name },
    'the computation must not use strings and sparse tensors',
  );
}

function listValue(dtype: 'float32' | 'int64', values: readonly number[]): ConstantTensor {
  return constant(dtype, values, [values.length]);
}

function named(node: SourceNode, context: RewriteContext, value: ConstantTensor): readonly SourceNode[] {
  context.alias(resultOf(node), context.literal(resultOf(node), value));
  return [];
}

function aliased(node: SourceNode, context: RewriteContext): readonly SourceNode[] {
  context.alias(resultOf(node), operandOf(node));
  return [];
}

function sameShape(node: SourceNode, type: TensorType, context: RewriteContext): boolean {
  const { shape } = context.typeOf(operandOf(node));
  return shape.length === type.shape.length && shape.every((size, axis) => size === type.shape[axis]);
}

function permutationOf(attribute: SourceAttribute | undefined, rank: number): readonly number[] {
  const given = numbersAttribute(attribute === undefined ? {} : { perm: attribute }, 'perm');
  return given.length > 0 ? given : Array.from({ length: rank }, (_, index) => rank - 1 - index);
}

function isVector(type: TensorType): boolean {
  return isFloating(type.dtype) && type.shape.length === 1 && elementCount(type.shape) > 1;
}

function operandOf(node: SourceNode): string {
  return node.inputs[0] ?? '';
}
