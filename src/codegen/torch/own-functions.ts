/**
 * @file Operators that lowering writes out in others because ONNX Runtime lacks them, and blocks that it writes out as the file
 * does, that torch has functions for: each is one operator again. An attention saves numbers of its rows for its gradient, which
 * torch's keeps by itself: both become one operator, or neither.
 */
import { BLOCK_DOMAIN } from '../../ir/blocks/block.js';
import { appendTo } from '../../ir/group-by.js';
import {
  type ComputeNode,
  type LocalGradient,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
  type WrittenOut,
} from '../../partition/sharded-graph.js';
import { isCallable } from './gradient-calls.js';
import { torchOperatorOf } from './operators/index.js';
import { tensorOf } from './tensors.js';

/** Nodes, and the operator in their place. */
interface JoinedNodes {
  readonly nodes: ReadonlySet<string>;
  readonly as: Pick<ComputeNode, 'op' | 'domain' | 'attributes' | 'inputs' | 'outputs'>;
}

/** By gradient block: its gradients as calls. */
type Gradients = ReadonlyMap<string, LocalGradient>;

/** The graph with such operators in place of their nodes: where the last of these is. */
export function withOwnFunctions(sharded: ShardedGraph): ShardedGraph {
  const { writtenOut = new Map<string, WrittenOut>(), ...rest } = sharded;
  const readersOf = readersIn(sharded);
  const called = new Map<string, LocalGradient>();
  const joined = [...writtenOut.values()].flatMap((whole): readonly JoinedNodes[] => {
    const gradients = hasFunction(whole, sharded) ? gradientsOf(whole, sharded, readersOf) : null;
    if (!gradients) return [];
    for (const [block, gradient] of gradients) called.set(block, gradient);
    return [joinedOperator(whole), ...[...gradients.values()].map(joinedGradient)];
  });
  if (joined.length === 0) return rest;
  const groups = new Map(joined.flatMap((one) => [...one.nodes].map((name) => [name, one] as const)));
  const last = new Map(
    sharded.nodes.flatMap((node) => {
      const own = groups.get(node.name);
      return own ? [[own, node] as const] : [];
    }),
  );
  const nodes = sharded.nodes.flatMap((node) => {
    const own = groups.get(node.name);
    if (!own || node.kind !== 'compute') return [node];
    return last.get(own) === node ? [{ ...node, ...own.as }] : [];
  });
  const namesIn = (all: Iterable<ShardedNode>) => [...all].flatMap((node) => [...readsOf(node), ...resultsOf(node)]);
  const used = new Set(namesIn(nodes));
  const inside = namesIn(sharded.nodes.filter(({ name }) => groups.has(name)));
  const gone = new Set(inside.filter((name) => !used.has(name)));
  const withoutGone = <Value>(all: ReadonlyMap<string, Value>) => new Map([...all].filter(([name]) => !gone.has(name)));
  const asNode = (block: string, gradient: LocalGradient): LocalGradient => {
    const names = [...gradient.nodes].filter((name) => last.get(groups.get(name) as JoinedNodes)?.name === name);
    return called.has(block) ? { ...gradient, nodes: new Set(names) } : gradient;
  };
  return {
    ...rest,
    nodes,
    tensors: withoutGone(sharded.tensors),
    constants: withoutGone(sharded.constants),
    ...(sharded.gradients
      ? { gradients: new Map([...sharded.gradients].map(([block, own]) => [block, asNode(block, own)])) }
      : {}),
  };
}

function joinedOperator({ op, domain, attributes, inputs, output, nodes }: WrittenOut): JoinedNodes {
  return { nodes, as: { op, domain, attributes, inputs, outputs: [output] } };
}

/** Always written as a call (gradient-calls.ts). */
function joinedGradient({ op, attributes, operands, resultGradient, nodes }: LocalGradient): JoinedNodes {
  const inputs = [...operands.flatMap(({ tensor }) => tensor ?? []), resultGradient];
  const outputs = operands.flatMap(({ gradient }) => gradient ?? []);
  return { nodes, as: { op: `${op}Gradient`, domain: BLOCK_DOMAIN, attributes, inputs, outputs } };
}

/** By tensor: the nodes that read it; null among them for an output of the graph, state, and transfers. */
type TensorReaders = ReadonlyMap<string, readonly (ShardedNode | null)[]>;

function readersIn({ nodes, outputs, state, pipeline }: ShardedGraph): TensorReaders {
  const readers = new Map<string, (ShardedNode | null)[]>();
  for (const node of nodes) for (const name of readsOf(node)) appendTo(readers, name, node);
  const ends = [...outputs.map(({ tensor }) => tensor), ...state.map(({ from }) => from)];
  for (const name of [...ends, ...(pipeline?.sends ?? []).map(({ tensor }) => tensor)]) appendTo(readers, name, null);
  return readers;
}

/** The gradients that read what an operator saves, all of them as calls; null where others read it, or one is no call. */
function gradientsOf(
  { saved, nodes: own }: WrittenOut,
  sharded: ShardedGraph,
  readersOf: TensorReaders,
): Gradients | null {
  const gradients = new Map<string, LocalGradient>();
  for (const reader of saved.flatMap((name) => readersOf.get(name) ?? [])) {
    if (reader && own.has(reader.name)) continue;
    const gradient = reader && sharded.gradients?.get(reader.origin);
    if (!reader || !gradient?.nodes.has(reader.name) || !isCallable(gradient, sharded)) return null;
    gradients.set(reader.origin, gradient);
  }
  const phases = [...gradients.values()].map(({ nodes }) => phasesOf(nodes, sharded));
  return phases.every(({ size }) => size === 1) ? gradients : null;
}

/** A gradient whose parts run in several phases stays in parts. */
function phasesOf(names: ReadonlySet<string>, { nodes }: ShardedGraph): ReadonlySet<string> {
  return new Set(nodes.filter(({ name }) => names.has(name)).map(({ phase }) => phase));
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
