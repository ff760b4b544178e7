/**
 * @file Graphs for tests, built by hand, as import would give them for an MLP and for a Llama decoder.
 */
import type { DType } from '../../src/ir/dtype.js';
import type { Attributes, Graph, Node, TensorType, Weight } from '../../src/ir/graph.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { entryOf } from '../../src/ir/ops/index.js';

/** Builds a graph operator by operator; types are inferred by the registry. */
export class GraphBuilder {
  private readonly nodes: Node[] = [];
  private readonly tensors = new Map<string, TensorType>();
  private readonly weights = new Map<string, Weight>();
  private readonly inputs: string[] = [];
  /** The layer that operators added now belong to. */
  layer: string | null = null;

  input(name: string, shape: readonly number[], dtype: DType = 'float32'): string {
    this.inputs.push(name);
    this.tensors.set(name, { dtype, shape });
    return name;
  }

  weight(name: string, shape: readonly number[]): string {
    this.tensors.set(name, { dtype: 'float32', shape });
    this.weights.set(name, { dtype: 'float32', shape, source: { kind: 'absent' }, role: 'parameter' });
    return name;
  }

  scalar(name: string, value: number): string {
    const type: TensorType = { dtype: 'float32', shape: [] };
    const data = new Uint8Array(new Float32Array([value]).buffer);
    this.tensors.set(name, type);
    this.weights.set(name, { ...type, source: { kind: 'inline', data }, role: 'constant' });
    return name;
  }

  /** Adds an operator with one result, which bears its name. */
  add(name: string, op: string, inputs: readonly string[], attributes: Attributes = {}): string {
    const node: Node = {
      name,
      op,
      domain: '',
      attributes,
      inputs,
      outputs: [name],
      module: [],
      layer: this.layer,
      forward: null,
      phase: 'forward',
      group: name,
      body: null,
    };
    const entry = entryOf(op, '');
    if (!entry) throw new Error(`no entry for ${op}`);
    const [type] = entry.infer({ ...operatorOf({ tensors: this.tensors }, node), outputs: [] });
    this.tensors.set(name, type as TensorType);
    this.nodes.push(node);
    return name;
  }

  build(outputs: readonly string[]): Graph {
    return {
      name: 'small',
      nodes: this.nodes,
      tensors: this.tensors,
      inputs: this.inputs,
      outputs,
      weights: this.weights,
      state: [],
      batch: this.inputs.map((input) => ({ input, axis: 0 })),
    };
  }
}

/** x·A, relu, ·B, twice. */
export function mlpGraph(batch: number, width: number, hidden: number, layers = 1): Graph {
  const builder = new GraphBuilder();
  let x = builder.input('x', [batch, width]);
  for (let index = 0; index < layers; index++) {
    const name = (text: string) => `layers.${index}.${text}`;
    builder.layer = `layers.${index}`;
    const up = builder.add(name('up'), 'MatMul', [x, builder.weight(name('A'), [width, hidden])]);
    const act = builder.add(name('act'), 'Relu', [up]);
    x = builder.add(name('down'), 'MatMul', [act, builder.weight(name('B'), [hidden, width])]);
  }
  return builder.build([x]);
}

export interface LlamaSizes {
  readonly batch: number;
  readonly sequence: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly headSize: number;
  readonly hidden: number;
  readonly vocabulary: number;
  readonly layers: number;
}

export const SMALL_LLAMA: LlamaSizes = {
  batch: 2,
  sequence: 16,
  heads: 4,
  keyHeads: 2,
  headSize: 16,
  hidden: 128,
  vocabulary: 256,
  layers: 2,
};

/** A decoder as PyTorch exports one: RMSNorm spelt out, rotary tables, grouped key heads expanded, a mask for all layers. */
export function llamaGraph(sizes: LlamaSizes): Graph {
  const { batch, sequence, heads, keyHeads, headSize, hidden, vocabulary, layers } = sizes;
  const width = heads * headSize;
  const builder = new GraphBuilder();
  const { add } = { add: builder.add.bind(builder) };
  const ids = builder.input('ids', [batch, sequence], 'int64');
  const positions = builder.input('positions', [batch, 1, sequence, 1]);
  const mask = builder.input('mask', [batch, 1, sequence, sequence]);
  const two = builder.scalar('two', 2);
  const epsilon = builder.scalar('epsilon', 1e-5);
  const scale = builder.scalar('scale', 1 / Math.sqrt(headSize));
  const angles = add('angles', 'Mul', [positions, builder.weight('frequencies', [1, 1, 1, headSize])]);
  const cos = add('cos', 'Cos', [angles]);
  const sin = add('sin', 'Sin', [angles]);
  const norm = (name: string, x: string) => {
    const square = add(`${name}.square`, 'Pow', [x, two]);
    const mean = add(`${name}.mean`, 'ReduceMean', [square], { axes: [-1], keepdims: 1 });
    const root = add(`${name}.root`, 'Sqrt', [add(`${name}.add`, 'Add', [mean, epsilon])]);
    return add(`${name}.out`, 'Mul', [add(`${name}.div`, 'Div', [x, root]), builder.weight(`${name}.weight`, [width])]);
  };
  const rotate = (name: string, x: string) => {
    const half = headSize / 2;
    const part = (text: string, start: number) =>
      add(`${name}.${text}`, 'Slice', [x], { starts: [start], ends: [start + half], axes: [3], steps: [1] });
    const low = part('low', 0);
    const turned = add(`${name}.turned`, 'Concat', [add(`${name}.neg`, 'Neg', [part('high', half)]), low], { axis: 3 });
    return add(`${name}.out`, 'Add', [add(`${name}.cos`, 'Mul', [x, cos]), add(`${name}.sin`, 'Mul', [turned, sin])]);
  };
  let x = add('embed', 'Gather', [builder.weight('table', [vocabulary, width]), ids], { axis: 0 });
  for (let index = 0; index < layers; index++) {
    const name = (text: string) => `layers.${index}.${text}`;
    builder.layer = `layers.${index}`;
    const project = (text: string, from: string, rows: number, columns: number) =>
      add(name(text), 'MatMul', [from, builder.weight(name(`${text}.weight`), [rows, columns])]);
    const split = (text: string, from: string, count: number) =>
      add(
        name(`${text}.heads`),
        'Transpose',
        [add(name(`${text}.split`), 'Reshape', [from], { shape: [batch, sequence, count, headSize] })],
        { perm: [0, 2, 1, 3] },
      );
    const repeat = (text: string, from: string) => {
      const wide = add(name(`${text}.unsqueeze`), 'Unsqueeze', [from], { axes: [2] });
      const shape = [batch, keyHeads, heads / keyHeads, sequence, headSize];
      const repeated = add(name(`${text}.expand`), 'Expand', [wide], { shape });
      return add(name(`${text}.repeat`), 'Reshape', [repeated], { shape: [batch, heads, sequence, headSize] });
    };
    const normed = norm(name('norm1'), x);
    const q = rotate(name('q.rotary'), split('q', project('q', normed, width, width), heads));
    const k = rotate(name('k.rotary'), split('k', project('k', normed, width, keyHeads * headSize), keyHeads));
    const v = split('v', project('v', normed, width, keyHeads * headSize), keyHeads);
    const keys = add(name('k.turn'), 'Transpose', [repeat('k', k)], { perm: [0, 1, 3, 2] });
    const scores = add(name('scaled'), 'Mul', [add(name('scores'), 'MatMul', [q, keys]), scale]);
    const weights = add(name('softmax'), 'Softmax', [add(name('masked'), 'Add', [scores, mask])], { axis: -1 });
    const mixed = add(name('mixed'), 'MatMul', [weights, repeat('v', v)]);
    const joined = add(name('join'), 'Reshape', [add(name('turn'), 'Transpose', [mixed], { perm: [0, 2, 1, 3] })], {
      shape: [batch, sequence, width],
    });
    const attended = add(name('residual1'), 'Add', [x, project('o', joined, width, width)]);
    const second = norm(name('norm2'), attended);
    const gate = project('gate', second, width, hidden);
    const silu = add(name('silu'), 'Mul', [gate, add(name('sigmoid'), 'Sigmoid', [gate])]);
    const gated = add(name('gated'), 'Mul', [silu, project('up', second, width, hidden)]);
    x = add(name('residual2'), 'Add', [attended, project('down', gated, hidden, width)]);
  }
  builder.layer = null;
  const logits = add('head', 'MatMul', [norm('norm', x), builder.weight('head.weight', [width, vocabulary])]);
  return builder.build([logits]);
}

/** Convolution, relu, convolution with a residual, mean over the image, a classifier. */
export function convGraph(batch: number): Graph {
  const builder = new GraphBuilder();
  const { add } = { add: builder.add.bind(builder) };
  const attributes = { kernel_shape: [3, 3], pads: [1, 1, 1, 1], strides: [1, 1], dilations: [1, 1], group: 1 };
  const conv = (name: string, x: string, from: number, to: number) =>
    add(name, 'Conv', [x, builder.weight(`${name}.weight`, [to, from, 3, 3])], attributes);
  const image = builder.input('image', [batch, 4, 16, 16]);
  const first = add('relu1', 'Relu', [conv('conv1', image, 4, 16)]);
  const second = add('residual', 'Add', [conv('conv2', first, 16, 16), first]);
  const pooled = add('pool', 'ReduceMean', [add('relu2', 'Relu', [second])], { axes: [2, 3], keepdims: 0 });
  return builder.build([add('classes', 'MatMul', [pooled, builder.weight('classifier', [16, 32])])]);
}
