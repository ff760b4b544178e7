/**
 * @file Writing operators of the forward pass into an existing graph: types inferred by the registry, names unused so far.
 */
import type { Attributes, ConstantTensor, Graph, Node, StatePair, TensorType, Weight } from '../graph.js';
import { needed } from '../needed.js';
import { operatorOf } from '../operator-of.js';
import { entryOf } from '../ops/index.js';
import { plainNode } from '../plain-node.js';
import { unusedName } from '../unused-name.js';

/** Where a new operator belongs. */
export type Neighbourhood = Pick<Node, 'module' | 'layer'> & Partial<Pick<Node, 'phase'>>;

/** Collects tensors, weights, state and operators; the caller decides on their place among the graph's operators. */
export class ForwardWriter {
  readonly tensors: Map<string, TensorType>;
  readonly weights: Map<string, Weight>;
  readonly state: StatePair[];
  private made: Node[] = [];

  constructor(private readonly base: Graph) {
    this.tensors = new Map(base.tensors);
    this.weights = new Map(base.weights);
    this.state = [...base.state];
  }

  /** A name that no tensor has, and that belongs to a tensor of this type from now on. */
  tensor(wanted: string, { dtype, shape }: TensorType): string {
    const name = unusedName(this.tensors, wanted);
    this.tensors.set(name, { dtype, shape });
    return name;
  }

  weight(wanted: string, weight: Weight): string {
    const name = this.tensor(wanted, weight);
    this.weights.set(name, weight);
    return name;
  }

  /** A small value: a `constant` becomes part of the programs that read it, a `buffer` is an input of them. */
  value(wanted: string, { dtype, shape, data }: ConstantTensor, role: 'constant' | 'buffer' = 'constant'): string {
    return this.weight(wanted, { dtype, shape, role, source: { kind: 'inline', data } });
  }

  /** Adds an operator with one result, with the wanted name or one derived from it; returns the result's name. */
  add(
    wanted: string,
    { module, layer, phase = 'forward' }: Neighbourhood,
    op: string,
    inputs: readonly string[],
    attributes: Attributes = {},
    domain = '',
  ): string {
    return this.addAll(wanted, { module, layer, phase }, op, inputs, attributes, domain, 1)[0] ?? '';
  }

  /** The same with several results. */
  addAll(
    wanted: string,
    { module, layer, phase = 'forward' }: Neighbourhood,
    op: string,
    inputs: readonly (string | null)[],
    attributes: Attributes,
    domain: string,
    count: number,
  ): readonly string[] {
    const outputs: string[] = [];
    const name = unusedName(this.tensors, wanted);
    const place = { module, layer, phase };
    const node = plainNode({ name, op, domain, attributes, inputs, outputs: Array(count).fill(name), ...place });
    const types = entryOf(op, domain)?.infer(operatorOf({ tensors: this.tensors }, node)) ?? [];
    if (types.length < count) throw new Error(`the registry infers no result for ${op}`);
    for (const type of types.slice(0, count))
      outputs.push(this.tensor(outputs.length === 0 ? name : `${name}:1`, type));
    this.made.push({ ...node, outputs });
    return outputs;
  }

  /** As `add`, for a tensor of the graph that another operator made so far. */
  into(result: string, place: Neighbourhood, op: string, inputs: readonly string[], attributes: Attributes): void {
    const own = this.add(`${result}/${op}`, place, op, inputs, attributes);
    this.tensors.delete(own);
    const last = this.made.pop();
    if (last) this.made.push({ ...last, outputs: [result] });
  }

  /** The operators that were added since the last call, in order. */
  take(): readonly Node[] {
    const { made } = this;
    this.made = [];
    return made;
  }

  /** The graph with those of these operators that its outputs need; results of others are no tensors of it any more. */
  neededGraph(nodes: readonly Node[]): Graph {
    const read = needed(nodes, this.base.outputs);
    const kept = new Set(read.flatMap(({ outputs }) => outputs));
    for (const { outputs } of this.base.nodes)
      for (const name of outputs) if (name !== null && !kept.has(name)) this.tensors.delete(name);
    return this.graph(read);
  }

  /** The graph with these operators; weights that lost their last reader are dropped. */
  graph(nodes: readonly Node[]): Graph {
    const { base, tensors, state } = this;
    const [before, now] = [readIn(base, base.nodes), readIn(base, nodes)];
    const weights = new Map([...this.weights].filter(([name]) => now.has(name) || !before.has(name)));
    return { ...base, nodes, tensors, weights, state };
  }
}

/** Tensors that operators or the user read. */
export function readIn({ outputs }: Graph, nodes: readonly Node[]): ReadonlySet<string | null> {
  return new Set([...outputs, ...nodes.flatMap((node) => node.inputs)]);
}
