/**
 * @file Pass `stack-experts`: experts that are written one by one become one expert on weights [experts, rows, columns], the form
 * that dispatch and the expert axis support. Weights stay those of the file (FileTensor.parts).
 *
 *     Σ gateₑ · expertₑ(x)  →  Σ over experts of gate · experts(x)         where results are added, each by its gate
 *     stack(expertₑ(x))     →  experts(x), experts moved to their place    where results are concatenated first
 */
import { type Attributes, elementCount, type Graph, type Node, typeOf } from '../graph.js';
import { type Readers, readersOf } from '../makers-and-readers.js';
import { constant } from '../ops/constants.js';
import { isReshaped, operatorFamily } from '../ops/index.js';
import type { IdentityUse } from '../parameters/identities.js';
import { parameterUnits } from '../parameters/units.js';
import { ForwardWriter } from '../passes/forward-writer.js';
import { madeOnce } from '../remembered.js';
import { type Aligned, type AlignedNode, Alignment } from './align-experts.js';
import { type GatedTerm, sumsOf } from './gated-terms.js';
import { stackedWeight } from './stacked-weight.js';

/** The graph with all experts stacked that are made alike; the graph itself if none. */
export function stackExperts(graph: Graph, identities: readonly IdentityUse[] = []): Graph {
  const alignment = new Alignment(graph);
  const readers = readersOf(graph.nodes);
  const writer = new ForwardWriter(graph);
  const made = new Map<Node, readonly Node[]>();
  const context: StackContext = { graph, writer, alignment, readers, identities };
  const find = (results: readonly string[], place: Node) => Stack.of(context, results, place);
  for (const { end, terms, others } of sumsOf(graph, readers)) {
    const groups = groupsOf(
      terms,
      (some) =>
        find(
          some.map(({ result }) => result),
          end,
        ) !== null,
    );
    const stacks = groups.flatMap((group) => {
      const stack =
        group.length > 1
          ? find(
              group.map(({ result }) => result),
              end,
            )
          : null;
      return stack ? [{ stack, group }] : [];
    });
    if (stacks.length === 0) continue;
    const stacked = new Set(stacks.flatMap(({ group }) => group));
    const rest = terms.flatMap((term) => (stacked.has(term) ? [] : [term.tensor]));
    const sums = stacks.map(({ stack, group }) => stack.summed(end, group));
    const all = [...others, ...rest, ...sums];
    const before = all.slice(0, -1).reduce<string | null>((sum, item) => {
      return sum === null ? item : writer.add(`${end.name}/stacked/Add`, end, 'Add', [sum, item]);
    }, null);
    const [result] = end.outputs;
    const last = all.at(-1) ?? '';
    if (before === null) writer.into(result ?? '', end, 'Identity', [last], {});
    else writer.into(result ?? '', end, 'Add', [before, last], {});
    made.set(end, writer.take());
  }
  for (const node of graph.nodes) {
    const results = sideBySide(graph, node, alignment, readers);
    const stack = results && find(results, node);
    if (!stack) continue;
    stack.moved(node);
    made.set(node, writer.take());
  }
  if (made.size === 0) return graph;
  const result = writer.neededGraph(graph.nodes.flatMap((node) => made.get(node) ?? [node]));
  for (const name of graph.weights.keys()) if (!result.weights.has(name)) writer.tensors.delete(name);
  return result;
}

/** Terms whose results are made alike, each with the first one that it fits. */
function groupsOf(
  terms: readonly GatedTerm[],
  areAlike: (terms: readonly GatedTerm[]) => boolean,
): readonly (readonly GatedTerm[])[] {
  const groups: GatedTerm[][] = [];
  for (const term of terms) {
    const group = groups.find(([first]) => first && areAlike([first, term]));
    if (group) group.push(term);
    else groups.push([term]);
  }
  return groups;
}

/** Results of experts that a Concat joins along a new dimension. */
function sideBySide(graph: Graph, node: Node, alignment: Alignment, readers: Readers<Node>): readonly string[] | null {
  if (node.op !== 'Concat' || node.domain !== '' || node.inputs.length < 2) return null;
  const axis = axisOf(node.attributes, typeOf(graph, node.outputs[0] ?? '').shape.length);
  const results = node.inputs.flatMap((input) => {
    const maker = alignment.maker(input ?? '');
    const [source] = maker?.inputs ?? [];
    if (!maker || !source || !['Unsqueeze', 'Reshape'].includes(maker.op) || readers.get(input ?? '')?.length !== 1)
      return [];
    const { shape } = typeOf(graph, source);
    const raised = typeOf(graph, input ?? '').shape;
    const isRaised = axis < raised.length - 1 && raised.join() === shape.toSpliced(axis, 0, 1).join();
    return isRaised && readers.get(source)?.length === 1 ? [source] : [];
  });
  return results.length === node.inputs.length ? results : null;
}

function axisOf({ axis }: Attributes, rank: number): number {
  const given = typeof axis === 'number' ? axis : 0;
  return given < 0 ? given + rank : given;
}

/**
 * A value of all experts: tokens and features [experts or 1, tokens, width], a matrix [experts, rows, columns], or a tensor that
 * is combined with tokens.
 */
type ExpertValue = 'tokens' | 'matrix' | 'beside';

/** Operators that split a dimension. */
const CUTS: ReadonlySet<string> = new Set(['Split', 'Slice']);

interface StackContext {
  readonly graph: Graph;
  readonly writer: ForwardWriter;
  readonly alignment: Alignment;
  readonly readers: Readers<Node>;
  readonly identities: readonly IdentityUse[];
}

/** Experts that can be stacked. */
class Stack {
  private readonly written = new Map<AlignedNode, readonly string[]>();
  private readonly known = new Map<string, string>();

  private readonly graph: Graph;
  private readonly writer: ForwardWriter;

  private constructor(
    private readonly context: StackContext,
    private readonly root: AlignedNode,
    private readonly lead: readonly number[],
    private readonly place: Pick<Node, 'name' | 'module' | 'layer'>,
  ) {
    this.graph = context.graph;
    this.writer = context.writer;
  }

  /** The stack of some results; null for results that are not made alike, or read elsewhere too. */
  static of(context: StackContext, results: readonly string[], place: Node): Stack | null {
    const { graph, alignment, readers } = context;
    const found = alignment.of(results);
    const [first = ''] = results;
    const { shape } = typeOf(graph, first);
    if (!found || shape.length < 2 || !alignment.isClosed(found.nodes, new Set(results), readers)) return null;
    const stack = new Stack(context, found.root, shape.slice(0, -1), homeOf(found.root, place));
    const kinds = new Map<AlignedNode, ExpertValue | null>();
    const own = new Set(found.nodes.flatMap(({ nodes }) => nodes));
    const hasMatrices = found.nodes.some(({ inputs, nodes }) => {
      const weights = inputs[1];
      return nodes[0]?.op === 'MatMul' && weights !== undefined && weights !== null && weights.kind !== 'shared';
    });
    const isOwn = found.nodes.every(({ inputs }) =>
      inputs.every(
        (input) =>
          input?.kind !== 'weights' ||
          (graph.weights.get(input.names[0] ?? '')?.shape.length ?? 0) < 2 ||
          (new Set(input.names).size === input.names.length &&
            input.names.every((name) => (readers.get(name) ?? []).every((reader) => own.has(reader)))),
      ),
    );
    return hasMatrices && isOwn && stack.kindOf(found.root, kinds) === 'tokens' ? stack : null;
  }

  /** Σ over experts of gate · result, in the form of the results. */
  summed(end: Node, terms: readonly GatedTerm[]): string {
    const rows = elementCount(this.lead);
    const results = this.results();
    const width = this.writer.tensors.get(results)?.shape.at(-1) ?? 1;
    const gates = this.add(
      'Concat',
      terms.map((term) => this.gateOf(term)),
      { axis: this.lead.length },
    );
    const flat = this.reshape(gates, [rows, terms.length]);
    const transposed = this.add('Transpose', [flat], { perm: [1, 0] });
    const each = this.add('Mul', [results, this.add('Unsqueeze', [transposed], { axes: [2] })]);
    const sum = this.add('ReduceSum', [each], { axes: [0], keepdims: 0 });
    const { shape } = typeOf(this.graph, end.outputs[0] ?? '');
    return this.reshape(sum, shape.at(-1) === width ? shape : [...this.lead, width]);
  }

  /** Writes the results of all experts in place of the Concat. */
  moved(concat: Node): void {
    const [output = ''] = concat.outputs;
    const { shape } = typeOf(this.graph, output ?? '');
    const axis = axisOf(concat.attributes, shape.length);
    const width = shape.at(-1) ?? 1;
    const apart = this.reshape(this.results(), [concat.inputs.length, ...this.lead, width]);
    const rest = shape.map((_, index) => index).slice(1);
    this.writer.into(output ?? '', concat, 'Transpose', [apart], { perm: rest.toSpliced(axis, 0, 0) });
  }

  /** A term's gates as one [..., 1]. */
  private gateOf({ gates }: GatedTerm): string {
    const [first, ...rest] = gates;
    const zero = (like: string) => {
      const { dtype } = this.writer.tensors.get(like) ?? { dtype: 'float32' as const };
      return this.writer.value(`${this.place.name}/stacked/zero`, constant(dtype, [0]));
    };
    return rest.reduce(
      (gate, next) =>
        next.kind === 'factor'
          ? this.add('Mul', [gate, next.tensor])
          : this.add('Where', [next.tensor, gate, zero(gate)]),
      first?.tensor ?? '',
    );
  }

  private results(): string {
    return this.write(this.root)[0] ?? '';
  }

  private kindOf(node: AlignedNode, kinds: Map<AlignedNode, ExpertValue | null>): ExpertValue | null {
    const known = kinds.get(node);
    if (known !== undefined) return known;
    kinds.set(node, null);
    const found = this.kind(
      node,
      node.inputs.map((input) => (input === null ? null : this.kindOfOperand(input, kinds))),
    );
    kinds.set(node, found);
    return found;
  }

  private kindOfOperand(operand: Aligned, kinds: Map<AlignedNode, ExpertValue | null>): ExpertValue | null {
    if (operand.kind === 'made') return this.kindOf(operand.made, kinds);
    const { shape } = typeOf(this.graph, operand.kind === 'shared' ? operand.tensor : (operand.names[0] ?? ''));
    const isRow = shape.slice(0, -1).every((size) => size === 1);
    if (operand.kind === 'weights') return shape.length === 2 && !isRow ? 'matrix' : isRow ? 'beside' : null;
    if (isRow && (this.graph.weights.has(operand.tensor) || elementCount(shape) === 1)) return 'beside';
    const isTokens = shape.length > 1 && elementCount(shape.slice(0, -1)) === elementCount(this.lead);
    return isTokens && !this.graph.weights.has(operand.tensor) ? 'tokens' : null;
  }

  private kind({ nodes: [node] }: AlignedNode, operands: readonly (ExpertValue | null)[]): ExpertValue | null {
    if (!node || node.inputs.some((input, index) => input !== null && operands[index] === null)) return null;
    const [first] = operands;
    const shapes = [node.inputs[0], node.outputs[0]].map((name) => typeOf(this.graph, name ?? '').shape);
    const [before = [], after = []] = shapes;
    if (node.domain === '' && node.op === 'MatMul')
      return first === 'tokens' && operands[1] === 'matrix' ? 'tokens' : null;
    if (first === 'matrix') {
      const isTransposed = node.op === 'Transpose' && before.length === 2;
      return operands.length === 1 &&
        node.domain === '' &&
        (isTransposed || node.op === 'Identity' || node.op === 'Cast')
        ? 'matrix'
        : null;
    }
    if (operands.includes('matrix') || !operands.includes('tokens')) return null;
    if (isReshaped(node)) return before.at(-1) === after.at(-1) && after.length > 1 ? 'tokens' : null;
    if (node.domain === '' && CUTS.has(node.op)) return cutsFeatures(node, before.length) ? 'tokens' : null;
    const isPointwise = operatorFamily(node) === 'elementwise';
    return isPointwise && elementCount(after.slice(0, -1)) === elementCount(this.lead) ? 'tokens' : null;
  }

  private write(node: AlignedNode): readonly string[] {
    const known = this.written.get(node);
    if (known) return known;
    const [first] = node.nodes;
    if (!first) return [];
    const inputs = node.inputs.map((input) => (input === null ? null : this.operand(input, node.nodes)));
    const names = isReshaped(first)
      ? [inputs[0] ?? '']
      : this.writer.addAll(
          `${first.name}/stacked`,
          this.place,
          first.op,
          inputs,
          stackedAttributes(first),
          first.domain,
          first.outputs.length,
        );
    this.written.set(node, names);
    return names;
  }

  private operand(operand: Aligned, nodes: readonly Node[]): string {
    if (operand.kind === 'made') return this.write(operand.made)[operand.output] ?? '';
    const key = operand.kind === 'shared' ? operand.tensor : operand.names.join('\n');
    return madeOnce(this.known, key, () =>
      operand.kind === 'shared' ? this.shared(operand.tensor) : this.weights(operand.names, nodes),
    );
  }

  private shared(tensor: string): string {
    const { shape } = typeOf(this.graph, tensor);
    const rows = elementCount(this.lead);
    if (this.graph.weights.has(tensor) || elementCount(shape) === 1) return tensor;
    return this.reshape(tensor, [1, rows, shape.at(-1) ?? 1]);
  }

  private weights(names: readonly string[], nodes: readonly Node[]): string {
    const stored = names.flatMap((name) => this.graph.weights.get(name) ?? []);
    const weight = stackedWeight(stored, names, this.ownNames(names, nodes));
    const name = this.writer.weight(weight.file?.name ?? '', weight);
    if (weight.shape.length === 3) return name;
    const width = stored[0]?.shape.at(-1) ?? 1;
    return this.reshape(name, [names.length, 1, width]);
  }

  /** The names of weights in their modules: exporters store equal weights once. */
  private ownNames(names: readonly string[], nodes: readonly Node[]): readonly string[] {
    const distinct = [...new Set(names)];
    if (distinct.length === names.length) return names;
    const units = parameterUnits(this.graph, distinct, this.context.identities);
    return names.map((name, index) => {
      const reader = nodes[index]?.name ?? '';
      const own = units
        .get(name)
        ?.find(({ places }) => places.some(({ node, through }) => node === reader || through.includes(reader)));
      return own?.name ?? `${name}.${index}`;
    });
  }

  private reshape(tensor: string, shape: readonly number[]): string {
    if (this.writer.tensors.get(tensor)?.shape.join() === shape.join()) return tensor;
    return this.add('Reshape', [tensor], { shape, allowzero: 0 });
  }

  private add(op: string, inputs: readonly string[], attributes: Attributes = {}): string {
    return this.writer.add(`${this.place.name}/stacked/${op}`, this.place, op, inputs, attributes);
  }
}

/** The module that has all experts, which share the beginning of their paths. */
function homeOf(
  { nodes: [first, ...others] }: AlignedNode,
  { name, layer }: Node,
): Pick<Node, 'name' | 'module' | 'layer'> {
  const path = first?.module ?? [];
  const length = path.findIndex((step, at) => others.some(({ module }) => module[at] !== step));
  return { name: first?.name ?? name, module: length < 0 ? path : path.slice(0, length), layer };
}

/** Whether an operator of CUTS leaves all dimensions whole but the last of so many. */
function cutsFeatures({ attributes }: Node, rank: number): boolean {
  const { axes = axisOf(attributes, rank) } = attributes;
  return [axes].flat().every((axis) => axis === rank - 1);
}

/** Features are the last of three dimensions now, and matrices have one more in front. */
function stackedAttributes({ op, attributes }: Node): Attributes {
  if (op === 'Split') return { ...attributes, axis: 2 };
  if (op === 'Slice') return { ...attributes, axes: [2] };
  return op === 'Transpose' ? { perm: [0, 2, 1] } : attributes;
}
