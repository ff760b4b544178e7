/**
 * @file Reverse-mode differentiation as a graph pass: from a graph and a scalar of it to the same graph with the operators that
 * make that scalar's gradients. Every operator's gradient is its registry entry's; what several readers hand back is added up
 * where the tensor is made. Gradient operators stand in the phase `backward`, in the layer of the operator they belong to.
 */
import { isFloating } from '../dtype.js';
import { AutoparError } from '../error.js';
import { elementCount, type Graph, type Node, type TensorType, typeOf, type Weight } from '../graph.js';
import type { Expansion, OperatorEntry } from '../operator.js';
import { constant } from '../ops/constants.js';
import { entryOf, unknownEntry } from '../ops/index.js';
import { unusedName } from '../unused-name.js';
import { viewOf } from '../view.js';

/** A graph with gradients. */
export interface Differentiated {
  readonly graph: Graph;
  /** By tensor asked for: the tensor that holds its gradient. */
  readonly gradients: ReadonlyMap<string, string>;
}

/**
 * Adds the gradients of `loss` (a scalar of the graph, any tensor) with respect to `wanted` (weights, inputs or computed
 * tensors). The graph must be free of blocks (flatten-blocks.ts). Outputs stay as they are.
 * @throws AutoparError (input) `loss-not-scalar`; `no-gradient` where an operator on the way has none, or no way leads from a
 * wanted tensor to the loss; both name the way
 */
export function differentiate(graph: Graph, loss: string, wanted: readonly string[]): Differentiated {
  const type = typeOf(graph, loss);
  if (elementCount(type.shape) !== 1 || !isFloating(type.dtype))
    throw new AutoparError(
      'loss-not-scalar',
      'input',
      `the loss '${loss}' is ${type.dtype} [${type.shape.join(', ')}]: a gradient is that of one floating-point number`,
      { tensor: loss },
      'name an output with one element, or have a loss appended: --loss cross_entropy or mse',
    );
  return new Differentiation(graph, loss, wanted).run();
}

class Differentiation {
  private readonly nodes: Node[] = [];
  private readonly tensors: Map<string, TensorType>;
  private readonly weights: Map<string, Weight>;
  private readonly constants = new Map<string, string>();
  /** What readers have handed back so far, by tensor. */
  private readonly parts = new Map<string, string[]>();
  private readonly gradients = new Map<string, string>();

  constructor(
    private readonly graph: Graph,
    private readonly loss: string,
    private readonly wanted: readonly string[],
  ) {
    this.tensors = new Map(graph.tensors);
    this.weights = new Map(graph.weights);
  }

  run(): Differentiated {
    const moving = this.moving();
    const { dtype, shape } = typeOf(this.graph, this.loss);
    const seed = this.constant({ ...constant(dtype, [1], shape) });
    this.parts.set(this.loss, [seed]);
    for (const node of [...this.graph.nodes].reverse()) this.through(node, moving);
    for (const name of this.wanted) {
      const found = this.gradientOf(name, null);
      if (found === null) throw this.noWay(name);
      this.gradients.set(name, found);
    }
    const graph = {
      ...this.graph,
      nodes: [...this.graph.nodes, ...this.nodes],
      tensors: this.tensors,
      weights: this.weights,
    };
    return { graph, gradients: this.gradients };
  }

  /** Floating-point tensors that a wanted one moves. */
  private moving(): ReadonlySet<string> {
    const found = new Set(this.wanted);
    for (const node of this.graph.nodes) {
      if (!node.inputs.some((name) => name !== null && found.has(name))) continue;
      if (typeof entry(node).gradient === 'string') continue;
      for (const name of node.outputs) if (name !== null && isFloating(typeOf(this.graph, name).dtype)) found.add(name);
    }
    return found;
  }

  /** Hands the gradients of a node's results back to its operands. */
  private through(node: Node, moving: ReadonlySet<string>): void {
    const wanted = node.inputs.map(
      (name) => name !== null && moving.has(name) && isFloating(typeOf(this.graph, name).dtype),
    );
    if (!wanted.some(Boolean) || !node.outputs.some((name) => name !== null && this.parts.has(name))) return;
    const { gradient } = entry(node);
    if (typeof gradient === 'string') return;
    const results = node.outputs.map((name) => (name === null ? null : this.gradientOf(name, node)));
    if (!gradient) throw this.without(node);
    const view = { ...viewOf(this.graph, node), wanted, given: results.map((name) => name !== null) };
    const made = this.expand(gradient(view), node, results);
    node.inputs.forEach((name, index) => {
      const part = made.get(`d${index}`);
      if (name !== null && wanted[index] && part !== undefined)
        this.parts.set(name, [...(this.parts.get(name) ?? []), part]);
    });
  }

  /** The sum of what a tensor's readers handed back; null where none did. Kept, so that it is made once. */
  private gradientOf(tensor: string, maker: Node | null): string | null {
    const [first, ...others] = this.parts.get(tensor) ?? [];
    if (first === undefined) return null;
    let sum = first;
    others.forEach((part, index) => {
      const name = unusedName(this.tensors, `${tensor}/gradient${index === others.length - 1 ? '' : `/${index}`}`);
      this.add(maker, name, 'Add', '', {}, [sum, part], [name], [typeOf(this.graph, tensor)]);
      sum = name;
    });
    this.parts.set(tensor, [sum]);
    return sum;
  }

  /** The operators of a gradient, with names of their own; returns what they make by the expansion's names. */
  private expand(expansion: Expansion, node: Node, results: readonly (string | null)[]): ReadonlyMap<string, string> {
    const names = new Map<string, string>();
    const bind = (kind: string, list: readonly (string | null)[]) => {
      for (const [index, name] of list.entries()) if (name !== null) names.set(`${kind}${index}`, name);
    };
    bind('in', node.inputs);
    bind('out', node.outputs);
    bind('grad', results);
    for (const [name, value] of Object.entries(expansion.constants)) names.set(name, this.constant(value));
    const prefix = unusedName(this.tensors, `${node.name}/gradient`);
    for (const [position, inner] of expansion.nodes.entries()) {
      const inputs = inner.inputs.map((name) => {
        if (name === null) return null;
        const known = names.get(name);
        if (known === undefined) throw new Error(`the gradient of ${node.op} reads ${name}, which nothing makes`);
        return known;
      });
      const operand = (name: string | null) => (name === null ? null : (this.tensors.get(name) ?? null));
      const domain = inner.domain ?? '';
      const view = {
        name: `${prefix}/${position}`,
        op: inner.op,
        domain,
        attributes: inner.attributes ?? {},
        inputs: inputs.map(operand),
        outputs: [],
        outputCount: inner.outputs.length,
      };
      const types = (entryOf(inner.op, domain) ?? unknownEntry(inner.op, domain)).infer(view);
      const outputs = inner.outputs.map((name) => {
        const own = unusedName(this.tensors, `${prefix}/${name}`);
        names.set(name, own);
        return own;
      });
      this.add(node, view.name, inner.op, domain, view.attributes, inputs, outputs, types);
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
    this.nodes.push({
      name,
      op,
      domain,
      attributes,
      inputs,
      outputs,
      module: near?.module ?? [],
      layer: near?.layer ?? null,
      scope: 'micro',
      phase: 'backward',
      group: name,
      body: null,
    });
  }

  /** A small constant, kept once per value. */
  private constant(value: {
    readonly dtype: TensorType['dtype'];
    readonly shape: readonly number[];
    readonly data: Uint8Array;
  }): string {
    const key = `${value.dtype}[${value.shape}]${Buffer.from(value.data).toString('base64')}`;
    const known = this.constants.get(key);
    if (known !== undefined) return known;
    const name = unusedName(this.tensors, `gradient/constant/${this.constants.size}`);
    this.constants.set(key, name);
    this.tensors.set(name, { dtype: value.dtype, shape: value.shape });
    this.weights.set(name, {
      dtype: value.dtype,
      shape: value.shape,
      role: 'constant',
      source: { kind: 'inline', data: value.data },
    });
    return name;
  }

  /** An operator on the way from a wanted tensor to the loss has no gradient. */
  private without(node: Node): AutoparError {
    const from = this.wayTo(node);
    return new AutoparError(
      'no-gradient',
      'input',
      `node '${node.name}' (${node.op}) has no gradient, and it lies between ${from.join(' → ')} and the loss '${this.loss}'`,
      { node: node.name },
      'freeze what it leads from (--frozen), or export the model without it',
    );
  }

  /** No gradient arrived: where the way ends. */
  private noWay(tensor: string): AutoparError {
    const reached = new Set([tensor]);
    let last: Node | null = null;
    for (const node of this.graph.nodes) {
      if (!node.inputs.some((name) => name !== null && reached.has(name))) continue;
      last = node;
      if (typeof entry(node).gradient === 'string') break;
      for (const name of node.outputs) if (name !== null) reached.add(name);
    }
    const reason = last ? entry(last).gradient : undefined;
    const end =
      last === null
        ? 'nothing reads it'
        : typeof reason === 'string'
          ? `its way ends at node '${last.name}' (${last.op}): ${reason}`
          : `its last reader is node '${last.name}' (${last.op}), which does not lead there`;
    return new AutoparError(
      'no-gradient',
      'input',
      `the loss '${this.loss}' does not depend on '${tensor}' in a way that can be differentiated: ${end}`,
      { tensor, ...(last ? { node: last.name } : {}) },
      'freeze it (--frozen), or take another loss',
    );
  }

  /** Some way from a wanted tensor to a node, by tensors. */
  private wayTo(node: Node): readonly string[] {
    const makers = new Map(this.graph.nodes.flatMap((item) => item.outputs.map((output) => [output, item] as const)));
    const way: string[] = [node.name];
    const wanted = new Set(this.wanted);
    const moved = this.moving();
    for (let current: Node | undefined = node; current; ) {
      const next: string | null | undefined = current.inputs.find((name) => name !== null && moved.has(name));
      if (!next) break;
      way.unshift(next);
      if (wanted.has(next)) break;
      current = makers.get(next);
    }
    return way;
  }
}

function entry({ op, domain }: Node): OperatorEntry {
  return entryOf(op, domain) ?? unknownEntry(op, domain);
}
