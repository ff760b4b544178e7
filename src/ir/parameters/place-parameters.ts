/**
 * @file The graph with its parameters as weights of their own: the parameters of find-parameters.ts become the weights that a
 * training step updates.
 *
 *     zeros ─┬─ Add of fc1        fc1.bias ── Add of fc1
 *            └─ Add of fc2    →   fc2.bias ── Add of fc2
 *
 *     wte ──── Gather             wte ─┬─ Gather
 *     head ─── MatMul         →        └─ Transpose ─ MatMul
 */

import { type Graph, type Node, plainFileTensor } from '../graph.js';
import { appendTo } from '../group-by.js';
import { ForwardWriter, readIn } from '../passes/forward-writer.js';
import { madeOnce } from '../remembered.js';
import { withOperands } from '../with-operands.js';
import type { Parameter, WeightPlace } from './parameter.js';
import { type OperandReaders, operandReaders } from './places.js';

export interface PlacedParameters {
  readonly graph: Graph;
  /** The weight that a parameter is: its name, but where something else in the graph has that. */
  readonly weightOf: (parameter: Parameter) => string;
}

/**
 * Gives each of `parameters` one weight of its name. A place that was served by another weight reads the parameter's (transposed
 * where that weight was its transpose); operators between weight and place are copied where several parameters came through them.
 * Weights that nothing reads any more go; so do operators that served none but them.
 */
export function placeParameters(graph: Graph, parameters: readonly Parameter[]): PlacedParameters {
  const readers = operandReaders(graph.nodes);
  const moved = parameters.filter((parameter) => !ownsItsWeight(graph, readers, parameter));
  if (moved.length === 0) return { graph, weightOf: ({ name }) => name };
  return new PlacementWriter(graph, readers, moved).placed();
}

/** Whether the file has it so already: one weight of its name, which serves nothing else. */
function ownsItsWeight(graph: Graph, readers: OperandReaders, { name, weights, places }: Parameter): boolean {
  return weights.length === 1 && weights[0] === name && !servesOthers(graph, readers, name, placesIn([{ places }]));
}

/** The operators that lead to places, and the places themselves. */
interface PlacePaths {
  readonly through: ReadonlySet<string>;
  readonly ends: ReadonlySet<string>;
}

function placesIn(parameters: readonly Pick<Parameter, 'places'>[]): PlacePaths {
  const places = parameters.flatMap((parameter) => parameter.places);
  return {
    through: new Set(places.flatMap((place) => place.through)),
    ends: new Set(places.map(({ node, operand }) => endKey(node, operand))),
  };
}

function endKey(node: string, operand: number): string {
  return JSON.stringify([node, operand]);
}

/** Whether a weight, or a tensor that operators on the paths make of it, is read elsewhere. */
function servesOthers(graph: Graph, readers: OperandReaders, weight: string, { through, ends }: PlacePaths): boolean {
  const carried = [weight];
  for (const tensor of carried) {
    if (graph.outputs.includes(tensor)) return true;
    for (const { node, operand } of readers.get(tensor) ?? []) {
      if (through.has(node.name)) carried.push(...node.outputs.filter((output) => output !== null));
      else if (!ends.has(endKey(node.name, operand))) return true;
    }
  }
  return false;
}

/** The operation of an operator between a weight and its place. `beside`: its operands, null for what comes from the weight. */
type PlacementStep = Pick<Node, 'op' | 'domain' | 'attributes'> & { readonly beside: readonly (string | null)[] };

const TURN: PlacementStep = { op: 'Transpose', domain: '', attributes: { perm: [1, 0] }, beside: [null] };

class PlacementWriter {
  private readonly write: ForwardWriter;
  private readonly nodeOf: ReadonlyMap<string, Node>;
  /** Per operator that reads parameters: its operands as they are to be. */
  private readonly operands = new Map<string, Map<number, string>>();
  /** Operators that carry a parameter to its places, to be inserted before the first of those. */
  private readonly carriers = new Map<string, Node[]>();
  /** By parameter and operators passed: the tensor that carries its value there. */
  private readonly carried = new Map<string, string>();
  private readonly names = new Map<Parameter, string>();

  constructor(
    private readonly base: Graph,
    readers: OperandReaders,
    parameters: readonly Parameter[],
  ) {
    this.write = new ForwardWriter(base);
    this.nodeOf = new Map(base.nodes.map((node) => [node.name, node]));
    const order = new Map(base.nodes.map((node, position) => [node.name, position]));
    // Names of weights that are about to go are free for parameters.
    const gone = new Set(parameters.flatMap(({ weights }) => weights));
    const sources = new Map([...gone].map((name) => [name, base.weights.get(name)]));
    const ways = placesIn(parameters);
    for (const name of gone) {
      if (servesOthers(base, readers, name, ways)) continue;
      this.write.tensors.delete(name);
      this.write.weights.delete(name);
    }
    for (const parameter of parameters) {
      const weight = sources.get(parameter.weights[0] ?? '');
      if (!weight) throw new Error(`${parameter.name} has no weight`);
      const file = weight.file ?? plainFileTensor(parameter.weights[0] ?? parameter.name, weight);
      const name = this.write.weight(parameter.name, { ...weight, role: parameter.role, file });
      this.names.set(parameter, name);
      const places = [...parameter.places].sort((a, b) => (order.get(a.node) ?? 0) - (order.get(b.node) ?? 0));
      for (const place of places) this.redirect(name, place);
    }
  }

  placed(): PlacedParameters {
    const nodes = this.base.nodes.flatMap((node) => [
      ...(this.carriers.get(node.name) ?? []),
      this.withItsOperands(node),
    ]);
    const graph = this.write.graph(alive(nodes, this.base));
    return { graph, weightOf: (parameter) => this.names.get(parameter) ?? parameter.name };
  }

  private withItsOperands(node: Node): Node {
    const found = this.operands.get(node.name);
    if (!found) return node;
    return withOperands(
      node,
      node.inputs.map((input, operand) => found.get(operand) ?? input),
    );
  }

  private redirect(name: string, place: WeightPlace): void {
    const node = this.nodeOf.get(place.node);
    if (!node) throw new Error(`${place.node} is not an operator of the graph`);
    const found = madeOnce(this.operands, node.name, () => new Map<number, string>());
    found.set(place.operand, this.carry(name, place, node));
  }

  /** The parameter's value as the place wants it. */
  private carry(name: string, { isTransposeOfFirst, through, weight }: WeightPlace, reader: Node): string {
    const steps: (Node & PlacementStep)[] = [];
    for (let [index, from] = [0, weight]; index < through.length; index++) {
      const step = this.nodeOf.get(through[index] ?? '');
      if (!step) continue;
      steps.push({ ...step, beside: step.inputs.map((input) => (input === from ? null : input)) });
      from = step.outputs[0] ?? '';
    }
    const [first] = steps;
    // The transpose of a weight that was stored transposed is the weight itself.
    const undone = isTransposeOfFirst && first !== undefined && turnsMatrix(first);
    let [at, key] = [name, JSON.stringify([name, isTransposeOfFirst && !undone])];
    if (isTransposeOfFirst && !undone)
      at = madeOnce(this.carried, key, () => this.step(`${name}/transposed`, TURN, at, reader));
    for (const step of undone ? steps.slice(1) : steps) {
      const input = at;
      key = `${key} ${JSON.stringify(step.name)}`;
      at = madeOnce(this.carried, key, () => this.step(`${name}/${step.op}`, step, input, reader));
    }
    return at;
  }

  private step(wanted: string, { op, attributes, domain, beside }: PlacementStep, input: string, reader: Node): string {
    const operands = beside.map((other) => other ?? input);
    const made = this.write.add(wanted, reader, op, operands, attributes, domain);
    for (const node of this.write.take()) appendTo(this.carriers, reader.name, node);
    return made;
  }
}

/** Whether the operator exchanges a matrix' dimensions and does nothing else. */
function turnsMatrix({ attributes }: Node): boolean {
  const perm = attributes['perm'];
  return Array.isArray(perm) && perm.join() === '1,0';
}

/** Without operators that were read before and are not any more. */
function alive(nodes: readonly Node[], graph: Graph): readonly Node[] {
  const before = readIn(graph, graph.nodes);
  for (let left = nodes; ; ) {
    const read = readIn(graph, left);
    const next = left.filter((node) =>
      node.outputs.some((name) => name !== null && (read.has(name) || !before.has(name))),
    );
    if (next.length === left.length) return left;
    left = next;
  }
}
