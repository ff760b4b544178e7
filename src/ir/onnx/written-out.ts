/**
 * @file A graph without the operators that no runtime has, or that a device lacks: each is replaced by its expansion, over whole
 * shapes.
 */

import type { Graph, Node, TensorType, Weight } from '../graph.js';
import { inPlaceOf } from '../in-place-of.js';
import type { Operator, OperatorEntry, WrittenOperators } from '../operator.js';
import { operatorOf } from '../operator-of.js';
import { entryOf, operatorEntry } from '../ops/index.js';
import { resultNames } from '../written-names.js';

/** Without operators that no runtime has; the same graph where it has none. */
export function writtenOut(graph: Graph): Graph {
  const isWritten = ({ op, domain }: Node) => entryOf(op, domain)?.isWritten === true;
  return graph.nodes.some(isWritten) ? expandedGraph(graph, isWritten, ({ name }) => name) : graph;
}

/**
 * In the plainest operators that the registry has expansions to, named by their type and by the place of the operator that they
 * replace, `Sub_2_5`; null where the registry has plainer operators for none of them.
 */
export function graphInPlainOperators(graph: Graph): Graph | null {
  const read = new Set([...graph.nodes.flatMap(({ inputs }) => inputs), ...graph.outputs]);
  const unread = new Set(graph.nodes.flatMap(({ outputs }) => outputs.filter((name) => !read.has(name as string))));
  const isFused = (node: Node, around: Pick<Graph, 'tensors'>) => {
    const entry = entryOf(node.op, node.domain);
    const operator = operatorOf(around, node);
    const form = entry && plainFormOf(entry, operator);
    if (!form) return false;
    // Some make only the first result.
    const made = new Set(form.nodes.flatMap(({ outputs }) => outputs));
    return resultNames(node.outputs).every((name, index) => unread.has(node.outputs[index] ?? null) || made.has(name));
  };
  return graph.nodes.some((node) => isFused(node, graph))
    ? expandedGraph(graph, isFused, ({ op }, index, place) => `${op}_${index}_${place}`)
    : null;
}

/** An operator in plainer ones; null where the registry has none. An expansion without `expanded` factors only splits a sum. */
function plainFormOf(entry: OperatorEntry, operator: Operator): WrittenOperators | null {
  const { expansion, gradient, plain } = entry;
  if (plain) return plain(operator);
  const isMixed = [...entry.rule(operator).factors.values()].some(({ kind }) => kind === 'expanded');
  if (expansion) return isMixed || entry.isWritten ? expansion(operator) : null;
  return gradient?.kind === 'plain' ? gradient.form(operator) : null;
}

/** The graph with operators replaced by expansions, also inside of expansions, except an operator in its own expansion. */
function expandedGraph(
  graph: Graph,
  isExpanded: (node: Node, around: Pick<Graph, 'tensors'>) => boolean,
  nameOf: (node: Node, index: number, place: number) => string,
): Graph {
  const tensors = new Map<string, TensorType>(graph.tensors);
  const weights = new Map<string, Weight>(graph.weights);
  const expand = (node: Node, around: readonly string[]): readonly Node[] => {
    const kind = `${node.domain}:${node.op}`;
    if (around.includes(kind) || !isExpanded(node, { tensors })) return [node];
    const form = plainFormOf(operatorEntry(node), operatorOf({ tensors }, node));
    if (!form) throw new Error(`${node.op} is written out and has no expansion`);
    return inPlaceOf(node, form, { tensors, weights }).nodes.flatMap((inner) => expand(inner, [...around, kind]));
  };
  const nodes = graph.nodes.flatMap((node, place) =>
    expand(node, []).map((inner, index) => ({ ...inner, name: nameOf(inner, index, place) })),
  );
  return { ...graph, nodes, tensors, weights };
}
