/**
 * @file Experts that each take up to a capacity of tokens, in place of every token through every expert (GShard, Lepikhin et al.
 * 2021). A sample is a group: capacity and drops are its own, so that they are the same at every degree and number of
 * micro-batches.
 *
 *     capacity C = ⌈factor · k · tokens of a sample / experts⌉
 *     places [g, E, C]    of each expert the first C tokens that chose it
 *     rows [g, E·C, d]    = the tokens at these places                              where tokens are
 *     [E, g·C, d] ─► the experts' products ─► [E, g·C, d]                           where experts are
 *     result [g, tokens, d] = Σ of what comes back, by gate, added to its token     where tokens are
 *
 * Slots that no token fills compute some token and count zero. A token that finds no slot gets nothing from that expert: what it
 * is added to stays. Nothing here knows a mesh: between `rows` and the experts' products a layout moves from groups to experts,
 * which is an all-to-all.
 */
import { AutoparError } from '../error.js';
import { type Attributes, type Graph, type Node, type TensorType, typeOf } from '../graph.js';
import { needed } from '../needed.js';
import { constant } from '../ops/constants.js';
import { ForwardWriter, type Neighbourhood } from '../passes/forward-writer.js';
import { ruleOf, viewOf } from '../view.js';
import { type ExpertBlock, type ExpertStep, findExperts } from './find-experts.js';
import { type RoleDims, roleList } from './roles.js';
import { chosenPerToken } from './routers.js';
import { samplesIn } from './samples.js';

/**
 * How tokens reach their experts. `padded`: every expert has the same number of slots, filled or not. `variable`: which are
 * filled goes first, then these alone are sent; the others hold zeros at both ends.
 */
export const DISPATCHES = ['padded', 'variable'] as const;
export type Dispatch = (typeof DISPATCHES)[number];

export interface DispatchOptions {
  /** How tokens reach the experts of their top k; as the file has it by default. */
  readonly dispatch?: Dispatch;
  /** What an expert takes of a sample's tokens, as a multiple of its even share; every token by default. Needs `dispatch`. */
  readonly capacityFactor?: number;
}

/** A layer of experts that was dispatched. */
export interface Dispatched {
  /** The module, or the first product. */
  readonly name: string;
  readonly experts: number;
  readonly chosen: number;
  /** Tokens of a sample, and slots of an expert for them. */
  readonly tokens: number;
  readonly capacity: number;
  /** The graph's output [samples, experts]: tokens that chose each expert. */
  readonly counts: string;
}

/**
 * The graph with experts dispatched. Each layer adds an output with the tokens that chose each expert.
 * @throws AutoparError (usage) `no-experts` where no layer of experts is found that has a gate of the top k
 */
export function dispatchExperts(
  graph: Graph,
  { dispatch = 'padded', capacityFactor }: DispatchOptions,
): { readonly graph: Graph; readonly layers: readonly Dispatched[] } {
  const write = new ForwardWriter(graph);
  const samplesOf = samplesIn(graph);
  const layers: Dispatched[] = [];
  const made = new Map<Node, readonly Node[]>();
  const gone = new Set<Node>();
  for (const block of findExperts(graph)) {
    const chosen = chosenPerToken(graph, block);
    const samples = samplesOf(block.root);
    // Samples of one token have no capacity to share.
    if (chosen === null || !samples || samples.tokens === 1) continue;
    const { groups, tokens } = samples;
    const share = ((capacityFactor ?? block.experts) * chosen * tokens) / block.experts;
    const capacity = Math.max(1, Math.min(tokens, Math.ceil(share - 1e-9)));
    const layer = new DispatchLayer(graph, write, block, { groups, tokens, capacity }, dispatch);
    const counts = layer.write();
    made.set(block.end, write.take());
    for (const node of block.nodes) gone.add(node);
    for (const tensor of block.tensors) write.tensors.delete(tensor);
    const { module } = block.end;
    layers.push({ name: module.join('.') || block.end.name, experts: block.experts, chosen, tokens, capacity, counts });
  }
  if (layers.length === 0)
    throw new AutoparError(
      'no-experts',
      'usage',
      `--dispatch sends tokens to the experts of their top k, and ${graph.name} has no layer of experts that is written so`,
      {},
      'leave it out; docs/parallelism.md lists the written forms',
    );
  const nodes = graph.nodes.flatMap((node) => made.get(node) ?? (gone.has(node) ? [] : [node]));
  const outputs = [...graph.outputs, ...layers.map(({ counts }) => counts)];
  // Copies of tokens and of gates have no reader any more.
  const read = needed(
    nodes,
    outputs,
    (node) => node.inputs,
    (node) => node.outputs,
  );
  return { graph: { ...write.graph(read), outputs }, layers };
}

interface DispatchSizes {
  readonly groups: number;
  readonly tokens: number;
  readonly capacity: number;
}

/** One layer while it is written. */
class DispatchLayer {
  /** Tensors of the block as [experts, slots, features]. */
  private readonly canonical = new Map<string, string>();
  private readonly place: Neighbourhood;
  private readonly prefix: string;

  constructor(
    private readonly graph: Graph,
    private readonly writer: ForwardWriter,
    private readonly block: ExpertBlock,
    private readonly sizes: DispatchSizes,
    private readonly dispatch: Dispatch,
  ) {
    const [first] = block.steps;
    this.place = { module: block.end.module, layer: block.end.layer };
    this.prefix = `${first?.node.name ?? block.end.name}/dispatch`;
  }

  /** Returns the name of the counts. */
  write(): string {
    const { experts, end } = this.block;
    const { groups, tokens, capacity } = this.sizes;
    const root = this.typeOf(this.block.root);
    const width = root.shape.at(-1) ?? 1;
    const slots = experts * capacity;
    const gate = this.gate();
    const isNot = this.add('Equal', [gate, this.scalar(this.typeOf(gate), 0)]);
    const counts = this.counts(isNot);
    const earlier = constant(
      'int64',
      Array.from({ length: tokens }, (_, index) => tokens - index),
      [1, tokens, 1],
    );
    const zero = this.writer.value(`${this.prefix}/none`, constant('int64', [0]));
    const order = this.writer.value(`${this.prefix}/earlier`, earlier);
    const key = this.add('Where', [isNot, zero, order]);
    const places = this.top(key, capacity);
    const flat = this.perExpert(places);
    const column = this.add('Unsqueeze', [flat], { axes: [2] });
    const rows = this.add('GatherND', [this.reshape(this.block.root, [groups, tokens, width]), column], {
      batch_dims: 1,
    });
    const shares = this.add('Unsqueeze', [this.shares(gate, flat)], { axes: [2] });
    const isEmpty =
      this.dispatch === 'variable' ? this.add('Equal', [shares, this.scalar(this.typeOf(shares), 0)]) : null;
    this.canonical.set(this.block.root, this.toExperts(this.orZero(isEmpty, rows), width));
    for (const step of this.block.steps) this.step(step);
    const weighted = this.orZero(isEmpty && this.toExperts(isEmpty, 1), this.canonical.get(this.block.weighted) ?? '');
    const across = this.typeOf(weighted).shape.at(-1) ?? 1;
    const back = this.toTokens(weighted, across);
    const scaled = this.add('Mul', [back, shares]);
    const indices = this.add('Expand', [column], { shape: [groups, slots, across] });
    const { dtype } = this.typeOf(scaled);
    const zeros = this.add('ConstantOfShape', [], {
      shape: [groups, tokens, across],
      value: constant(dtype, [0], [1]),
    });
    const summed = this.add('ScatterElements', [zeros, indices, scaled], { axis: 1, reduction: 'add' });
    const [result = ''] = end.outputs;
    this.writer.into(result ?? '', this.place, 'Reshape', [summed], {
      shape: typeOf(this.graph, result ?? '').shape,
      allowzero: 0,
    });
    return counts;
  }

  /** [g, experts, int64]: tokens that chose each expert. */
  private counts(isNot: string): string {
    const chosen = this.add('Cast', [this.add('Not', [isNot])], { to: INT64 });
    return this.add('ReduceSum', [chosen], { axes: [1], keepdims: 0 }, COUNTS);
  }

  /** Rows with zero in those that are empty. */
  private orZero(isEmpty: string | null, rows: string): string {
    return isEmpty === null ? rows : this.add('Where', [isEmpty, this.scalar(this.typeOf(rows), 0), rows]);
  }

  /**
   * Places [g, slots, experts] as [g, experts · slots]; never with experts as a dimension that ep would take: they are the
   * router's.
   */
  private perExpert(places: string): string {
    const { experts } = this.block;
    const { groups, capacity } = this.sizes;
    const from = Array.from(
      { length: experts * capacity },
      (_, slot) => (slot % capacity) * experts + Math.floor(slot / capacity),
    );
    const order = this.writer.value(`${this.prefix}/order`, constant('int64', from, [from.length]));
    return this.add('Gather', [this.reshape(places, [groups, capacity * experts]), order], { axis: 1 });
  }

  /** What each slot's token is multiplied by, [g, slots]: zero for a slot that no token fills. */
  private shares(gate: string, flat: string): string {
    const { experts } = this.block;
    const { groups, tokens, capacity } = this.sizes;
    const all = this.reshape(gate, [groups, tokens * experts]);
    const own = Array.from({ length: experts * capacity }, (_, slot) => Math.floor(slot / capacity));
    const column = this.writer.value(`${this.prefix}/expert`, constant('int64', own, [1, own.length]));
    const many = this.writer.value(`${this.prefix}/experts`, constant('int64', [experts]));
    const index = this.add('Add', [this.add('Mul', [flat, many]), column]);
    return this.add('GatherElements', [all, index], { axis: 1 });
  }

  /** The gate as [g, tokens, experts]. */
  private gate(): string {
    const { tensor, roles } = this.block.gate;
    const { groups, tokens } = this.sizes;
    const { experts } = this.block;
    const parts = roleList(roles);
    const isLast = parts.at(-1) === 'expert';
    const real = roles.flat().map(({ size }) => size);
    const at = parts.indexOf('expert');
    const perm = [...real.keys()].filter((axis) => axis !== at).concat(at);
    const turned = isLast ? tensor : this.add('Transpose', [this.reshape(tensor, real)], { perm });
    return this.reshape(turned, [groups, tokens, experts]);
  }

  /** [g, experts · capacity, width] → [experts, g · capacity, width]. */
  private toExperts(rows: string, width: number): string {
    const { experts } = this.block;
    const { groups, capacity } = this.sizes;
    const apart = this.reshape(rows, [groups, experts, capacity, width]);
    const turned = this.add('Transpose', [apart], { perm: [1, 0, 2, 3] });
    return this.reshape(turned, [experts, groups * capacity, width]);
  }

  private toTokens(rows: string, width: number): string {
    const { experts } = this.block;
    const { groups, capacity } = this.sizes;
    const apart = this.reshape(rows, [experts, groups, capacity, width]);
    const turned = this.add('Transpose', [apart], { perm: [1, 0, 2, 3] });
    return this.reshape(turned, [groups, experts * capacity, width]);
  }

  private step({ node, kind, operands }: ExpertStep): void {
    const inside = (index: number) =>
      this.canonical.get(node.inputs[index] ?? '') ?? this.canonical.get(this.block.root) ?? '';
    if (kind === 'move') {
      this.canonical.set(node.outputs[0] ?? '', inside(0));
      return;
    }
    if (kind === 'product') {
      const place = operands.indexOf(null);
      this.canonical.set(node.outputs[0] ?? '', this.add('MatMul', [inside(1 - place), this.matrices(node, place)]));
      return;
    }
    const inputs = node.inputs.map((input, index) => {
      if (input === null) return null;
      return this.canonical.get(input) ?? this.beside(input, operands[index] ?? []);
    });
    const names = this.writer.addAll(
      `${node.name}/dispatched`,
      node,
      node.op,
      inputs,
      cutAttributes(node),
      node.domain,
      node.outputs.length,
    );
    for (const [index, output] of node.outputs.entries())
      if (output !== null) this.canonical.set(output, names[index] ?? '');
  }

  /** Weights of a product as [experts, rows, columns]. */
  private matrices(node: Node, place: number): string {
    const rule = ruleOf(viewOf(this.graph, node));
    const weight = node.inputs[place] ?? '';
    const [middle = ''] = rule.inputs[place]?.[1] ?? [];
    const isMade = rule.outputs[0]?.flat().includes(middle) === true;
    return isMade ? this.add('Transpose', [weight], { perm: [0, 2, 1] }) : weight;
  }

  /** A bias or the like as [experts or 1, 1, features or 1]; a scalar as it is. */
  private beside(tensor: string, roles: RoleDims): string {
    const parts = roles.flat();
    if (parts.length === 0) return tensor;
    const sizes = (['expert', 'feature'] as const).map((role) => parts.find((part) => part.role === role)?.size ?? 1);
    const [experts = 1, features = 1] = sizes;
    const isTurned = parts.length === 2 && parts[0]?.role === 'feature';
    const flat = isTurned
      ? this.add('Transpose', [this.reshape(tensor, [features, experts])], { perm: [1, 0] })
      : tensor;
    return this.reshape(flat, [experts, 1, features]);
  }

  private top(key: string, count: number): string {
    const attributes = { k: [count], axis: 1, largest: 1, sorted: 1 };
    return this.writer.addAll(`${this.prefix}/TopK`, this.place, 'TopK', [key], attributes, '', 2)[1] ?? '';
  }

  private reshape(tensor: string, shape: readonly number[]): string {
    if (this.typeOf(tensor).shape.join() === shape.join()) return tensor;
    return this.add('Reshape', [tensor], { shape, allowzero: 0 });
  }

  private scalar({ dtype }: TensorType, value: number): string {
    return this.writer.value(`${this.prefix}/zero`, constant(dtype, [value]));
  }

  private add(op: string, inputs: readonly string[], attributes: Attributes = {}, wanted = op): string {
    return this.writer.add(`${this.prefix}/${wanted}`, this.place, op, inputs, attributes);
  }

  private typeOf(tensor: string): TensorType {
    return typeOf({ ...this.graph, tensors: this.writer.tensors }, tensor);
  }
}

/** Features are the last of three dimensions now. */
function cutAttributes({ op, attributes }: Node): Attributes {
  if (op === 'Split') return { ...attributes, axis: 2 };
  if (op === 'Slice') return { ...attributes, axes: [2] };
  return attributes;
}

const INT64 = 7;

const COUNTS = 'tokens_per_expert';

/** Whether a graph's output counts the tokens that chose each expert. */
export function isCount(output: string): boolean {
  return output.includes(`/dispatch/${COUNTS}`);
}
