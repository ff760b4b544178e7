/**
 * @file Memory traffic of kernels that are not matmuls: elements that enter and leave them, alone or fused into chains.
 */
import { elementCount } from '../../ir/graph.js';
import { appendTo } from '../../ir/group-by.js';
import { entryOf } from '../../ir/ops/index.js';
import {
  type ComputeNode,
  readsOf,
  resultsOf,
  type ShardedNode,
  type ShardedTensor,
} from '../../partition/sharded-graph.js';
import { isFree, phaseOf, type StepGraph } from './step-graph.js';

/** Elements that enter and leave a set of nodes; pure changes of form cost nothing. */
export function traffic(graph: StepGraph, nodes: readonly ComputeNode[]): number {
  if (nodes.every((node) => node.flops === 0 && isFree(node))) return 0;
  const own = new Set<ShardedNode>(nodes);
  const read = new Set<string>();
  const written = new Set<string>();
  for (const node of nodes) {
    const entry = entryOf(node.op, node.domain);
    for (const [operand, name] of node.inputs.entries()) {
      if (name === null) continue;
      // A lookup reads rows of its table, not all of it.
      if (entry?.indexInput !== undefined && operand === 0 && graph.weights.has(name)) continue;
      if (!own.has(graph.makerOf(name) as ShardedNode)) read.add(name);
    }
    for (const name of resultsOf(node)) {
      const outside = graph.readersOf(name).some((reader) => !own.has(reader));
      if (outside || graph.outputs.has(name)) written.add(name);
    }
  }
  return [...read, ...written].reduce((sum, name) => sum + widthOf(graph.tensor(name)), 0);
}

/**
 * Chains of elementwise groups where each has one reader: traffic of the whole chain, charged to its last group (the
 * others get 0).
 */
export function chainTraffic(
  graph: StepGraph,
  gathered: ReadonlyMap<string, readonly ShardedNode[]>,
): ReadonlyMap<string, number> {
  const keyOf = (node: ShardedNode) => `${phaseOf(node)} ${graph.group(node)}`;
  const next = new Map<string, string>();
  const computesOf = (key: string) => (gathered.get(key) ?? []).filter((node) => node.kind === 'compute');
  /** A collective on an operand of the group does not separate the group from its readers. */
  const fusible = (key: string) => {
    const [, ...rest] = key.split(' ');
    const parted = (gathered.get(key) ?? []).some((node) => {
      const maker = node.kind === 'communicate' ? graph.makerOf(node.input) : undefined;
      return maker !== undefined && keyOf(maker) === key;
    });
    return graph.family(rest.join(' ')) === 'elementwise' && key.startsWith('forward') && !parted;
  };
  const isFed = (key: string) => (gathered.get(key) ?? []).every(({ kind }) => kind === 'compute');
  for (const key of gathered.keys()) {
    if (!fusible(key)) continue;
    const after = new Set(
      computesOf(key).flatMap((node) =>
        resultsOf(node).flatMap((name) =>
          graph
            .readersOf(name)
            .map(keyOf)
            .filter((reader) => reader !== key && reader.startsWith('forward')),
        ),
      ),
    );
    const [only] = after;
    if (after.size === 1 && only !== undefined && fusible(only) && isFed(only)) next.set(key, only);
  }
  const inside = new Set(next.values());
  const chained = new Map<string, number>();
  const members = new Map<string, string[]>();
  for (const key of gathered.keys()) {
    let last = key;
    while (next.has(last)) last = next.get(last) as string;
    if (last === key && !inside.has(key)) continue;
    appendTo(members, last, key);
  }
  for (const [last, keys] of members) {
    for (const key of keys) chained.set(key, 0);
    chained.set(last, traffic(graph, keys.flatMap(computesOf)));
  }
  return chained;
}

/** Whether every large operand is whole on each rank. */
export function isRepeated(graph: StepGraph, nodes: readonly ComputeNode[]): boolean {
  return nodes.every((node) =>
    [...readsOf(node), ...resultsOf(node)].every((name) => {
      const { shape, localShape } = graph.tensor(name);
      return elementCount(shape) === elementCount(localShape);
    }),
  );
}

/** Elements as of a floating-point tensor; booleans are a byte each where those have two. */
function widthOf({ dtype, localShape }: ShardedTensor): number {
  const elements = elementCount(localShape);
  return dtype === 'bool' ? elements / 2 : elements;
}
