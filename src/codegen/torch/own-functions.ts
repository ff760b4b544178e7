/**
 * @file Operators that lowering writes out in others because ONNX Runtime lacks them, and blocks that it writes out as the file
 * does, that torch has functions for: each is one operator again.
 */
import {
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type WrittenOut,
} from '../../partition/sharded-graph.js';
import { torchOperatorOf } from './operators/index.js';
import { tensorOf } from './tensors.js';

/** The graph with such operators in place of their nodes: where the last of these is. */
export function withOwnFunctions(sharded: ShardedGraph): ShardedGraph {
  const { writtenOut = new Map<string, WrittenOut>(), ...rest } = sharded;
  const groups = new Map(
    [...writtenOut.values()].flatMap((whole) => {
      if (!hasFunction(whole, sharded)) return [];
      return [...whole.nodes].map((name) => [name, whole] as const);
    }),
  );
  if (groups.size === 0) return rest;
  const last = new Map(
    sharded.nodes.flatMap((node) => {
      const whole = groups.get(node.name);
      return whole ? [[whole, node] as const] : [];
    }),
  );
  const nodes = sharded.nodes.flatMap((node) => {
    const whole = groups.get(node.name);
    if (!whole || node.kind !== 'compute') return [node];
    return last.get(whole) === node ? [asOne(node, whole)] : [];
  });
  const namesIn = (all: Iterable<ShardedNode>) => [...all].flatMap((node) => [...readsOf(node), ...resultsOf(node)]);
  const used = new Set(namesIn(nodes));
  const inside = namesIn(sharded.nodes.filter(({ name }) => groups.has(name)));
  const gone = new Set(inside.filter((name) => !used.has(name)));
  const withoutGone = <Value>(all: ReadonlyMap<string, Value>) => new Map([...all].filter(([name]) => !gone.has(name)));
  return { ...rest, nodes, tensors: withoutGone(sharded.tensors), constants: withoutGone(sharded.constants) };
}

function asOne(last: ComputeNode, { op, domain, attributes, inputs, output }: WrittenOut): ComputeNode {
  return { ...last, op, domain, attributes, inputs, outputs: [output] };
}

function hasFunction({ op, domain, attributes, inputs, output }: WrittenOut, sharded: ShardedGraph): boolean {
  const typeOf = (name: string) => {
    const { dtype, localShape } = tensorOf(sharded, name);
    return { dtype, shape: localShape };
  };
  const own = {
    op,
    attributes,
    operands: inputs.map(() => 'x'),
    inputs: inputs.map(typeOf),
    outputs: [typeOf(output)],
  };
  return (torchOperatorOf(op, domain)?.text(own) ?? null) !== null;
}
