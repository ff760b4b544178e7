/**
 * @file Pass `opset`: operators of opsets 1 to 28 in their INTERNAL_OPSET form, as a table from operator to conversion
 * (first-opsets.ts leads from 1 to 7, later-opsets.ts back from 28).
 *
 * Where only an attribute became an input nothing is to be done: a Graph keeps such values as attributes anyway
 * (`constantInputs`), under the names that the old opsets used. The table holds all other changes.
 */
import { type DType, onnxOfDtype } from '../dtype.js';
import { INTERNAL_OPSET } from '../graph.js';
import type { SourceAttributes, SourceNode } from '../onnx/model.js';
import { constant } from '../ops/constants.js';
import { BROADCASTING_OPSET, type Conversion, convertFirstOpsets } from './first-opsets.js';
import { convertLaterOpsets } from './later-opsets.js';
import { numberAttribute, numbersAttribute, type Rewrite, type RewriteContext } from './rewrite.js';

/** Softmax and its kin flattened their operand to two dimensions before opset 13. */
const flattening: Conversion = {
  below: 13,
  rewrite: (node, context) => {
    const [input] = node.inputs;
    const [output] = node.outputs;
    if (!input || !output) return null;
    const rank = context.typeOf(input).shape.length;
    const given = numberAttribute(node.attributes, 'axis', 1);
    const axis = given < 0 ? given + rank : given;
    if (axis === rank - 1) return [{ ...node, attributes: { ...node.attributes, axis: -1 } }];
    const { shape } = context.typeOf(input);
    const rows = shape.slice(0, axis).reduce((product, size) => product * size, 1);
    const flat = `${output}/flat`;
    const soft = `${output}/soft`;
    return [
      { ...node, name: `${node.name}/flatten`, op: 'Reshape', attributes: { shape: [rows, -1] }, outputs: [flat] },
      { ...node, attributes: { ...node.attributes, axis: -1 }, inputs: [flat], outputs: [soft] },
      { ...node, name: `${node.name}/unflatten`, op: 'Reshape', attributes: { shape: [...shape] }, inputs: [soft] },
    ];
  },
};

/** Clip's bounds were attributes; they became inputs that may be left out. */
const clip: Conversion = {
  below: 11,
  rewrite: (node, context) => {
    const { min, max, ...attributes } = node.attributes;
    const dtype = context.typeOf(node.inputs[0] ?? '').dtype;
    const bound = (value: unknown, name: string): string | null =>
      typeof value === 'number' ? context.literal(`${node.name}.${name}`, constant(dtype, [value])) : null;
    return [{ ...node, attributes, inputs: [node.inputs[0] ?? null, bound(min, 'min'), bound(max, 'max')] }];
  },
};

/** Upsample is Resize with the coordinates that Resize calls asymmetric. */
const upsample: Conversion = {
  below: INTERNAL_OPSET,
  rewrite: (node, context) => {
    const { scales, mode, ...attributes } = node.attributes;
    const given =
      node.inputs[1] ??
      context.literal(
        `${node.name}.scales`,
        constant('float32', numbersAttribute({ scales: scales ?? [] }, 'scales'), [
          numbersAttribute({ scales: scales ?? [] }, 'scales').length,
        ]),
      );
    return [
      {
        ...node,
        op: 'Resize',
        attributes: resizeAsymmetric({ ...attributes, mode: mode ?? 'nearest' }),
        inputs: [node.inputs[0] ?? null, null, given],
      },
    ];
  },
};

const resize: Conversion = {
  below: 11,
  rewrite: (node) => [
    {
      ...node,
      attributes: resizeAsymmetric(node.attributes),
      inputs: [node.inputs[0] ?? null, null, node.inputs[1] ?? null],
    },
  ],
};

/** Pad's fill value was an attribute. */
const pad: Conversion = {
  below: 11,
  rewrite: (node, context) => {
    const { value, ...attributes } = node.attributes;
    const dtype = context.typeOf(node.inputs[0] ?? '').dtype;
    return [
      {
        ...node,
        attributes: { ...attributes, constant_value: constant(dtype, [typeof value === 'number' ? value : 0]) },
      },
    ];
  },
};

/** Scale and bias of GroupNormalization were per group; they are per channel now. */
const groupNormalization: Conversion = {
  below: 21,
  rewrite: (node, context) => {
    const [input = null, scale = null, bias = null] = node.inputs;
    const channels = context.typeOf(input ?? '').shape[1] ?? 1;
    const groups = numberAttribute(node.attributes, 'num_groups', 1);
    const spread = (name: string | null, role: string): readonly SourceNode[] => [
      {
        ...node,
        name: `${node.name}/${role}`,
        op: 'Reshape',
        attributes: { shape: [groups, 1] },
        inputs: [name],
        outputs: [`${node.outputs[0]}/${role}.1`],
      },
      {
        ...node,
        name: `${node.name}/${role}/expand`,
        op: 'Expand',
        attributes: { shape: [groups, channels / groups] },
        inputs: [`${node.outputs[0]}/${role}.1`],
        outputs: [`${node.outputs[0]}/${role}.2`],
      },
      {
        ...node,
        name: `${node.name}/${role}/flat`,
        op: 'Reshape',
        attributes: { shape: [channels] },
        inputs: [`${node.outputs[0]}/${role}.2`],
        outputs: [`${node.outputs[0]}/${role}.3`],
      },
    ];
    return [
      ...spread(scale, 'scale'),
      ...spread(bias, 'bias'),
      { ...node, inputs: [input, `${node.outputs[0]}/scale.3`, `${node.outputs[0]}/bias.3`] },
    ];
  },
};

/**
 * Before ONNX had it, ONNX Runtime's own LayerNormalization took scale and bias of another type than the data. It computes in
 * float32 (float64 where either is), and its result has the type of the scale.
 */
const layerNormalization: Conversion = {
  below: 17,
  rewrite: (node, context) => {
    const [data = null, scale = null, bias = null] = node.inputs;
    const [result, ...statistics] = node.outputs;
    if (!data || !scale || !result) return null;
    const [given, own] = [context.typeOf(data).dtype, context.typeOf(scale).dtype];
    if (given === own) return null;
    const wide: DType = given === 'float64' || own === 'float64' ? 'float64' : 'float32';
    const cast = (input: string, output: string, to: DType): SourceNode => ({
      ...node,
      name: `${node.name || result}/${output.slice(result.length + 1) || 'result'}`,
      op: 'Cast',
      attributes: { to: onnxOfDtype(to) },
      inputs: [input],
      outputs: [output],
    });
    const widened = [data, scale, bias].map((input, index) => {
      if (input === null || context.typeOf(input).dtype === wide) return { input, casts: [] };
      const output = `${result}/${['data', 'scale', 'bias'][index]}`;
      return { input: output, casts: [cast(input, output, wide)] };
    });
    const made = own === wide ? result : `${result}/wide`;
    return [
      ...widened.flatMap(({ casts }) => casts),
      { ...node, inputs: widened.map(({ input }) => input), outputs: [made, ...statistics] },
      ...(made === result ? [] : [cast(made, result, own)]),
    ];
  },
};

const CONVERSIONS: Readonly<Record<string, readonly Conversion[]>> = {
  Softmax: [flattening],
  LogSoftmax: [flattening],
  Hardmax: [flattening],
  Clip: [clip],
  Upsample: [upsample],
  Resize: [resize],
  Pad: [pad],
  GroupNormalization: [groupNormalization],
  LayerNormalization: [layerNormalization],
  Scatter: [{ below: INTERNAL_OPSET, rewrite: (node) => [{ ...node, op: 'ScatterElements' }] }],
  BatchNormalization: [
    {
      below: 9,
      rewrite: (node, context) => perActivation(node, context) ?? dropped('spatial', 'is_test')(node, context),
    },
    { below: 14, rewrite: dropped('is_test') },
  ],
  GridSample: [
    { below: 20, rewrite: (node) => [{ ...node, attributes: { ...node.attributes, mode: sampling(node) } }] },
  ],
  Cast: [{ below: 9, rewrite: (node) => [node] }],
  RoiAlign: [{ below: 16, rewrite: withDefault('coordinate_transformation_mode', 'output_half_pixel') }],
  DFT: [{ below: 20, rewrite: (node) => [{ ...node, attributes: { axis: 1, ...node.attributes } }] }],
};

/** The node at INTERNAL_OPSET: itself, or the nodes that replace it. Types of its operands must be known to `context`. */
export const convertOpset: Rewrite = (node, context) => {
  if (node.domain !== '' || node.opset === INTERNAL_OPSET || node.opset === 0) return null;
  if (node.opset > INTERNAL_OPSET) return convertLaterOpsets(node, context);
  if (node.opset < BROADCASTING_OPSET) return convertFirstOpsets(node, context);
  const known = Object.hasOwn(CONVERSIONS, node.op) ? CONVERSIONS[node.op] : undefined;
  const conversion = known?.find((item) => node.opset < item.below);
  const converted = conversion ? apply(conversion.rewrite, node, context) : null;
  return converted?.map((item) => ({ ...item, opset: INTERNAL_OPSET })) ?? null;
};

function apply(rewrite: Rewrite, node: SourceNode, context: RewriteContext): readonly SourceNode[] | null {
  const result = rewrite(node, context);
  if (result instanceof Promise) throw new Error('conversions are synchronous');
  return result;
}

function dropped(...names: readonly string[]): Rewrite {
  return (node) => [
    {
      ...node,
      attributes: Object.fromEntries(Object.entries(node.attributes).filter(([name]) => !names.includes(name))),
    },
  ];
}

/** Modes of GridSample were named for images, which have two dimensions. */
function sampling({ attributes }: SourceNode): string {
  const { mode = 'bilinear' } = attributes;
  return mode === 'bilinear' ? 'linear' : mode === 'bicubic' ? 'cubic' : String(mode);
}

/** With `spatial` 0, every element of a sample had its own mean, variance, scale and bias. Null where it is not so. */
function perActivation(node: SourceNode, context: RewriteContext): readonly SourceNode[] | null {
  if (numberAttribute(node.attributes, 'spatial', 1) !== 0) return null;
  const [x = null, scale = null, bias = null, mean = null, variance = null] = node.inputs;
  const [y = ''] = node.outputs;
  const epsilon = numberAttribute(node.attributes, 'epsilon', 1e-5);
  const step = (op: string, role: string, ...inputs: readonly (string | null)[]): SourceNode => ({
    ...node,
    name: `${node.name || y}/${role}`,
    op,
    attributes: {},
    inputs,
    outputs: [`${y}/${role}`],
  });
  const { dtype } = context.typeOf(variance ?? '');
  const least = context.literal(`${y}/epsilon`, constant(dtype, [epsilon]));
  return [
    step('Sub', 'centred', x, mean),
    step('Add', 'spread', variance, least),
    step('Sqrt', 'deviation', `${y}/spread`),
    step('Div', 'unit', `${y}/centred`, `${y}/deviation`),
    step('Mul', 'scaled', `${y}/unit`, scale),
    { ...step('Add', 'shifted', `${y}/scaled`, bias), outputs: [y] },
  ];
}

/** An attribute that a later opset introduced, with the value for the behaviour before. */
function withDefault(name: string, value: string): Rewrite {
  return (node) => [{ ...node, attributes: { [name]: value, ...node.attributes } }];
}

function resizeAsymmetric(attributes: SourceAttributes): SourceAttributes {
  return { ...attributes, coordinate_transformation_mode: 'asymmetric', nearest_mode: 'floor' };
}
