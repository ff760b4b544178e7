/**
 * @file Experts that exporters write one by one, each with weights of its own: results that equal operators make of shared
 * tensors and of different weights. All are followed together, from their results back to the tensors that all of them read.
 *
 *     y₀ = MatMul(Relu(MatMul(x, a₀)), b₀)     y₁ = MatMul(Relu(MatMul(x, a₁)), b₁)     …
 */
import { isFloating } from '../dtype.js';
import type { Graph, Node, Weight } from '../graph.js';
import { type Makers, makersOf, type Readers } from '../makers-and-readers.js';
import { attributesKey } from '../passes/attributes-key.js';

/** The tensors in one place of every expert. */
export type Aligned =
  /** The same tensor for all. */
  | { readonly kind: 'shared'; readonly tensor: string }
  /** One weight per expert. */
  | { readonly kind: 'weights'; readonly names: readonly string[] }
  | { readonly kind: 'made'; readonly made: AlignedNode; readonly output: number };

/** Operators of all experts in one place. */
export interface AlignedNode {
  readonly nodes: readonly Node[];
  readonly inputs: readonly (Aligned | null)[];
}

/** The most operators of an expert: larger structures are not experts, but models that are alike. */
const MOST_OPERATORS = 64;

/** Follows results of one graph. */
export class Alignment {
  private readonly makers: Makers<Node>;

  constructor(private readonly graph: Graph) {
    this.makers = makersOf(graph.nodes);
  }

  maker(tensor: string): Node | undefined {
    return this.makers.get(tensor);
  }

  /** Aligns results that are made alike; null where they are not, or are made of the same weights. */
  of(tensors: readonly string[]): { readonly root: AlignedNode; readonly nodes: readonly AlignedNode[] } | null {
    const made = new Map<string, AlignedNode>();
    const found = this.follow(tensors, made);
    return found?.kind === 'made' && found.output === 0 ? { root: found.made, nodes: [...made.values()] } : null;
  }

  private follow(tensors: readonly string[], made: Map<string, AlignedNode>): Aligned | null {
    const [first = ''] = tensors;
    const weights = tensors.flatMap((tensor) => this.graph.weights.get(tensor) ?? []);
    if (weights.length === tensors.length) return this.weights(tensors, weights);
    if (tensors.every((tensor) => tensor === first)) return { kind: 'shared', tensor: first };
    const nodes = tensors.flatMap((tensor) => this.makers.get(tensor) ?? []);
    const outputs = tensors.map((tensor, index) => nodes[index]?.outputs.indexOf(tensor));
    const [node] = nodes;
    const [output = 0] = outputs;
    if (!node || nodes.length < tensors.length || outputs.some((other) => other !== output)) return null;
    const key = nodes.map(({ name }) => name).join('\n');
    const known = made.get(key);
    if (known) return { kind: 'made', made: known, output };
    if (!nodes.every((other) => isLike(other, node)) || made.size >= MOST_OPERATORS) return null;
    const inputs: (Aligned | null)[] = [];
    for (const [index, input] of node.inputs.entries()) {
      const all = nodes.flatMap((other) => other.inputs[index] ?? []);
      if (all.length === 0 && input === null) {
        inputs.push(null);
        continue;
      }
      const operand = all.length === nodes.length ? this.follow(all, made) : null;
      if (!operand) return null;
      inputs.push(operand);
    }
    const aligned = { nodes, inputs };
    made.set(key, aligned);
    return { kind: 'made', made: aligned, output };
  }

  /** Equal constants are shared; parameters of one value are each expert's own, since exporters merge equal parameters. */
  private weights(names: readonly string[], weights: readonly Weight[]): Aligned | null {
    const [first] = weights;
    const [name = ''] = names;
    if (!first) return null;
    const isSame = weights.every((weight) => isEqual(weight, first));
    if (first.role !== 'parameter' && (isSame || names.every((other) => other === name)))
      return { kind: 'shared', tensor: name };
    const { dtype, shape } = first;
    const isAlike = weights.every(
      (weight) =>
        weight.dtype === dtype &&
        weight.role === first.role &&
        weight.shape.join() === shape.join() &&
        fileDims(weight).join() === fileDims(first).join(),
    );
    return isAlike && isFloating(dtype) ? { kind: 'weights', names } : null;
  }

  /** Whether only the nodes themselves read their results, the last results excepted. */
  isClosed(nodes: readonly AlignedNode[], results: ReadonlySet<string>, readers: Readers<Node>): boolean {
    const own = new Set(nodes.flatMap((each) => each.nodes));
    const outputs = new Set(this.graph.outputs);
    return [...own].every((node) =>
      node.outputs.every(
        (output) =>
          output === null ||
          results.has(output) ||
          (!outputs.has(output) && (readers.get(output) ?? []).every((reader) => own.has(reader))),
      ),
    );
  }
}

function isLike(one: Node, other: Node): boolean {
  return (
    one.op === other.op &&
    one.domain === other.domain &&
    one.phase === 'forward' &&
    one.body === null &&
    one.inputs.length === other.inputs.length &&
    one.outputs.length === other.outputs.length &&
    attributesKey(one.attributes) === attributesKey(other.attributes)
  );
}

/** The file's dimensions in the weight's order. */
function fileDims({ file, shape }: Weight): readonly (number | null)[] {
  return file?.dims ?? shape.map((_, axis) => axis);
}

function isEqual(one: Weight, other: Weight): boolean {
  return (
    one.source.kind === 'inline' &&
    other.source.kind === 'inline' &&
    one.dtype === other.dtype &&
    one.shape.join() === other.shape.join() &&
    Buffer.compare(one.source.data, other.source.data) === 0
  );
}
