/**
 * @file Operators that lowering writes out in others because ONNX Runtime lacks them, and regions that it writes out as the file
 * does, that torch has functions for: each is one operator again. An attention saves numbers of its rows for its gradient, which
 * torch's keeps by itself: both become one operator, or neither.
 */
import { REGION_DOMAIN } from '../../ir/fused-regions/fused-region.js';
import type { Phase } from '../../ir/graph.js';
import { appendTo } from '../../ir/group-by.js';
import { needed } from '../../ir/needed.js';
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

/** By gradient region: its gradients as calls. */
type Gradients = ReadonlyMap<string, LocalGradient>;

/** The graph with such operators in place of their nodes: where the last of these is. */
export function withOwnFunctions(sharded: ShardedGraph): ShardedGraph {
  const { writtenOut = new Map<string, WrittenOut>(), ...rest } = sharded;
  const reads = readsIn(sharded);
  const called = new Map<string, LocalGradient>();
  const joined = [...writtenOut.values()].flatMap((whole): readonly JoinedNodes[] => {
    const gradients = hasFunction(whole, sharded) ? gradientsOf(whole, sharded, reads) : null;
    if (!gradients) return [];
    for (const [region, gradient] of gradients) called.set(region, gradient);
    const inputs = whole.inputs.map(reads.copiesIn(whole.nodes));
    return [joinedOperator({ ...whole, inputs }), ...[...gradients.values()].map(joinedGradient)];
  });
  if (joined.length === 0) return rest;
  const groups = new Map(joined.flatMap((one) => [...one.nodes].map((name) => [name, one] as const)));
  const last = new Map(
    sharded.nodes.flatMap((node) => {
      const own = groups.get(node.name);
      return own ? [[own, node] as const] : [];
    }),
  );
  const replaced = sharded.nodes.flatMap((node) => {
    const own = groups.get(node.name);
    if (!own || node.kind !== 'compute') return [node];
    return last.get(own) === node ? [{ ...node, ...own.as }] : [];
  });
  const nodes = withoutUnreadCopies(replaced, endsOf(sharded));
  const namesIn = (all: Iterable<ShardedNode>) => [...all].flatMap((node) => [...readsOf(node), ...resultsOf(node)]);
  const used = new Set(namesIn(nodes));
  const inside = namesIn(sharded.nodes.filter(({ name }) => groups.has(name)));
  const gone = new Set(inside.filter((name) => !used.has(name)));
  const withoutGone = <Value>(all: ReadonlyMap<string, Value>) => new Map([...all].filter(([name]) => !gone.has(name)));
  const asNode = (region: string, given: LocalGradient): LocalGradient => {
    const gradient = called.get(region);
    if (!gradient) return given;
    const names = [...gradient.nodes].filter((name) => last.get(groups.get(name) as JoinedNodes)?.name === name);
    return { ...gradient, nodes: new Set(names) };
  };
  return {
    ...rest,
    nodes,
    tensors: withoutGone(sharded.tensors),
    constants: withoutGone(sharded.constants),
    ...(sharded.gradients
      ? { gradients: new Map([...sharded.gradients].map(([region, own]) => [region, asNode(region, own)])) }
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
  return { nodes, as: { op: `${op}Gradient`, domain: REGION_DOMAIN, attributes, inputs, outputs } };
}

/** Which nodes read which tensors. */
interface GraphReads {
  /** By tensor: the nodes that read it; null among them for an output of the graph, state, and transfers. */
  readonly readersOf: ReadonlyMap<string, readonly (ShardedNode | null)[]>;
  /** By names of nodes: a tensor's copy from another memory that they read in its place, or the tensor. */
  readonly copiesIn: (members: ReadonlySet<string>) => (tensor: string) => string;
  readonly phaseOf: (node: string) => Phase | undefined;
}

function readsIn(sharded: ShardedGraph): GraphReads {
  const { nodes } = sharded;
  const copied = new Map(nodes.flatMap((node) => (node.kind === 'move' ? [[node.output, node.input] as const] : [])));
  const sourceOf = (name: string): string => {
    const source = copied.get(name);
    return source === undefined ? name : sourceOf(source);
  };
  const byName = new Map(nodes.map((node) => [node.name, node]));
  const readsBy = (name: string) => {
    const node = byName.get(name);
    return node ? readsOf(node) : [];
  };
  return {
    readersOf: readersIn(sharded),
    copiesIn: (members) => {
      const read = new Map([...members].flatMap(readsBy).map((name) => [sourceOf(name), name]));
      return (tensor) => read.get(tensor) ?? tensor;
    },
    phaseOf: (name) => byName.get(name)?.phase,
  };
}

function withCopies(gradient: LocalGradient, readAs: (tensor: string) => string): LocalGradient {
  const operands = gradient.operands.map((operand) => ({
    ...operand,
    tensor: operand.tensor && readAs(operand.tensor),
  }));
  return { ...gradient, operands, resultGradient: readAs(gradient.resultGradient) };
}

function readersIn(sharded: ShardedGraph): GraphReads['readersOf'] {
  const readers = new Map<string, (ShardedNode | null)[]>();
  for (const node of sharded.nodes) for (const name of readsOf(node)) appendTo(readers, name, node);
  for (const name of endsOf(sharded)) appendTo(readers, name, null);
  return readers;
}

/** Tensors that others know by their names: outputs, state, and what other stages read. */
export function endsOf({ outputs, state, pipeline }: ShardedGraph): readonly string[] {
  const sent = (pipeline?.sends ?? []).map(({ tensor }) => tensor);
  return [...outputs.map(({ tensor }) => tensor), ...state.map(({ from }) => from), ...sent];
}

/** Without copies between memories of what only nodes that are gone read. */
function withoutUnreadCopies(nodes: readonly ShardedNode[], ends: readonly string[]): readonly ShardedNode[] {
  const isCopy = ({ kind }: ShardedNode) => kind === 'move';
  const read = nodes.filter((node) => !isCopy(node)).flatMap(readsOf);
  const copies = new Set(needed(nodes.filter(isCopy), [...read, ...ends], readsOf, resultsOf));
  return nodes.filter((node) => !isCopy(node) || copies.has(node));
}

/** The gradients that read what an operator saves, all of them as calls; null where others read it, or one is no call. */
function gradientsOf(
  { saved, nodes: own }: WrittenOut,
  sharded: ShardedGraph,
  { readersOf, copiesIn, phaseOf }: GraphReads,
): Gradients | null {
  const gradients = new Map<string, LocalGradient>();
  for (const reader of saved.flatMap((name) => readersOf.get(name) ?? [])) {
    if (reader && own.has(reader.name)) continue;
    const gradient = reader && sharded.gradients?.get(reader.origin);
    if (!reader || !gradient?.nodes.has(reader.name)) return null;
    const read = withCopies(gradient, copiesIn(gradient.nodes));
    // A gradient whose parts run in several phases stays in parts.
    const isInOne = [...gradient.nodes].every((name) => (phaseOf(name) ?? reader.phase) === reader.phase);
    if (!isInOne || !isCallable(read, sharded)) return null;
    gradients.set(reader.origin, read);
  }
  return gradients;
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
