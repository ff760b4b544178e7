/**
 * @file 16 bit on devices that lack it. ONNX Runtime has no bfloat16 on a CPU, and computes float16 there in float32 without
 * rounding between operators. So every tensor of such a type is held in float32, and rounded to the precision of the type
 * where an operator makes it, as its kernel would round its result. The results are those of a device with that type, except
 * for sums inside of collectives, which are exact; the communication volume is twice as large.
 */

import { type DType, onnxOfDtype } from '../dtype.js';
import { REGION_DOMAIN } from '../fused-regions/fused-region.js';
import type { AttributeValue, Graph, Node, TensorType, Weight } from '../graph.js';
import { convertedSource } from '../onnx/converted-source.js';
import { constant, numbersOf } from '../ops/constants.js';
import { operatorRole } from '../ops/index.js';
import { plainNode } from '../plain-node.js';
import { unusedName } from '../unused-name.js';
import type { LowType } from './mixed-precision.js';

const WIDE = 'float32';

/** Attributes that name the type of a result. */
const DTYPE_ATTRIBUTES: ReadonlySet<string> = new Set(['to', 'dtype']);

/**
 * The graph without the type `low`, except inside of regions. No input and no weight of a file may have the type
 * (`canBeHeldInFloat32`).
 */
export function heldInFloat32(graph: Graph, low: LowType): Graph {
  return held(graph, low, (near, from, to, type) => [rounding(near, low, from, to, type)]);
}

/** The graph with float32 in place of `low`, without rounding: operators stay, and casts to or from `low` become Identity. */
export function inFloat32(graph: Graph, low: LowType): Graph {
  const tensors = new Map([...graph.tensors].map(([name, type]) => [name, widened(type, low)] as const));
  const typeOf = (name: string | null | undefined) => tensors.get(name ?? '')?.dtype;
  const nodes = graph.nodes.map((node): Node => {
    if (node.body) return { ...node, body: inFloat32(node.body, low) };
    if (operatorRole(node) === 'cast' && typeOf(node.inputs[0]) === typeOf(node.outputs[0]))
      return { ...node, op: 'Identity', attributes: {} };
    return { ...node, attributes: widenedAttributes(node, low) };
  });
  const weights = new Map([...graph.weights].map(([name, weight]) => [name, widenedWeight(weight, low)] as const));
  return { ...graph, nodes, tensors, weights };
}

/** Writes the operators that round `from` to `to`, after an operator. */
type RoundWriter = (near: Node, from: string, to: string, type: TensorType) => readonly Node[];

function held(graph: Graph, low: LowType, round: RoundWriter): Graph {
  const narrow = (name: string | null) => name !== null && graph.tensors.get(name)?.dtype === low;
  const tensors = new Map([...graph.tensors].map(([name, type]) => [name, widened(type, low)] as const));
  const nodes = graph.nodes.flatMap((node): readonly Node[] => {
    if (node.body) return [{ ...node, body: heldInside(node.body, low) }];
    if (!node.outputs.some(narrow)) return [node];
    const roundings: Node[] = [];
    const outputs = node.outputs.map((name) => {
      if (name === null || !narrow(name)) return name;
      const exact = unusedName(tensors, `${name}/exact`);
      const type = tensors.get(name) ?? { dtype: WIDE, shape: [] };
      tensors.set(exact, type);
      roundings.push(...round(node, exact, name, type));
      return exact;
    });
    return [{ ...node, outputs, attributes: widenedAttributes(node, low) }, ...roundings];
  });
  const weights = new Map([...graph.weights].map(([name, weight]) => [name, widenedWeight(weight, low)] as const));
  return { ...graph, nodes, tensors, weights };
}

/** Whether tensors of the type are made inside of the graph only. */
export function canBeHeldInFloat32(graph: Graph, low: LowType): boolean {
  return (
    graph.inputs.every((name) => graph.tensors.get(name)?.dtype !== low) &&
    [...graph.weights.values()].every(({ dtype, source }) => dtype !== low || source.kind === 'inline')
  );
}

/** A region's body: it is lowered as one, so that the casts need no region of their own. */
function heldInside(body: Graph, low: LowType): Graph {
  const between = new Map<string, TensorType>();
  const graph = held(body, low, (near, from, to, type) => {
    between.set(`${to}/narrow`, { ...type, dtype: low });
    return casts(near, low, from, to);
  });
  return { ...graph, tensors: new Map([...graph.tensors, ...between]) };
}

/** To `low` and back. */
function casts({ layer, module, phase, forward }: Node, low: LowType, from: string, to: string): readonly Node[] {
  const between = `${to}/narrow`;
  const step = (name: string, input: string, output: string, dtype: DType): Node =>
    plainNode({
      ...{ layer, module, phase, forward },
      ...{ name, op: 'Cast', attributes: { to: onnxOfDtype(dtype) }, inputs: [input], outputs: [output] },
    });
  return [step(`${to}/round`, from, between, low), step(`${to}/widen`, between, to, WIDE)];
}

/** A region that rounds to `low` and back: its two casts stay together, and none of them is moved. */
function rounding(near: Node, low: LowType, from: string, to: string, type: TensorType): Node {
  const { layer, module, phase, forward } = near;
  const body: Graph = {
    name: 'Rounding',
    nodes: casts(near, low, from, to),
    tensors: new Map([
      [from, type],
      [`${to}/narrow`, { ...type, dtype: low }],
      [to, type],
    ]),
    ...{ inputs: [from], outputs: [to], weights: new Map<string, Weight>(), state: [], batch: [] },
  };
  const name = `${to}/rounding`;
  const attributes = { to: onnxOfDtype(low) };
  return plainNode({
    ...{ layer, module, phase, forward },
    ...{ name, op: 'Rounding', domain: REGION_DOMAIN, attributes, inputs: [from], outputs: [to], body },
  });
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
  return weight.dtype === low ? { ...weight, dtype: WIDE, source: convertedSource(weight.source, low, WIDE) } : weight;
}
