/**
 * @file Gradients propagated through a graph, from its last operator to its first. Registry entries define the gradients of
 * operators; gradients of several readers are added up. Gradient operators are in the layer of their forward operator, sums of
 * gradients in that of the reader whose gradient comes last; in the phase `backward-input` where an activation's gradient
 * depends on them.
 */
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import {
  type ConstantTensor,
  elementCount,
  type Graph,
  type Node,
  type TensorType,
  typeOf,
  type Weight,
} from '../graph.js';
import { appendTo } from '../group-by.js';
import { makersOf } from '../makers-and-readers.js';
import { weightTensors } from '../of-weights.js';
import type { Gradient, OperatorEntry, WrittenOperators } from '../operator.js';
import { operatorOf } from '../operator-of.js';
import { constantWeight, numbersOf } from '../ops/constants.js';
import { operatorEntry } from '../ops/index.js';
import { plainNode } from '../plain-node.js';
import { madeOnce } from '../remembered.js';
import { unusedName } from '../unused-name.js';
import { gradientNames, tensorsByName } from '../written-names.js';
import { gradientsOfPlain, plainFormRequest, plainGraph } from './plain-form.js';

/** The gradients to compute: from which seeds, and of which tensors. */
export interface GradientRequest {
  /** By tensor of the graph: the tensor that holds its gradient. */
  readonly seeds: ReadonlyMap<string, string>;
  /** Tensors whose gradients are wanted. */
  readonly wanted: readonly string[];
  /** Names of constants and of parts of sums begin with it. */
  readonly prefix: string;
  /** Names that are taken around the graph. */
  readonly taken?: { readonly has: (name: string) => boolean };
  /** A gradient in place of the registry's. */
  readonly own?: (node: Node) => Gradient | undefined;
  /** Makes the gradients of fused regions; null for operators that are not regions. */
  readonly region?: (request: RegionRequest) => RegionGradient | null;
}

/** A region whose gradient is wanted. */
export interface RegionRequest {
  readonly graph: Graph;
  readonly node: Node;
  /** Per operand: whether its gradient is wanted. */
  readonly wanted: readonly boolean[];
  /** Per result: the tensor that holds its gradient. */
  readonly results: readonly (string | null)[];
  /** Types of all tensors, those of gradients included. */
  readonly tensors: ReadonlyMap<string, TensorType>;
  readonly weights: ReadonlyMap<string, Weight>;
}

export interface RegionGradient {
  /** The region itself, where it stores more results for its gradient. */
  readonly forward: Node | null;
  readonly nodes: readonly Node[];
  /** Types of the new tensors outside of regions, and new constants. */
  readonly tensors: ReadonlyMap<string, TensorType>;
  readonly weights: ReadonlyMap<string, Weight>;
  /** Per operand: the tensor that holds its gradient. */
  readonly gradients: readonly (string | null)[];
}

export interface Backpropagated {
  /** The graph's nodes, some of which have more results than before. */
  readonly forward: readonly Node[];
  /** The new nodes, in topological order. */
  readonly nodes: readonly Node[];
  /** All tensors and weights. */
  readonly tensors: ReadonlyMap<string, TensorType>;
  readonly weights: ReadonlyMap<string, Weight>;
  /** By wanted tensor: the tensor that holds its gradient; tensors that no gradient reaches are left out. */
  readonly gradients: ReadonlyMap<string, string>;
}

/** Propagates gradients back through a graph. @throws AutoparError (input) `no-gradient`: an operator on the path has none */
export function backpropagate(graph: Graph, question: GradientRequest): Backpropagated {
  return new Backpropagation(graph, question).run();
}

/** The function that makes an operator's gradients; null where no gradient passes, or none is known. */
export function gradientOperators({ gradient }: OperatorEntry): Gradient | null {
  if (gradient?.kind === 'operators') return gradient.write;
  if (gradient?.kind !== 'plain') return null;
  return (operator) => {
    const graph = plainGraph(operator, gradient.form(operator));
    const question = { ...plainFormRequest(operator, graph), prefix: '' };
    return gradientsOfPlain(operator, graph, backpropagate(graph, question));
  };
}

/** Floating-point tensors that depend on a wanted one. */
function movingTensors(graph: Graph, wanted: readonly string[]): ReadonlySet<string> {
  const found = new Set(wanted);
  for (const node of graph.nodes) {
    if (!node.inputs.some((name) => name !== null && found.has(name))) continue;
    if (operatorEntry(node).gradient?.kind === 'none') continue;
    for (const name of node.outputs) if (name !== null && isFloating(typeOf(graph, name).dtype)) found.add(name);
  }
  return found;
}

/** The gradient that one reader of a tensor propagates to it; without a reader it is a seed, or the sum of all. */
interface GradientPart {
  readonly tensor: string;
  readonly reader: Node | null;
}

class Backpropagation {
  private readonly nodes: Node[] = [];
  private readonly tensors: Map<string, TensorType>;
  private readonly weights: Map<string, Weight>;
  private readonly constants = new Map<string, string>();
  private readonly replaced = new Map<Node, Node>();
  /** Gradients that readers have propagated so far, by tensor. */
  private readonly parts = new Map<string, GradientPart[]>();
  /** Tensors that hold gradients of activations; a cast weight is none. */
  private readonly ofActivations = new Set<string>();
  private readonly ofWeights: ReadonlySet<string>;

  constructor(
    private readonly graph: Graph,
    private readonly question: GradientRequest,
  ) {
    this.tensors = new Map(graph.tensors);
    this.weights = new Map(graph.weights);
    this.ofWeights = weightTensors(graph);
  }

  run(): Backpropagated {
    const { graph, question } = this;
    const moving = movingTensors(graph, question.wanted);
    for (const [tensor, seed] of question.seeds) this.parts.set(tensor, [{ tensor: seed, reader: null }]);
    for (const node of [...graph.nodes].reverse()) this.through(node, moving);
    const gradients = new Map<string, string>();
    for (const name of question.wanted) {
      const found = this.gradientOf(name, null);
      if (found !== null) gradients.set(name, found);
    }
    const forward = graph.nodes.map((node) => this.replaced.get(node) ?? node);
    return { forward, nodes: this.inPhases(), tensors: this.tensors, weights: this.weights, gradients };
  }

  /** The new nodes; those that some activation's gradient depends on are in the phase `backward-input`. */
  private inPhases(): readonly Node[] {
    const leads = new Set(this.ofActivations);
    const phased = [...this.nodes].reverse().map((node): Node => {
      if (!node.outputs.some((name) => name !== null && leads.has(name))) return node;
      for (const name of node.inputs) if (name !== null) leads.add(name);
      return { ...node, phase: 'backward-input' };
    });
    return phased.reverse();
  }

  /** Propagates the gradients of a node's results to its operands. */
  private through(node: Node, moving: ReadonlySet<string>): void {
    const { graph, question } = this;
    const wanted = node.inputs.map(
      (name) => name !== null && moving.has(name) && isFloating(typeOf(graph, name).dtype),
    );
    if (!wanted.some(Boolean) || !node.outputs.some((name) => name !== null && this.parts.has(name))) return;
    const entry = operatorEntry(node);
    if (entry.gradient?.kind === 'none') return;
    const gradient = question.own?.(node) ?? gradientOperators(entry);
    const results = node.outputs.map((name) => (name === null ? null : this.gradientOf(name, node)));
    const isOfWeights = node.outputs.every((name) => name === null || this.ofWeights.has(name));
    if (!isOfWeights) for (const name of results) if (name !== null) this.ofActivations.add(name);
    const { tensors, weights } = this;
    const region = question.region?.({ graph, node, wanted, results, tensors, weights });
    if (region) {
      this.adopt(node, region);
      return;
    }
    if (!gradient) throw this.without(node);
    const known = node.inputs.map((name) => (name === null ? null : knownNumber(graph, name)));
    const operator = { ...operatorOf(graph, node), wanted, given: results.map((name) => name !== null), known };
    const made = this.expand(gradient(operator), node, results);
    gradientNames(node.inputs).forEach((name, index) => {
      const part = made.get(name);
      if (wanted[index] && part !== undefined) this.addGradient(node, index, part);
    });
  }

  private addGradient(node: Node, operand: number, part: string): void {
    const name = node.inputs[operand] ?? '';
    appendTo(this.parts, name, { tensor: part, reader: node });
  }

  private adopt(node: Node, region: RegionGradient): void {
    if (region.forward) this.replaced.set(node, region.forward);
    for (const [name, type] of region.tensors) this.tensors.set(name, type);
    for (const [name, weight] of region.weights) this.weights.set(name, weight);
    this.nodes.push(...region.nodes);
    for (const [index, part] of region.gradients.entries()) if (part !== null) this.addGradient(node, index, part);
  }

  /** The sum of the gradients from a tensor's readers; null if none. Kept, so that it is made once. */
  private gradientOf(tensor: string, maker: Node | null): string | null {
    const [first, ...others] = this.parts.get(tensor) ?? [];
    if (first === undefined) return null;
    const { prefix, taken } = this.question;
    let sum = first.tensor;
    others.forEach((part, index) => {
      const isWhole = index === others.length - 1;
      // What is inside of a region is not known outside, where its name must not be made again.
      const inside = tensor.startsWith(prefix) ? tensor : `${prefix}${tensor}`;
      const wanted = isWhole ? `${tensor}/gradient` : `${inside}/gradient/${index}`;
      const name = unusedName({ has: (known) => this.tensors.has(known) || taken?.has(known) === true }, wanted);
      const near = maker && part.reader ? { ...maker, module: part.reader.module, layer: part.reader.layer } : maker;
      this.add(near, name, 'Add', '', {}, [sum, part.tensor], [name], [typeOf(this.graph, tensor)]);
      sum = name;
    });
    this.parts.set(tensor, [{ tensor: sum, reader: null }]);
    return sum;
  }

  /** Adds the operators of a gradient under unique names; returns these names by the expansion's. */
  private expand(
    expansion: WrittenOperators,
    node: Node,
    results: readonly (string | null)[],
  ): ReadonlyMap<string, string> {
    const names = tensorsByName(node.inputs, node.outputs, results);
    for (const [name, value] of Object.entries(expansion.constants)) names.set(name, this.constant(value));
    const prefix = unusedName(this.tensors, `${node.name}/gradient`);
    for (const [position, inner] of expansion.nodes.entries()) {
      const inputs = inner.inputs.map((name) => {
        if (name === null) return null;
        // A gradient in place of the registry's may read tensors of the graph by their names.
        const known = names.get(name) ?? (this.tensors.has(name) ? name : undefined);
        if (known === undefined) throw new Error(`the gradient of ${node.op} reads ${name}, which no node makes`);
        return known;
      });
      const operand = (name: string | null) => (name === null ? null : (this.tensors.get(name) ?? null));
      const domain = inner.domain ?? '';
      const operator = {
        name: `${prefix}/${position}`,
        op: inner.op,
        domain,
        attributes: inner.attributes ?? {},
        inputs: inputs.map(operand),
        outputs: [],
        outputCount: inner.outputs.length,
      };
      const types = operatorEntry({ op: inner.op, domain }).infer(operator);
      const outputs = inner.outputs.map((name) => {
        const own = unusedName(this.tensors, `${prefix}/${name}`);
        names.set(name, own);
        return own;
      });
      this.add(node, operator.name, inner.op, domain, operator.attributes, inputs, outputs, types);
    }
    return names;
  }

  private add(
    near: Node | null,
    name: string,
    op: string,
    domain: string,
    attributes: Node['attributes'],
    inputs: Node['inputs'],
    outputs: readonly string[],
    types: readonly TensorType[],
  ): void {
    outputs.forEach((output, index) => {
      const type = types[index];
      if (type) this.tensors.set(output, { dtype: type.dtype, shape: type.shape });
    });
    const { module = [], layer = null, name: forward = null } = near ?? {};
    const place = { module, layer, phase: 'backward-weight', forward } as const;
    this.nodes.push(plainNode({ name, op, domain, attributes, inputs, outputs, ...place }));
  }

  /** A small constant, kept once per value. */
  private constant(value: ConstantTensor): string {
    const key = `${value.dtype}[${value.shape}]${Buffer.from(value.data).toString('base64')}`;
    return madeOnce(this.constants, key, () => {
      const name = unusedName(this.tensors, `${this.question.prefix}gradient/constant/${this.constants.size}`);
      this.tensors.set(name, { dtype: value.dtype, shape: value.shape });
      this.weights.set(name, constantWeight(value));
      return name;
    });
  }

  /** The error for an operator without a gradient on the path from a wanted tensor to the loss. */
  private without(node: Node): AutoparError {
    const { gradient } = operatorEntry(node);
    const why = gradient?.kind === 'refused' ? ` (${gradient.why})` : '';
    return new AutoparError(
      'no-gradient',
      'input',
      `node '${node.name}' (${node.op}) has no gradient${why}, and is between '${this.wantedBefore(node)}' and the loss`,
      { node: node.name },
      'freeze the parameters before it (--frozen), or export the model without it',
    );
  }

  /** A wanted tensor, such as a weight, that a node depends on. */
  private wantedBefore(node: Node): string {
    const makers = makersOf(this.graph.nodes);
    const wanted = new Set(this.question.wanted);
    const moved = movingTensors(this.graph, this.question.wanted);
    for (let current: Node | undefined = node; current; ) {
      const next: string | null | undefined = current.inputs.find((name) => name !== null && moved.has(name));
      if (!next || wanted.has(next)) return next ?? node.name;
      current = makers.get(next);
    }
    return node.name;
  }
}

/** The value of a constant of one element, if it is in memory. */
function knownNumber({ weights }: Graph, tensor: string): number | null {
  const weight = weights.get(tensor);
  if (weight?.role !== 'constant' || weight.source.kind !== 'inline' || elementCount(weight.shape) !== 1) return null;
  return numbersOf({ ...weight, data: weight.source.data })[0] ?? null;
}
