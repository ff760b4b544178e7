/**
 * @file Writes the computation of a mixture of experts on rows of all experts: [experts, rows, features] for every tensor inside,
 * whatever the order of dimensions in the model.
 */
import { type Attributes, type ConstantTensor, type Graph, type Node, type TensorType, typeOf } from '../graph.js';
import { operatorOf } from '../operator-of.js';
import { constant } from '../ops/constants.js';
import { ruleOf } from '../ops/index.js';
import type { ForwardWriter, Neighbourhood } from '../passes/forward-writer.js';
import type { ExpertMixture, ExpertStep } from './find-experts.js';
import { type RoleDims, roleList } from './roles.js';

/** Writes in place of one mixture; names are `first operator/purpose/…`. */
export class ExpertWriter {
  /** Tensors of the mixture as [experts, rows, features]. */
  private readonly canonical = new Map<string, string>();
  /** Weights [experts, rows, columns] from which chosen ones are gathered, by the gathered tensor. */
  private readonly stacks = new Map<string, string>();
  private readonly place: Neighbourhood;
  private readonly prefix: string;

  constructor(
    private readonly graph: Graph,
    private readonly writer: ForwardWriter,
    private readonly mixture: ExpertMixture,
    purpose: string,
  ) {
    const matmul = mixture.steps.find(({ kind }) => kind === 'matmul');
    this.place = { module: mixture.end.module, layer: mixture.end.layer };
    this.prefix = `${matmul?.node.name ?? mixture.end.name}/${purpose}`;
  }

  /** The tensor that the gate weights, [experts, rows, features], from tokens as [experts or 1, rows, features]. */
  results(tokens: string): string {
    this.canonical.set(this.mixture.root, tokens);
    for (const step of this.mixture.steps) this.step(step);
    return this.canonical.get(this.mixture.weighted) ?? '';
  }

  /** The gate with experts as its last dimension. */
  gate(): string {
    const { tensor, roles } = this.mixture.gate;
    const parts = roleList(roles);
    const at = parts.indexOf('expert');
    if (at < 0 || at === parts.length - 1) return tensor;
    const perm = [...parts.keys()].filter((axis) => axis !== at).concat(at);
    const real = roles.flat().map(({ size }) => size);
    return this.add('Transpose', [this.reshape(tensor, real)], { perm });
  }

  reshape(tensor: string, shape: readonly number[]): string {
    if (this.typeOf(tensor).shape.join() === shape.join()) return tensor;
    return this.add('Reshape', [tensor], { shape, allowzero: 0 });
  }

  /** A scalar constant in the type of another tensor. */
  scalar(like: string, value: number): string {
    return this.value('zero', constant(this.typeOf(like).dtype, [value]));
  }

  zeros(like: string, shape: readonly number[]): string {
    return this.add('ConstantOfShape', [], { shape, value: constant(this.typeOf(like).dtype, [0], [1]) });
  }

  value(name: string, value: ConstantTensor): string {
    return this.writer.value(`${this.prefix}/${name}`, value);
  }

  add(op: string, inputs: readonly string[], attributes: Attributes = {}, wanted = op): string {
    return this.writer.add(`${this.prefix}/${wanted}`, this.place, op, inputs, attributes);
  }

  addAll(op: string, inputs: readonly string[], attributes: Attributes, count: number): readonly string[] {
    return this.writer.addAll(`${this.prefix}/${op}`, this.place, op, inputs, attributes, '', count);
  }

  /** As `add`, for a result of the mixture. */
  into(result: string, op: string, inputs: readonly string[], attributes: Attributes): void {
    this.writer.into(result, this.place, op, inputs, attributes);
  }

  typeOf(tensor: string): TensorType {
    return typeOf({ ...this.graph, tensors: this.writer.tensors }, tensor);
  }

  private step({ node, kind, operands }: ExpertStep): void {
    const root = this.canonical.get(this.mixture.root) ?? '';
    const inside = (index: number) => this.canonical.get(node.inputs[index] ?? '') ?? root;
    const [result] = node.outputs;
    if (kind === 'weights') {
      const [weights = ''] = node.inputs;
      const { shape } = this.typeOf(weights ?? '');
      if (shape.length > 2) this.stacks.set(result ?? '', weights ?? '');
      else this.canonical.set(result ?? '', this.reshape(weights ?? '', [shape[0] ?? 1, 1, shape[1] ?? 1]));
      return;
    }
    if (kind === 'move') {
      const own = node.inputs.findIndex((input) => this.canonical.has(input ?? ''));
      this.canonical.set(result ?? '', inside(own));
      return;
    }
    if (kind === 'matmul') {
      const place = operands.indexOf(null);
      this.canonical.set(result ?? '', this.add('MatMul', [inside(1 - place), this.matrices(node, place)]));
      return;
    }
    const inputs = node.inputs.map((input, index) => {
      if (input === null) return null;
      return this.canonical.get(input) ?? this.beside(input, operands[index] ?? []);
    });
    const names = this.writer.addAll(
      `${node.name}/${this.prefix.split('/').at(-1)}`,
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

  /** Weights of a matmul as [experts, rows, columns]. */
  private matrices(node: Node, place: number): string {
    const rule = ruleOf(operatorOf(this.graph, node));
    const operand = node.inputs[place] ?? '';
    const weight = this.stacks.get(operand) ?? operand;
    const [middle = ''] = rule.inputs[place]?.at(-2) ?? [];
    const isMade = rule.outputs[0]?.flat().includes(middle) === true;
    return isMade ? this.add('Transpose', [weight], { perm: [0, 2, 1] }) : weight;
  }

  /** A bias or the like as [experts or 1, 1, features or 1]; a scalar as it is. */
  private beside(tensor: string, roles: RoleDims): string {
    const parts = roles.flat();
    if (parts.length === 0) return tensor;
    const sizes = (['expert', 'feature'] as const).map((role) => parts.find((part) => part.role === role)?.size ?? 1);
    const [experts = 1, features = 1] = sizes;
    const isTransposed = parts.length === 2 && parts[0]?.role === 'feature';
    const flat = isTransposed
      ? this.add('Transpose', [this.reshape(tensor, [features, experts])], { perm: [1, 0] })
      : tensor;
    return this.reshape(flat, [experts, 1, features]);
  }
}

/** Features are the last of three dimensions now. */
function cutAttributes({ op, attributes }: Node): Attributes {
  if (op === 'Split') return { ...attributes, axis: 2 };
  if (op === 'Slice') return { ...attributes, axes: [2] };
  return attributes;
}
