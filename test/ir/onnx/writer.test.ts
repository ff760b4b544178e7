import { createRequire } from 'node:module';
import test from 'ava';
import type { Graph, Node, TensorType, Weight } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant } from '../../../src/ir/ops/constants.js';

/** The independent decoder's messages, as far as these tests look at them. */
interface Decoded {
  readonly irVersion: number;
  readonly opsetImport: readonly { domain: string; version: number }[];
  readonly graph: {
    readonly name: string;
    readonly node: readonly {
      name: string;
      opType: string;
      domain: string;
      input: string[];
      output: string[];
      attribute: readonly DecodedAttribute[];
    }[];
    readonly initializer: readonly {
      name: string;
      dims: number[];
      dataType: number;
      rawData: Uint8Array;
      dataLocation: number;
      externalData: readonly { key: string; value: string }[];
    }[];
    readonly input: readonly DecodedValue[];
    readonly output: readonly DecodedValue[];
  };
}
interface DecodedAttribute {
  readonly name: string;
  readonly type: number;
  readonly f: number;
  readonly i: number;
  readonly s: Uint8Array;
  readonly ints: readonly number[];
  readonly floats: readonly number[];
  readonly t: { dims: number[]; dataType: number } | null;
}
interface DecodedValue {
  readonly name: string;
  readonly type: { tensorType: { elemType: number; shape: { dim: readonly { dimValue: number }[] } } };
}
const { onnx } = createRequire(import.meta.url)('onnx-proto') as {
  onnx: { ModelProto: { decode(bytes: Uint8Array): object; toObject(message: object, options: object): Decoded } };
};

function decode(bytes: Uint8Array): Decoded {
  return onnx.ModelProto.toObject(onnx.ModelProto.decode(bytes), { longs: Number, defaults: true });
}

const node = (
  name: string,
  op: string,
  inputs: Node['inputs'],
  outputs: Node['outputs'],
  attributes: Node['attributes'] = {},
  domain = '',
): Node => ({
  name,
  op,
  domain,
  attributes,
  inputs,
  outputs,
  module: [],
  layer: null,
  forward: null,
  phase: 'forward',
  group: name,
  body: null,
});

function graph(
  nodes: readonly Node[],
  tensors: Readonly<Record<string, TensorType>>,
  weights: Readonly<Record<string, Weight>> = {},
): Graph {
  return {
    name: 'g',
    nodes,
    tensors: new Map(Object.entries(tensors)),
    inputs: ['x'],
    outputs: ['y'],
    weights: new Map(Object.entries(weights)),
    state: [],
    batch: [],
  };
}

const float32 = (...shape: readonly number[]): TensorType => ({ dtype: 'float32', shape });

test('nodes, values, attributes and opsets as an independent decoder reads them', (t) => {
  const nodes = [
    node('leak', 'LeakyRelu', ['x'], ['h'], { alpha: 1 }),
    node('t', 'Transpose', ['h'], ['k'], { perm: [1, 0] }),
    node('c', 'Cast', ['k'], ['k2'], { to: 1 }),
    node(
      'f',
      'Fused',
      ['k2', null, 'k'],
      ['y', null],
      { mode: 'fast', axis: 2, epsilon: 1e-5, value: constant('int64', [7], [1]) },
      'com.microsoft',
    ),
  ];
  const decoded = decode(
    writeOnnx(
      graph(nodes, { x: float32(2, 3), h: float32(2, 3), k: float32(3, 2), k2: float32(3, 2), y: float32(3, 2) }),
      { name: 'segment' },
    ),
  );
  t.is(decoded.irVersion, 10);
  t.deepEqual(
    decoded.opsetImport.map(({ domain, version }) => ({ domain, version })),
    [
      { domain: '', version: 24 },
      { domain: 'com.microsoft', version: 1 },
    ],
  );
  t.is(decoded.graph.name, 'segment');
  t.deepEqual(
    decoded.graph.node.map((item) => [item.name, item.opType, item.domain]),
    [
      ['leak', 'LeakyRelu', ''],
      ['t', 'Transpose', ''],
      ['c', 'Cast', ''],
      ['f', 'Fused', 'com.microsoft'],
    ],
  );
  t.deepEqual(decoded.graph.node[3]?.input, ['k2', '', 'k']);
  t.deepEqual(decoded.graph.node[3]?.output, ['y', '']);
  const attributes = decoded.graph.node.flatMap((item) => item.attribute);
  t.deepEqual(
    attributes.map(({ name, type }) => [name, type]),
    [
      ['alpha', 1],
      ['perm', 7],
      ['to', 2],
      ['mode', 3],
      ['axis', 2],
      ['epsilon', 1],
      ['value', 4],
    ],
  );
  t.is(attributes[0]?.f, 1);
  t.deepEqual(attributes[1]?.ints, [1, 0]);
  t.is(attributes[4]?.i, 2);
  t.is(new TextDecoder().decode(attributes[3]?.s), 'fast');
  const [input] = decoded.graph.input;
  t.is(input?.name, 'x');
  t.deepEqual(
    input?.type.tensorType.shape.dim.map((dim) => dim.dimValue),
    [2, 3],
  );
  t.is(decoded.graph.output[0]?.type.tensorType.elemType, 1);
});

test('constant inputs that import turned into attributes become initializers again', (t) => {
  const nodes = [
    node('r', 'Reshape', ['x'], ['h'], { shape: [3, 2] }),
    node('p', 'Pad', ['h'], ['y'], { pads: [0, 1, 0, 0], constant_value: constant('float32', [2]) }),
  ];
  const { graph: written } = decode(writeOnnx(graph(nodes, { x: float32(2, 3), h: float32(3, 2), y: float32(3, 3) })));
  t.deepEqual(
    written.node.map((item) => item.input),
    [
      ['x', 'r.shape'],
      ['h', 'p.pads', 'p.constant_value'],
    ],
  );
  t.deepEqual(
    written.node.map((item) => item.attribute.length),
    [0, 0],
  );
  t.deepEqual(
    written.initializer.map(({ name, dims, dataType }) => ({ name, dims, dataType })),
    [
      { name: 'r.shape', dims: [2], dataType: 7 },
      { name: 'p.pads', dims: [4], dataType: 7 },
      { name: 'p.constant_value', dims: [], dataType: 1 },
    ],
  );
  t.deepEqual([...new BigInt64Array(new Uint8Array(written.initializer[0]?.rawData ?? []).buffer)], [3n, 2n]);
});

test('weights are inline, or external under their own names', (t) => {
  const value = constant('float32', [1, 2, 3], [3]);
  const inline: Weight = {
    dtype: 'float32',
    shape: [3],
    source: { kind: 'inline', data: value.data },
    role: 'parameter',
  };
  const weights = { w: inline, c: { ...inline, role: 'constant' as const } };
  const sum = graph(
    [node('a', 'Add', ['x', 'w'], ['h']), node('b', 'Add', ['h', 'c'], ['y'])],
    { x: float32(3), h: float32(3), y: float32(3), w: float32(3), c: float32(3) },
    weights,
  );
  const kept = decode(writeOnnx(sum)).graph.initializer;
  t.deepEqual(
    kept.map((item) => [item.name, item.dataLocation, item.rawData.length]),
    [
      ['w', 0, 12],
      ['c', 0, 12],
    ],
  );
  const moved = decode(writeOnnx(sum, { weights: 'external' })).graph.initializer;
  t.deepEqual(
    moved.map((item) => [item.name, item.dataLocation, item.rawData.length]),
    [
      ['w', 1, 0],
      ['c', 0, 12],
    ],
  );
  t.deepEqual(
    moved[0]?.externalData.map(({ key, value: text }) => [key, text]),
    [
      ['location', 'w'],
      ['offset', '0'],
      ['length', '12'],
    ],
  );
});

test('weights that are inputs are so by name and type, and constants stay inside', (t) => {
  const absent = { ...float32(3), source: { kind: 'absent' as const } };
  const inline = { ...float32(3), source: { kind: 'inline' as const, data: new Uint8Array(12) } };
  const weights: Readonly<Record<string, Weight>> = {
    w: { ...inline, role: 'parameter' },
    b: { ...absent, role: 'buffer' },
    c: { ...inline, role: 'constant' },
  };
  const sum = graph(
    [node('a', 'Add', ['x', 'w'], ['h']), node('n', 'Add', ['h', 'b'], ['i']), node('m', 'Add', ['i', 'c'], ['y'])],
    { x: float32(3), h: float32(3), i: float32(3), y: float32(3), w: float32(3), b: float32(3), c: float32(3) },
    weights,
  );
  const { input, initializer } = decode(writeOnnx(sum, { weights: 'inputs' })).graph;
  t.deepEqual(
    input.map(({ name, type }) => [
      name,
      type.tensorType.elemType,
      type.tensorType.shape.dim.map((dim) => dim.dimValue),
    ]),
    ['x', 'w', 'b'].map((name) => [name, 1, [3]]),
  );
  t.deepEqual(
    initializer.map(({ name, rawData }) => [name, rawData.length]),
    [['c', 12]],
  );
});

test('a name that is taken is not taken twice', (t) => {
  const nodes = [node('r', 'Reshape', ['x'], ['r.shape'], { shape: [3, 2] }), node('n', 'Neg', ['r.shape'], ['y'])];
  const { graph: written } = decode(
    writeOnnx(graph(nodes, { x: float32(2, 3), 'r.shape': float32(3, 2), y: float32(3, 2) })),
  );
  t.deepEqual(written.node[0]?.input, ['x', 'r.shape.2']);
});

test('the same graph gives the same bytes', (t) => {
  const make = (): Uint8Array => writeOnnx(graph([node('n', 'Neg', ['x'], ['y'])], { x: float32(2), y: float32(2) }));
  t.deepEqual(make(), make());
});
