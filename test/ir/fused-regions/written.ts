/**
 * @file Graphs for the tests of region matchers, written as lines of `result = Operator(operands) {attributes}`, and their
 * regions run by ONNX Runtime.
 *
 *     s = MatMul(q, kt)
 *     p = Softmax(s) {"axis": -1}
 *     r = Reshape(p, [2, 4, 5])        a list is an int64 constant
 *     y = Mul(r, 0.5)                  a number a float32 scalar; 2i an int64 one, 0.5h float16, 0.5b bfloat16
 */
import { importModel } from '../../../src/api/models/import.js';
import type { DType } from '../../../src/ir/dtype.js';
import { findRegions } from '../../../src/ir/fused-regions/find-regions.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { RegionMatch } from '../../../src/ir/fused-regions/fused-region.js';
import { type ConstantTensor, elementCount, type Graph, typeOf } from '../../../src/ir/graph.js';
import type { NodeProto, TensorProto } from '../../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { evaluate } from '../../../src/runtime/evaluate.js';
import { float, type Given, model, node, ramp, saved, tensor, value } from '../model-maker.js';
import { noise } from '../same-results.js';

export type Shapes = Readonly<Record<string, readonly number[] | readonly [DType, ...number[]]>>;

export interface Written {
  readonly inputs: Shapes;
  /** Float32 parameters with made-up values. */
  readonly weights?: Readonly<Record<string, readonly number[]>>;
  readonly lines: string;
  /** The last line's results by default. */
  readonly outputs?: readonly string[];
  readonly opset?: number;
}

/** The graph that a file with these lines becomes, with no region in it recognised yet. */
async function graphOf(written: Written): Promise<Graph> {
  return flattenRegions((await importModel(await savedModel(written))).graph);
}

/** The path of a file with these lines. */
export async function savedModel({ inputs, weights = {}, lines, outputs, opset = 18 }: Written): Promise<string> {
  const constants: TensorProto[] = [];
  const nodes = lines
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => nodeOf(line, constants));
  const names = outputs ?? nodes.at(-1)?.output ?? [];
  const proto = model(
    {
      node: nodes,
      input: Object.entries(inputs).map(([name, given]) => value(name, shapeOf(given), dtypeOf(given))),
      // Results get their types by inference: here they are only named as results.
      output: names.map((name) => ({ name })),
      initializer: [...constants, ...Object.entries(weights).map(([name, shape]) => ramp(name, shape))],
    },
    opset,
    { ir_version: 10 },
  );
  return saved(proto);
}

/** The regions of the graph of `written`. */
export async function regionsOf(
  written: Written,
): Promise<{ readonly graph: Graph; readonly regions: readonly RegionMatch[] }> {
  const graph = await graphOf(written);
  return { graph, regions: findRegions(graph) };
}

export interface Ran {
  /** The region's inputs in its order. */
  readonly inputs: readonly ConstantTensor[];
  readonly output: ConstantTensor;
}

/** A region's body alone, run on made-up values: noise, alternating truth values, `labels` for whole numbers. */
export async function runRegion(graph: Graph, region: RegionMatch, labels: readonly number[] = [0]): Promise<Ran> {
  const names = new Set(
    region.nodes.flatMap((inner) => [...inner.inputs, ...inner.outputs].filter((name) => name !== null)),
  );
  const given = new Set(region.inputs);
  const body: Graph = {
    ...graph,
    nodes: region.nodes,
    inputs: region.inputs,
    outputs: region.outputs,
    tensors: new Map([...names].map((name) => [name, typeOf(graph, name)])),
    weights: new Map([...graph.weights].filter(([name]) => names.has(name) && !given.has(name))),
  };
  const inputs = region.inputs.map((name, seed) => madeUp(graph, name, seed, labels));
  const feeds = Object.fromEntries(region.inputs.map((name, place) => [name, inputs[place] as ConstantTensor]));
  const [name = ''] = region.outputs;
  const results = await evaluate(writeOnnx(body), feeds);
  return { inputs, output: results[name] as ConstantTensor };
}

function madeUp(graph: Graph, name: string, seed: number, labels: readonly number[]): ConstantTensor {
  const { dtype, shape } = typeOf(graph, name);
  const count = elementCount(shape);
  const known = graph.weights.get(name);
  if (known?.source.kind === 'inline' && dtype !== 'float32') return { dtype, shape, data: known.source.data };
  if (dtype === 'bool')
    return constant(
      dtype,
      Array.from({ length: count }, (_, place) => Number(place % 3 > 0)),
      shape,
    );
  if (/int/.test(dtype))
    return constant(
      dtype,
      Array.from({ length: count }, (_, place) => labels[place % labels.length] ?? 0),
      shape,
    );
  return constant(dtype, numbersOf(noise(shape, 1000 + 77 * seed)), shape);
}

function nodeOf(line: string, constants: TensorProto[]): NodeProto {
  const [, results = '', op = '', operands = '', attributes = '{}'] =
    /^\s*(.+?) = (\w+)\((.*?)\)\s*(\{.*\})?\s*$/.exec(line) ?? [];
  if (op === '') throw new Error(`not a line of a graph: ${line}`);
  const inputs = (operands.match(/\[[^\]]*\]|[^,\s][^,]*/g) ?? []).map((text) => operandOf(text.trim(), constants));
  const given = Object.entries(JSON.parse(attributes) as Record<string, Given>).map(([name, held]) => [
    name,
    typeof held === 'number' && !Number.isInteger(held) ? float(held) : held,
  ]);
  return node(
    op,
    inputs,
    results.split(',').map((name) => name.trim()),
    Object.fromEntries(given) as Record<string, Given>,
  );
}

const SUFFIXES: Readonly<Record<string, DType>> = { '': 'float32', i: 'int64', h: 'float16', b: 'bfloat16' };

function operandOf(text: string, constants: TensorProto[]): string {
  if (text === '_') return '';
  const name = `constant.${constants.length}`;
  if (text.startsWith('[')) {
    const values = JSON.parse(text) as number[];
    constants.push(tensor(name, [values.length], values, 'int64'));
    return name;
  }
  const [, number, suffix = ''] = /^(-?[\d.]+(?:e-?\d+)?|-inf)([ihb]?)$/.exec(text) ?? [];
  if (number === undefined) return text;
  constants.push(
    tensor(name, [], [number === '-inf' ? Number.NEGATIVE_INFINITY : Number(number)], SUFFIXES[suffix] ?? 'float32'),
  );
  return name;
}

function dtypeOf(given: Shapes[string]): DType {
  const [first] = given;
  return typeof first === 'string' ? first : 'float32';
}

function shapeOf(given: readonly (number | DType)[]): readonly number[] {
  return given.filter((size) => typeof size === 'number');
}
