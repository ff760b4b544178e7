/**
 * @file Protobuf by hand, for files that no encoder writes: holes where weights would be, a node a million times over,
 * subgraphs nested without end.
 */
import { closeSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { encodeModel, type GraphProto } from '../../src/ir/onnx/schema.js';

const FIELD = {
  graphOfModel: 7,
  nodeOfGraph: 1,
  initializerOfGraph: 5,
  attributeOfNode: 5,
  graphOfAttribute: 6,
} as const;

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) bytes.push((rest % 0x80) + 0x80);
  return Uint8Array.of(...bytes, rest);
}

/** A length-delimited field; `length` where the content follows elsewhere. */
export function field(number: number, content: Uint8Array, length = content.length): Uint8Array {
  return Buffer.concat([varint(number * 8 + 2), varint(length), content]);
}

/** The bytes of a graph, without the model around it. */
export function graphBytes(graph: GraphProto): Uint8Array {
  const whole = encodeModel({ graph });
  let start = 1;
  while ((whole[start] ?? 0) >= 0x80) start += 1;
  return whole.subarray(start + 1);
}

/** A model of IR 8 and opset 18 around the bytes of a graph. */
export function modelOf(graph: Uint8Array): Uint8Array {
  const head = encodeModel({ ir_version: 8, opset_import: [{ domain: '', version: 18 }] });
  return Buffer.concat([head, field(FIELD.graphOfModel, graph)]);
}

/** `graph` with one more node, `times` over: the bytes only, names are all the same. */
export function repeated(graph: GraphProto, node: NonNullable<GraphProto['node']>[number], times: number): Uint8Array {
  const one = Buffer.from(graphBytes({ node: [node] }));
  return modelOf(Buffer.concat([graphBytes(graph), Buffer.alloc(one.length * times, one)]));
}

/** An If in the branch of an If in the branch of an If …, `depth` deep. */
export function nestedIfs(depth: number, inner: GraphProto, outer: GraphProto): Uint8Array {
  let bytes = graphBytes(inner);
  const attribute = (name: string, graph: Uint8Array) => {
    const words = Buffer.concat([
      field(1, Buffer.from(name)),
      field(FIELD.graphOfAttribute, graph),
      Uint8Array.of(0xa0, 0x01, 5),
    ]);
    return field(FIELD.attributeOfNode, words);
  };
  for (let level = 0; level < depth; level++) {
    const node = graphBytes({ node: [{ op_type: 'If', input: ['c'], output: [level === depth - 1 ? 'y' : 'o'] }] });
    // Without the node's own header, so that its attributes can follow.
    const body = node.subarray(2);
    const branches = [attribute('then_branch', bytes), attribute('else_branch', graphBytes(inner))];
    const whole = field(FIELD.nodeOfGraph, Buffer.concat([body, ...branches]));
    bytes = Buffer.concat([whole, graphBytes(level === depth - 1 ? outer : { output: inner.output ?? [] })]);
  }
  return modelOf(bytes);
}

/** A float32 weight in a file with holes. */
export interface HollowWeight {
  readonly name: string;
  readonly shape: readonly number[];
}

/** Writes a model whose weights are inside the file, and take no room on the disk: they are holes. */
export function writeHollow(file: string, graph: GraphProto, weights: readonly HollowWeight[]): void {
  const rest = graphBytes(graph);
  const tensors = weights.map(({ name, shape }) => {
    const length = 4 * shape.reduce((product, size) => product * size, 1);
    const sizes = shape.flatMap((size) => [Uint8Array.of(8), varint(size)]);
    const head = [...sizes, Uint8Array.of(16, 1), field(8, Buffer.from(name)), field(9, new Uint8Array(0), length)];
    return { head: field(FIELD.initializerOfGraph, Buffer.concat(head), Buffer.concat(head).length + length), length };
  });
  const total = tensors.reduce((sum, { head, length }) => sum + head.length + length, rest.length);
  const handle = openSync(file, 'w');
  let position = 0;
  const put = (bytes: Uint8Array) => {
    writeSync(handle, bytes, 0, bytes.length, position);
    position += bytes.length;
  };
  put(encodeModel({ ir_version: 8, opset_import: [{ domain: '', version: 18 }] }));
  put(field(FIELD.graphOfModel, new Uint8Array(0), total));
  for (const { head, length } of tensors) {
    put(head);
    position += length;
  }
  put(rest);
  closeSync(handle);
}

/** A file of `bytes` bytes that takes no room. */
export function writeHole(file: string, bytes: number): void {
  const handle = openSync(file, 'w');
  ftruncateSync(handle, bytes);
  closeSync(handle);
}
