/**
 * @file The sharded graph as text: one line per node, with local shapes and layouts. For tests, errors and `explain`.
 *
 *     h = MatMul(x, w)                    [4, 8, 32] of [4, 8, 64]   [-, -, tp]
 *     y = all-reduce.sum(tp) t1           [4, 8, 16]                 [-, -, -]
 */

import type { FragmentNode } from '../../src/partition/fragment.js';
import type { MoveNode, ShardedTensor } from '../../src/partition/sharded-graph.js';
import { borderText } from '../../src/sharding-propagation/collective-rule.js';
import { layoutText } from '../../src/sharding-propagation/layout-text.js';
import type { Mesh } from '../../src/sharding-propagation/mesh.js';

/** Anything that has nodes over typed tensors on a mesh: a sharded graph, or a fragment of one. */
export interface Printable {
  readonly mesh: Mesh;
  readonly nodes: readonly (FragmentNode | MoveNode)[];
  readonly tensors: ReadonlyMap<string, ShardedTensor>;
}

/** One line per node. */
export function shardedText(graph: Printable): string {
  return graph.nodes.map((node) => lineOf(graph, node)).join('\n');
}

function lineOf(graph: Printable, node: Printable['nodes'][number]): string {
  if (node.kind === 'compute') {
    const results = node.outputs.flatMap((output) => (output === null ? [] : [output]));
    const operands = node.inputs.map((input) => input ?? '_').join(', ');
    return `${results.join(', ')} = ${node.op}(${operands})  ${results.map((name) => typeText(graph, name)).join('  ')}`;
  }
  if (node.kind === 'move') return `${node.output} = ${placeOf(graph, node.output)}(${node.input})`;
  const reduction = 'reduction' in node.collective ? `.${node.collective.reduction}` : '';
  return (
    `${node.output} = ${node.collective.kind}${reduction}(${node.axes.join(',')}) ${node.input}  ` +
    `${typeText(graph, node.output)}`
  );
}

function placeOf({ tensors }: Printable, name: string): string {
  return tensors.get(name)?.place ?? 'device';
}

function typeText(graph: Printable, name: string): string {
  const tensor = graph.tensors.get(name);
  if (!tensor) return '?';
  const whole = tensor.localShape.join() === tensor.shape.join() ? '' : ` of [${tensor.shape.join(', ')}]`;
  const varying = (tensor.varying ?? []).length > 0 ? ` varying(${tensor.varying?.join(',')})` : '';
  const border = tensor.border ? ` ${borderText(tensor.border)}` : '';
  return `[${tensor.localShape.join(', ')}]${whole} ${layoutText(tensor.layout, graph.mesh)}${varying}${border}`;
}
