/**
 * @file Random graphs for matchers: written-out regions and single operators put on whatever tensors there are, then some
 * operands swapped and some tensors made outputs. All tensors are [2, 4, 4], so that anything fits anything.
 */
import type { Graph, Node, TensorType, Weight } from '../../../src/ir/graph.js';
import { constant } from '../../../src/ir/ops/constants.js';

export interface Drawn {
  readonly steps: readonly { readonly motif: number; readonly sources: readonly [number, number, number] }[];
  readonly rewired: readonly { readonly node: number; readonly input: number; readonly source: number }[];
  readonly outputs: readonly number[];
}

const SHAPE = [2, 4, 4];
const CONSTANTS = [0, 0.001, 0.044715, 0.5, Math.SQRT1_2, Math.sqrt(2 / Math.PI), 1, 1.702, 2, 3, -1e9];

class Builder {
  readonly nodes: Node[] = [];
  readonly weights = new Map<string, Weight>();
  readonly tensors = new Map<string, TensorType>([
    ['x', { dtype: 'float32', shape: SHAPE }],
    ['z', { dtype: 'float32', shape: SHAPE }],
    ['w', { dtype: 'float32', shape: [4] }],
  ]);
  /** Tensors of the common shape. */
  readonly full = ['x', 'z'];

  constructor() {
    const vector = constant('float32', [1, 2, 3, 4], [4]);
    this.weights.set('w', { ...vector, role: 'parameter', source: { kind: 'inline', data: vector.data } });
    for (const value of CONSTANTS) {
      const scalar = constant('float32', [value]);
      this.weights.set(`${value}`, { ...scalar, role: 'constant', source: { kind: 'inline', data: scalar.data } });
      this.tensors.set(`${value}`, scalar);
    }
  }

  add(
    op: string,
    inputs: readonly string[],
    attributes: Node['attributes'] = {},
    shape: readonly number[] = SHAPE,
  ): string {
    const output = `t${this.nodes.length}`;
    this.nodes.push(plain(output, op, inputs, attributes));
    this.tensors.set(output, { dtype: 'float32', shape });
    if (shape === SHAPE) this.full.push(output);
    return output;
  }

  split(x: string): readonly [string, string] {
    const parts = [`t${this.nodes.length}a`, `t${this.nodes.length}b`] as const;
    this.nodes.push({ ...plain(parts[0], 'Split', [x], { axis: 2, split: [2, 2] }), outputs: [...parts] });
    for (const part of parts) this.tensors.set(part, { dtype: 'float32', shape: [2, 4, 2] });
    return parts;
  }
}

type Motif = (build: Builder, a: string, b: string, c: string) => string;

const rootMeanSquare = (build: Builder, x: string): string => {
  const square = build.add('Mul', [x, x]);
  const mean = build.add('ReduceMean', [square], { axes: [2], keepdims: 1 }, [2, 4, 1]);
  return build.add('Sqrt', [build.add('Add', [mean, '0.001'], {}, [2, 4, 1])], {}, [2, 4, 1]);
};

const MOTIFS: readonly Motif[] = [
  (build, a, b) => build.add('Add', [a, b]),
  (build, a, b) => build.add('Mul', [a, b]),
  (build, a) => build.add('Neg', [a]),
  (build, a) => build.add('Transpose', [a], { perm: [0, 2, 1] }),
  (build, a) => build.add('Softmax', [a], { axis: 2 }),
  (build, a, b, c) => {
    const scores = build.add('MatMul', [a, build.add('Transpose', [b], { perm: [0, 2, 1] })]);
    return build.add('MatMul', [build.add('Softmax', [build.add('Mul', [scores, '0.5'])], { axis: 2 }), c]);
  },
  (build, a, b, c) => {
    const scores = build.add('Add', [build.add('MatMul', [a, b]), c]);
    return build.add('MatMul', [build.add('Softmax', [scores], { axis: 2 }), b]);
  },
  (build, a) => build.add('Mul', [build.add('Div', [a, rootMeanSquare(build, a)]), 'w']),
  (build, a) => {
    const mean = build.add('ReduceMean', [a], { axes: [2], keepdims: 1 }, [2, 4, 1]);
    const centred = build.add('Sub', [a, mean]);
    return build.add('Div', [centred, rootMeanSquare(build, centred)]);
  },
  (build, a) => {
    const erf = build.add('Erf', [build.add('Mul', [a, `${Math.SQRT1_2}`])]);
    return build.add('Mul', [build.add('Mul', [a, build.add('Add', [erf, '1'])]), '0.5']);
  },
  (build, a) => {
    const cube = build.add('Mul', [build.add('Pow', [a, '3']), '0.044715']);
    const inner = build.add('Mul', [build.add('Add', [a, cube]), `${Math.sqrt(2 / Math.PI)}`]);
    return build.add('Mul', [build.add('Mul', [a, '0.5']), build.add('Add', [build.add('Tanh', [inner]), '1'])]);
  },
  (build, a, b) => build.add('Mul', [build.add('Mul', [a, build.add('Sigmoid', [a])]), b]),
  (build, a) => build.add('Mul', [a, build.add('Sigmoid', [build.add('Mul', [a, '1.702'])])]),
  (build, a, b, c) => {
    const [first, second] = build.split(a);
    const turned = build.add('Concat', [build.add('Neg', [second], {}, [2, 4, 2]), first], { axis: 2 });
    return build.add('Add', [build.add('Mul', [a, b]), build.add('Mul', [turned, c])]);
  },
];

export function drawnGraph({ steps, rewired, outputs }: Drawn): Graph {
  const build = new Builder();
  for (const { motif, sources } of steps) {
    // Late tensors more often than early ones, so that regions follow each other.
    const [a = 'x', b = 'x', c = 'x'] = sources.map((source) =>
      build.full.at(-1 - (source % Math.min(6, build.full.length))),
    );
    MOTIFS[motif % MOTIFS.length]?.(build, a, b, c);
  }
  const nodes = [...build.nodes];
  for (const { node: position, input, source } of rewired) {
    const node = nodes[position % nodes.length];
    const place = node ? input % node.inputs.length : 0;
    const earlier = ['x', 'z', ...nodes.slice(0, position % nodes.length).flatMap((other) => other.outputs)];
    const shape = build.tensors.get(node?.inputs[place] ?? '')?.shape.join();
    const fitting = earlier.filter((tensor) => build.tensors.get(tensor ?? '')?.shape.join() === shape);
    const [taken] = fitting.length > 0 ? [fitting[source % fitting.length]] : [];
    if (node && taken) nodes[position % nodes.length] = { ...node, inputs: node.inputs.with(place, taken) };
  }
  const read = new Set(nodes.flatMap((node) => node.inputs));
  const ends = nodes.flatMap((node) => node.outputs.filter((output) => output !== null && !read.has(output)));
  const more = outputs.map((output) => nodes[output % nodes.length]?.outputs[0] ?? 'x');
  return {
    name: 'drawn',
    nodes,
    tensors: build.tensors,
    inputs: ['x', 'z'],
    outputs: [...new Set([...ends, ...more].filter((output) => output !== null))],
    weights: build.weights,
    state: [],
    batch: [],
  };
}

/** A chain with operators at which matchers start, and no region. */
export function longChain(length: number): Graph {
  const ops = ['Add', 'Mul', 'Softmax', 'Reshape', 'Tanh', 'Div', 'Erf', 'Transpose', 'Sigmoid', 'LogSoftmax'];
  const nodes = Array.from({ length }, (_, position): Node => {
    const op = ops[position % ops.length] ?? 'Add';
    const inputs = /^(Add|Mul|Div)$/.test(op) ? [`t${position}`, '0.5'] : [`t${position}`];
    const attributes: Node['attributes'] = op === 'Transpose' ? { perm: [0, 2, 1] } : { axis: 2, shape: SHAPE };
    return plain(`t${position + 1}`, op, inputs, attributes);
  });
  const half = constant('float32', [0.5]);
  return {
    name: 'chain',
    nodes,
    tensors: new Map<string, TensorType>([
      ['0.5', half],
      ...Array.from({ length: length + 1 }, (_, index) => [`t${index}`, { dtype: 'float32', shape: SHAPE }] as const),
    ]),
    inputs: ['t0'],
    outputs: [`t${length}`],
    weights: new Map([['0.5', { ...half, role: 'constant', source: { kind: 'inline', data: half.data } }]]),
    state: [],
    batch: [],
  };
}

function plain(output: string, op: string, inputs: readonly string[], attributes: Node['attributes']): Node {
  return {
    name: output,
    op,
    domain: '',
    attributes,
    inputs,
    outputs: [output],
    module: [],
    layer: null,
    forward: null,
    phase: 'forward',
    group: output,
    body: null,
  };
}
