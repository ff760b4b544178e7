/**
 * @file A two-layer MLP with Megatron's column/row sharding, as graph and assignment: the smallest case with every step in it.
 *
 *     x [8,16] · w1 [16,32] → h → Relu → a · w2 [32,16] → y
 */
import type { Graph, Node, TensorType, Weight } from '../../src/ir/graph.js';
import type { Assignment, TensorReader } from '../../src/partition/assignment.js';
import { normalise } from '../../src/sharding-propagation/layout.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import type { Strategy } from '../../src/sharding-propagation/strategy.js';

const floats = (...shape: number[]): TensorType => ({ dtype: 'float32', shape });

function node(op: string, inputs: string[], output: string, layer: string | null = null): Node {
  return {
    name: output,
    op,
    domain: '',
    attributes: {},
    inputs,
    outputs: [output],
    module: [],
    layer,
    forward: null,
    phase: 'forward',
    group: output,
    body: null,
  };
}

function weight(type: TensorType, seed: number): Weight {
  const count = type.shape.reduce((product, size) => product * size, 1);
  const values = Float32Array.from({ length: count }, (_, index) => Math.sin(seed + index));
  return { ...type, source: { kind: 'inline', data: new Uint8Array(values.buffer) }, role: 'parameter' };
}

export function mlp(): Graph {
  const weights = new Map([
    ['w1', weight(floats(16, 32), 1)],
    ['w2', weight(floats(32, 16), 2)],
  ]);
  const tensors = new Map<string, TensorType>([
    ['x', floats(8, 16)],
    ['w1', floats(16, 32)],
    ['w2', floats(32, 16)],
    ['h', floats(8, 32)],
    ['a', floats(8, 32)],
    ['y', floats(8, 16)],
  ]);
  const nodes = [
    node('MatMul', ['x', 'w1'], 'h', 'up'),
    node('Relu', ['h'], 'a', 'up'),
    node('MatMul', ['a', 'w2'], 'y', 'down'),
  ];
  return {
    name: 'mlp',
    nodes,
    tensors,
    inputs: ['x'],
    outputs: ['y'],
    weights,
    state: [],
    batch: [{ input: 'x', axis: 0 }],
  };
}

/** dp on rows; tp on the first matmul's columns and the second's rows. */
export function megatron(): Assignment {
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  const none = { partialOperands: null, pending: { kind: 'none' } } as const;
  const strategies = new Map<string, Strategy>([
    ['h', { axes: { m: ['dp'], n: ['tp'] }, ...none }],
    ['a', { axes: { a0: ['dp'], a1: ['tp'] }, ...none }],
    ['y', { axes: { m: ['dp'], k: ['tp'] }, partialOperands: null, pending: { kind: 'all-reduce' } }],
  ]);
  const reads = (name: string): TensorReader => ({ kind: 'operator', name, operand: 0 });
  const layout = (columns: number, axes: string[]) =>
    normalise([[{ size: 8, axes: ['dp'] }], [{ size: columns, axes }]], [], mesh);
  return {
    mesh,
    strategies,
    inputs: new Map([['x', layout(16, [])]]),
    sharedReshards: [
      { tensor: 'x', readers: [reads('h')], layout: layout(16, []) },
      { tensor: 'h', readers: [reads('a')], layout: layout(32, ['tp']) },
      { tensor: 'a', readers: [reads('y')], layout: layout(32, ['tp']) },
      { tensor: 'y', readers: [{ kind: 'output', name: 'y', operand: 0 }], layout: layout(16, []) },
    ],
  };
}
