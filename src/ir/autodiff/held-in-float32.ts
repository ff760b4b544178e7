/**
 * @file 16 bit on devices that lack it. ONNX Runtime has no bfloat16 on a CPU, and computes what is float16 there in float32
 * without rounding between operators. So every tensor of such a type is held in float32, and rounded to what the type can hold
 * where an operator makes it, as its kernel would round its result. What is computed is what a device with that type computes,
 * but for sums inside of collectives, which are exact; what moves is twice as large.
 */
import { BLOCK_DOMAIN } from '../blocks/block.js';
import { type DType, onnxOfDtype } from '../dtype.js';
import type { AttributeValue, Graph, Node, TensorType, Weight } from '../graph.js';
import { constant, numbersOf } from '../ops/constants.js';
import { unusedName } from '../unused-name.js';
import type { LowType } from './mixed-precision.js';

const WIDE: DType = 'float32';

/** Attributes that name the type of a result. */
const DTYPE_ATTRIBUTES: ReadonlySet<string> = new Set(['to', 'dtype']);

/**
 * The graph without the type `low` but inside of rounding blocks. It must be free of other blocks, and have the type in no input
 * and in no weight of a file (`canBeHeldInFloat32`).
 */
export function heldInFloat32(graph: Graph, low: LowType): Graph {
  const narrow = (name: string | null) => name !== null && graph.tensors.get(name)?.dtype === low;
  const tensors = new Map([...graph.tensors].map(([name, type]) => [name, widened(type, low)] as const));
  const nodes = graph.nodes.flatMap((node): readonly Node[] => {
    if (!node.outputs.some(narrow)) return [node];
    const roundings: Node[] = [];
    const outputs = node.outputs.map((name) => {
      if (name === null || !narrow(name)) return name;
      const exact = unusedName(tensors, `${name}/exact`);
      const type = tensors.get(name) ?? { dtype: WIDE, shape: [] };
      tensors.set(exact, type);
      roundings.push(rounding(node, low, exact, name, type));
      return exact;
    });
    return [{ ...node, outputs, attributes: widenedAttributes(node, low) }, ...roundings];
  });
  const weights = new Map([...graph.weights].map(([name, weight]) => [name, widenedWeight(weight, low)] as const));
  return { ...graph, nodes, tensors, weights };
}

/** Whether the type is made inside of the graph alone. */
export function canBeHeldInFloat32(graph: Graph, low: LowType): boolean {
  return (
    graph.inputs.every((name) => graph.tensors.get(name)?.dtype !== low) &&
    [...graph.weights.values()].every(({ dtype, source }) => dtype !== low || source.kind === 'inline')
  );
}

/** A block that rounds to `low` and back: its two casts stay together, and none of them is moved. */
function rounding(
  { layer, module, scope, phase }: Node,
  low: LowType,
  from: string,
  to: string,
  type: TensorType,
): Node {
  const place = { layer, module, scope, phase, domain: '', body: null };
  const between = `${to}/narrow`;
  const step = (name: string, inputs: readonly string[], outputs: readonly string[], dtype: DType): Node => ({
    ...place,
    ...{ name, op: 'Cast', attributes: { to: onnxOfDtype(dtype) }, inputs, outputs, group: name },
  });
  const body: Graph = {
    name: 'Rounding',
    nodes: [step(`${to}/round`, [from], [between], low), step(`${to}/widen`, [between], [to], WIDE)],
    tensors: new Map([
      [from, type],
      [between, { ...type, dtype: low }],
      [to, type],
    ]),
    ...{ inputs: [from], outputs: [to], weights: new Map<string, Weight>(), state: [], batch: [] },
  };
  const name = `${to}/rounding`;
  const attributes = { to: onnxOfDtype(low) };
  return {
    ...place,
    name,
    op: 'Rounding',
    domain: BLOCK_DOMAIN,
    attributes,
    inputs: [from],
    outputs: [to],
    group: name,
    body,
  };
}

function widened(type: TensorType, low: LowType): TensorType {
  return type.dtype === low ? { ...type, dtype: WIDE } : type;
}

function widenedAttributes({ attributes }: Node, low: LowType): Node['attributes'] {
  const held = (name: string, value: AttributeValue): AttributeValue => {
    if (DTYPE_ATTRIBUTES.has(name) && value === onnxOfDtype(low)) return onnxOfDtype(WIDE);
    const isTensor = typeof value === 'object' && 'dtype' in value;
    return isTensor && value.dtype === low ? constant(WIDE, numbersOf(value), value.shape) : value;
  };
  return Object.fromEntries(Object.entries(attributes).map(([name, value]) => [name, held(name, value)]));
}

function widenedWeight(weight: Weight, low: LowType): Weight {
  if (weight.dtype !== low || weight.source.kind !== 'inline') return weight;
  const { data } = constant(WIDE, numbersOf({ ...weight, data: weight.source.data }), weight.shape);
  return { ...weight, dtype: WIDE, source: { kind: 'inline', data } };
}
