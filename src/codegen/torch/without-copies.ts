/**
 * @file A sharded graph without operators that only give a tensor a second name, as gradients of sums do: their readers read the
 * tensor itself, which the program may then write over.
 */
import { operatorRole } from '../../ir/ops/index.js';
import {
  type LocalGradient,
  readsOf,
  resultsOf,
  type ShardedGraph,
  type ShardedNode,
} from '../../partition/sharded-graph.js';
import { endsOf } from './own-functions.js';
import { tensorOf } from './tensors.js';

export function withoutCopies(sharded: ShardedGraph): ShardedGraph {
  const { nodes, gradients } = sharded;
  // Others know these by their names, or a call may make them.
  const called = [...(gradients?.values() ?? [])].flatMap(({ operands }) => operands.map(({ gradient }) => gradient));
  const staying = new Set<string | null>([...endsOf(sharded), ...called]);
  // A copy from another memory is freed at its one reader.
  const made = new Set(nodes.filter(({ kind }) => kind !== 'move').flatMap(resultsOf));
  const sources = new Map<string, string>();
  const sourceOf = (name: string) => sources.get(name) ?? name;
  const kept = nodes.filter((node) => {
    const [[from], [to]] = [readsOf(node), resultsOf(node)];
    if (!isCopy(node, sharded) || from === undefined || to === undefined) return true;
    if (staying.has(to) || !made.has(from)) return true;
    sources.set(to, sourceOf(from));
    return false;
  });
  if (sources.size === 0) return sharded;
  const optional = (name: string | null) => name && sourceOf(name);
  const renamed = (node: ShardedNode): ShardedNode =>
    node.kind === 'compute' ? { ...node, inputs: node.inputs.map(optional) } : { ...node, input: sourceOf(node.input) };
  const readBy = ({ resultGradient, operands, ...own }: LocalGradient): LocalGradient => ({
    ...own,
    resultGradient: sourceOf(resultGradient),
    operands: operands.map((operand) => ({ ...operand, tensor: optional(operand.tensor) })),
  });
  return {
    ...sharded,
    nodes: kept.map(renamed),
    tensors: new Map([...sharded.tensors].filter(([name]) => !sources.has(name))),
    ...(gradients ? { gradients: new Map([...gradients].map(([region, own]) => [region, readBy(own)])) } : {}),
  };
}

/** Whether a micro-batch's operator gives its operand another name, and nothing else. */
function isCopy(node: ShardedNode, sharded: ShardedGraph): boolean {
  if (node.kind !== 'compute' || operatorRole(node) !== 'copy') return false;
  const [from, to] = [node.inputs[0], node.outputs[0]];
  if (node.phase === 'update' || node.phase === 'begin' || !from || !to) return false;
  const [read, made] = [tensorOf(sharded, from), tensorOf(sharded, to)];
  return read.place === made.place && String(read.first) === String(made.first) && read.dtype === made.dtype;
}
