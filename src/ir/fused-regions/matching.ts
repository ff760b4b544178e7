/**
 * @file Helpers of the matchers: the maker and the readers of a tensor, the value of a scalar, and whether a set of nodes may be
 * one region.
 *
 * Every matcher starts at a node that only its region has (a Softmax, an Erf), walks to the rest through tensors that have
 * one reader, and passes a Draft to `closed`. Walking through tensors with one reader keeps all of them together linear in
 * the graph: no node is on the walks of two starts of one kind.
 */
import { dtypeBits, isFloating } from '../dtype.js';
import {
  type Attributes,
  type AttributeValue,
  elementCount,
  type Graph,
  type Node,
  type TensorType,
  typeOf,
} from '../graph.js';
import { type Makers, makersOf, type Readers, readersOf } from '../makers-and-readers.js';
import type { RegionKind } from '../operator.js';
import { numbersOf } from '../ops/constants.js';
import type { RegionMatch } from './fused-region.js';

/** A graph with the maps that all matchers use. Built once per graph. */
export interface GraphIndex {
  readonly graph: Graph;
  readonly makers: Makers<Node>;
  /** The nodes that read a tensor, each once. */
  readonly readers: Readers<Node>;
  readonly positions: ReadonlyMap<Node, number>;
  readonly outputs: ReadonlySet<string>;
}

/** The result of a matcher: `closed` turns it into a match if it is valid. */
export interface DraftMatch {
  readonly kind: RegionKind;
  readonly nodes: Iterable<Node>;
  /** The inputs that a fused kernel names, in its order; the rest follow. */
  readonly inputs: readonly string[];
  readonly output: string;
  readonly attributes: Attributes;
}

/** Indexes a graph; linear in its nodes. */
export function indexGraph(graph: Graph): GraphIndex {
  const { nodes } = graph;
  const positions = new Map(nodes.map((node, position) => [node, position]));
  return { graph, makers: makersOf(nodes), readers: readersOf(nodes), positions, outputs: new Set(graph.outputs) };
}

/** Whether a node is one of these operators of ONNX's own domain. */
export function isOp(node: Node, ...ops: readonly string[]): boolean {
  return node.domain === '' && node.body === null && ops.includes(node.op);
}

/** The node that makes `tensor`, if it is one of these operators (any standard operator where none is named). */
export function makerOf(index: GraphIndex, tensor: string | null | undefined, ...ops: readonly string[]): Node | null {
  const node = tensor ? index.makers.get(tensor) : undefined;
  if (!node) return null;
  return (ops.length === 0 ? node.domain === '' && node.body === null : isOp(node, ...ops)) ? node : null;
}

/** The one node that reads `tensor`; null where there are more or none, or if the tensor is an output of the graph. */
export function soleReader(index: GraphIndex, tensor: string | null | undefined): Node | null {
  if (!tensor || index.outputs.has(tensor)) return null;
  const [reader, another] = index.readers.get(tensor) ?? [];
  return reader && !another ? reader : null;
}

/** Whether nothing but `nodes` reads `tensor`. */
export function readOnlyBy(index: GraphIndex, tensor: string, nodes: ReadonlySet<Node>): boolean {
  return !index.outputs.has(tensor) && (index.readers.get(tensor) ?? []).every((reader) => nodes.has(reader));
}

/** An operand, the first by default; nodes of a graph have every operand that their operator requires. */
export function operandOf(node: Node, position = 0): string {
  return node.inputs[position] ?? '';
}

export function resultOf(node: Pick<Node, 'outputs'>): string {
  return node.outputs[0] ?? '';
}

/** The other operand of a binary node: for x · x it is x. Null if `tensor` is not an operand. */
export function otherOperand(node: Node, tensor: string): string | null {
  const [left, right] = node.inputs;
  if (!left || !right || node.inputs.length !== 2) return null;
  if (left === tensor) return right;
  return right === tensor ? left : null;
}

export function shapeOf(index: GraphIndex, tensor: string): readonly number[] {
  return typeOf(index.graph, tensor).shape;
}

export function typeIn(index: GraphIndex, tensor: string): TensorType {
  return typeOf(index.graph, tensor);
}

/** Operators that keep the value of a scalar. */
const CARRIERS = ['Cast', 'Identity', 'Expand', 'Reshape', 'Unsqueeze', 'Squeeze'];

/**
 * The value of a tensor that is one known number, also where it is cast or expanded. Parameters have none: training
 * changes them.
 */
export function scalarOf(index: GraphIndex, tensor: string | null | undefined): number | null {
  let source = tensor ?? '';
  for (let steps = 0; steps < CARRIERS.length; steps++) {
    const maker = makerOf(index, source, ...CARRIERS);
    if (!maker) break;
    source = operandOf(maker);
  }
  const weight = index.graph.weights.get(source);
  if (!weight || weight.role === 'parameter' || weight.source.kind !== 'inline') return null;
  if (elementCount(weight.shape) !== 1 || weight.dtype === 'string') return null;
  return readableNumbers(weight.dtype, weight.shape, weight.source.data)?.[0] ?? null;
}

/** The values of a constant whose bytes are in memory, up to `limit` elements; null for other tensors. */
export function valuesOf(index: GraphIndex, tensor: string, limit = 65536): readonly number[] | null {
  const weight = index.graph.weights.get(tensor);
  if (!weight || weight.role === 'parameter' || weight.source.kind !== 'inline') return null;
  return elementCount(weight.shape) <= limit ? readableNumbers(weight.dtype, weight.shape, weight.source.data) : null;
}

function readableNumbers(
  dtype: TensorType['dtype'],
  shape: readonly number[],
  data: Uint8Array,
): readonly number[] | null {
  // 8-bit floats, packed and complex types have no reader: no region has such constants.
  const plain = /^(float(16|32|64)|bfloat16|u?int(8|16|32|64)|bool)$/.test(dtype);
  return plain ? numbersOf({ dtype, shape, data }) : null;
}

export function numberAttribute(node: Node, name: string, otherwise: number): number {
  const value: AttributeValue | undefined = node.attributes[name];
  return typeof value === 'number' ? value : otherwise;
}

export function numbersAttribute(node: Node, name: string): readonly number[] {
  const value: AttributeValue | undefined = node.attributes[name];
  if (typeof value === 'number') return [value];
  return Array.isArray(value) && value.every((item) => typeof item === 'number') ? value : [];
}

/** Whether a node changes the precision of real numbers and nothing else. */
export function isFloatCast(index: GraphIndex, node: Node): boolean {
  return (
    isOp(node, 'Cast') &&
    isFloating(typeIn(index, operandOf(node)).dtype) &&
    isFloating(typeIn(index, resultOf(node)).dtype)
  );
}

/** Whether a node raises the precision of real numbers, as before statistics or sums, and does nothing else. */
export function isWidening(index: GraphIndex, node: Node): boolean {
  if (!isFloatCast(index, node)) return false;
  return dtypeBits(typeIn(index, resultOf(node)).dtype) > dtypeBits(typeIn(index, operandOf(node)).dtype);
}

/**
 * The region that a draft describes; null if it is not valid: fewer than two nodes, or a tensor inside that others read.
 * A valid region is convex: all its nodes lead to its one output, so a path that leaves it and comes back would be a cycle.
 */
export function closed(index: GraphIndex, draft: DraftMatch): RegionMatch | null {
  const nodes = new Set(draft.nodes);
  if (nodes.size < 2) return null;
  const made = new Set<string>();
  for (const node of nodes) {
    for (const output of node.outputs) {
      if (output === null) continue;
      made.add(output);
      if (output !== draft.output && !readOnlyBy(index, output, nodes)) return null;
    }
  }
  const ordered = [...nodes].sort((a, b) => positionOf(index, a) - positionOf(index, b));
  const read = new Set(ordered.flatMap((node) => node.inputs.filter((input) => input !== null)));
  const given = [...draft.inputs.filter((input) => read.has(input)), ...read];
  return {
    kind: draft.kind,
    nodes: ordered,
    inputs: [...new Set(given)].filter((input) => !made.has(input) && !isScalarConstant(index, input)),
    outputs: [draft.output],
    attributes: draft.attributes,
  };
}

/**
 * The draft with the casts around it: half-precision models compute some regions in float32, and a fused kernel does so by
 * itself. Only where the first input is cast up for this region alone and its result is cast back.
 */
export function withCasts(index: GraphIndex, draft: DraftMatch): DraftMatch {
  const nodes = new Set(draft.nodes);
  const last = soleReader(index, draft.output);
  if (!last || !isFloatCast(index, last)) return draft;
  const casts = draft.inputs.map((input) => {
    const cast = makerOf(index, input, 'Cast');
    return cast && isWidening(index, cast) && readOnlyBy(index, input, nodes) ? cast : null;
  });
  const [first] = casts;
  const { dtype } = typeIn(index, resultOf(last));
  if (!first || typeIn(index, operandOf(first)).dtype !== dtype) return draft;
  const taken = casts.map((cast) => (cast && typeIn(index, operandOf(cast)).dtype === dtype ? cast : null));
  return {
    ...draft,
    nodes: [...nodes, last, ...taken.filter((cast) => cast !== null)],
    inputs: draft.inputs.map((input, position) => {
      const cast = taken[position];
      return cast ? operandOf(cast) : input;
    }),
    output: resultOf(last),
  };
}

export function positionOf(index: GraphIndex, node: Node): number {
  return index.positions.get(node) ?? -1;
}

function isScalarConstant(index: GraphIndex, tensor: string): boolean {
  const weight = index.graph.weights.get(tensor);
  return weight !== undefined && weight.role === 'constant' && elementCount(weight.shape) === 1;
}
