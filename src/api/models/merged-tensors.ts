/**
 * @file Tensors of a model's file that hold several parameters, which training made different. Each parameter gets a tensor
 * of its own, and the operators of the file that are its places read that:
 *
 *     ones ─┬─ Mul of n1                  n1.weight ── Mul of n1
 *           └─ Identity ─ Mul of n2   →   n2.weight ── Mul of n2
 */
import type { Graph, Node } from '../../ir/graph.js';
import type { GraphProto, NodeProto } from '../../ir/onnx/schema.js';
import { HANDS_ON } from '../../ir/parameters/identities.js';
import type { Parameter } from '../../ir/parameters/parameter.js';
import { parameterPlaces } from '../../ir/parameters/places.js';
import { madeOnce } from '../../ir/remembered.js';
import { unusedName } from '../../ir/unused-name.js';

/** By parameter: the tensor that carries its value, where they differ. */
type Carriers = ReadonlyMap<Parameter, string>;

export interface Separated {
  readonly nodes: readonly NodeProto[];
  /** By parameter: the tensor of the file that is to hold it. */
  readonly tensors: Carriers;
}

/**
 * The operators of the file's main graph, reading a tensor for each of the parameters that `tensor` holds. It stays with the
 * parameter of its name, else with the first; operators that pass it on to places of several are copied.
 * @param graph the imported graph, whose operators extend the names of the file's
 * @returns null if an operator reads it that is not a place of exactly one of the parameters
 */
export function separated(
  file: GraphProto,
  graph: Graph,
  tensor: string,
  parameters: readonly Parameter[],
): Separated | null {
  const nodes = file.node ?? [];
  const kept = new Set((file.output ?? []).map(({ name }) => name));
  const isAlias = ({ op_type: op, output: [name = ''] = [] }: NodeProto): boolean =>
    op === 'Identity' && !kept.has(name);
  const taken = new Set([
    ...(file.initializer ?? []).map(({ name = '' }) => name),
    ...(file.input ?? []).map(({ name = '' }) => name),
    ...nodes.flatMap((node) => (isAlias(node) && node.input?.[0] === tensor ? [] : (node.output ?? []))),
  ]);
  const newName = (wanted: string): string => {
    const name = unusedName(taken, wanted);
    taken.add(name);
    return name;
  };
  const stays = parameters.find(({ name }) => name === tensor) ?? parameters[0];
  const named = (of: (parameter: Parameter) => string): Carriers =>
    new Map(parameters.map((parameter) => [parameter, of(parameter)]));
  const tensors = named((parameter) => (parameter === stays ? tensor : newName(parameter.name)));
  const carried = new Map([[tensor, tensors]]);
  const serves = servers(graph, parameters);
  const written: NodeProto[] = [];
  for (const node of nodes) {
    const [first = '', ...others] = node.input ?? [];
    if (readsWithin(node, carried)) return null;
    if (![first, ...others].some((name) => carried.has(name))) {
      written.push(node);
      continue;
    }
    const readBy = (parameter: Parameter): NodeProto => ({
      ...node,
      input: [first, ...others].map((name) => carried.get(name)?.get(parameter) ?? name),
    });
    const [server, ...more] = serves(node);
    if (server && more.length === 0) {
      written.push(readBy(server));
      continue;
    }
    const [output = ''] = node.output ?? [];
    const source = carried.get(first);
    if (!source || !HANDS_ON.has(node.op_type ?? '') || others.some((name) => carried.has(name))) return null;
    if (isAlias(node)) {
      carried.set(output, source);
      continue;
    }
    const results = named((parameter) => (parameter === stays ? output : newName(`${parameter.name}/${output}`)));
    carried.set(output, results);
    for (const [parameter, result] of results)
      written.push({ ...readBy(parameter), ...(result === output ? {} : { name: result }), output: [result] });
  }
  const copies = new Set([...carried.values()].flatMap((names) => [...names.values()]));
  return { nodes: withoutUnread(written, copies, kept), tensors };
}

/** Those of the parameters that have places at an operator of the file. */
function servers(graph: Graph, parameters: readonly Parameter[]): (node: NodeProto) => readonly Parameter[] {
  const nodeOf = new Map(graph.nodes.map((node) => [node.name, node]));
  const served = new Map<string, Set<Parameter>>();
  for (const parameter of parameters) {
    for (const { node, operand, through } of parameter.places) {
      for (const name of [...through, ...operatorsAt(nodeOf.get(node), operand, node)]) {
        // Import extends the file's names of operators: node_linear/matmul.
        for (let end = name.length; end > 0; end = name.lastIndexOf('/', end - 1)) {
          const own = name.slice(0, end);
          madeOnce(served, own, () => new Set<Parameter>()).add(parameter);
        }
      }
    }
  }
  return ({ name = '' }) => (name === '' ? [] : [...(served.get(name) ?? [])]);
}

/** The names of an operator and, in a region, of the operators inside that read its operand. */
function operatorsAt(node: Node | undefined, operand: number, name: string): readonly string[] {
  const read = node?.inputs[operand];
  if (!node?.body || !read) return [name];
  const { body } = node;
  const inside = new Map(body.nodes.map((item) => [item.name, item]));
  const places = parameterPlaces(body, [read]).get(read) ?? [];
  return places.flatMap((place) => [
    ...place.through,
    ...operatorsAt(inside.get(place.node), place.operand, place.node),
  ]);
}

/** Whether a graph inside the operator (of If, of Loop) reads one of the tensors. */
function readsWithin({ attribute = [] }: NodeProto, tensors: { has(name: string): boolean }): boolean {
  return attribute.some(({ g }) =>
    (g?.node ?? []).some((node) => (node.input ?? []).some((name) => tensors.has(name)) || readsWithin(node, tensors)),
  );
}

/** Without operators that make only `copies` that nothing reads. */
function withoutUnread(
  nodes: readonly NodeProto[],
  copies: ReadonlySet<string>,
  kept: ReadonlySet<string | undefined>,
): readonly NodeProto[] {
  const read = new Set<string | undefined>(kept);
  const left = nodes.toReversed().filter(({ input = [], output = [], attribute = [] }) => {
    if (output.every((name) => copies.has(name) && !read.has(name))) return false;
    for (const name of [...input, ...attribute.flatMap(({ g }) => namesIn(g))]) read.add(name);
    return true;
  });
  return left.toReversed();
}

function namesIn(graph: GraphProto | undefined): readonly string[] {
  return (graph?.node ?? []).flatMap(({ input = [], attribute = [] }) => [
    ...input,
    ...attribute.flatMap(({ g }) => namesIn(g)),
  ]);
}
