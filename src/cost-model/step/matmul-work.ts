/**
 * @file The matmuls of an operator group as a rank runs them: rows, columns and depth of each.
 */
import { elementCount } from '../../ir/graph.js';
import { entryOf, operatorFamily } from '../../ir/ops/index.js';
import type { ComputeNode } from '../../partition/sharded-graph.js';
import type { PassPhase, StepGraph } from './step-graph.js';
import type { StepWork } from './work.js';

type Matmul = Extract<StepWork, { readonly kind: 'matmul' }>;

/** The matmuls of a group; its other nodes move data, or sum over broadcast dimensions. */
export function* matmuls(
  graph: StepGraph,
  group: string,
  phase: PassPhase,
  nodes: readonly ComputeNode[],
): Generator<Matmul> {
  // A matmul's gradients come in this order: of its data, then of its weight.
  let made = 0;
  for (const node of nodes) {
    const entry = entryOf(node.op, node.domain);
    if (node.flops === 0 || (entry?.family !== 'contraction' && entry?.family !== 'convolution')) continue;
    const [output] = node.outputs;
    const shape = output ? graph.tensor(output).localShape : [];
    const elements = elementCount(shape);
    const depth = node.flops / (2 * elements);
    // A convolution's columns are its channels, and all else its rows.
    const columns = (entry.family === 'convolution' ? shape[1] : shape.at(-1)) ?? 1;
    const first = node.inputs[1];
    // Both operands have leading dimensions where matmuls are batched (experts).
    const second = first ? graph.tensor(first).localShape : [];
    const batch = entry.family !== 'convolution' && second.length > 2 ? elementCount(second.slice(0, -2)) : 1;
    const routed = batch > 1 ? graph.routes.routed.get(group) : undefined;
    const tokens = phase === 'backward' && made++ > 0 ? 'depth' : 'rows';
    yield {
      kind: 'matmul',
      batch,
      rows: elements / columns / batch,
      columns,
      depth,
      experts: routed !== undefined,
      ...(routed && tokens === 'rows' ? { routed } : {}),
      tokens,
    };
  }
}

/**
 * Matmuls among the operators of a group that is not a matmul itself: those that it was expanded to, and the cells of recurrent
 * layers, which run all steps' inputs at once and then one step after the other.
 */
export function* matmulsWithin(
  graph: StepGraph,
  group: string,
  phase: PassPhase,
  nodes: readonly ComputeNode[],
): Generator<Matmul> {
  for (const matmul of matmuls(graph, group, phase, nodes)) yield { ...matmul, tokens: 'rows' };
  for (const node of nodes) {
    if (operatorFamily(node) !== 'recurrent') continue;
    const [rows, input, state] = node.inputs.map((name) => (name === null ? [] : graph.tensor(name).localShape));
    const [directions = 1, columns = 1, depth = 1] = input ?? [];
    const positions = elementCount(rows?.slice(0, 2) ?? []);
    const matmul = { kind: 'matmul', columns, experts: false, tokens: 'rows' } as const;
    yield { ...matmul, batch: directions, rows: positions, depth };
    yield { ...matmul, batch: directions, rows: positions, depth: state?.[2] ?? 1 };
  }
}
