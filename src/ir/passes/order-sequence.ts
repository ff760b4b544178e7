/**
 * @file A step's graph with its sequence in zig-zag order (sequence-order.ts). Inputs are fed and outputs given in that order,
 * and constants are reordered, so that masks, angles and labels match the positions: operators that work position by position,
 * or sum over positions, stay as they are. Operators that need positions in the model's order (a shift, a scan, an update of a
 * weight that has a row for each) read them gathered into it, and their results are gathered back.
 *
 * An attention whose mask lets no position see a later one is marked for the ranks of a ring (partition/zigzag.ts).
 */
import { sequenceDimensions } from '../dimension-roles.js';
import { dtypeBits } from '../dtype.js';
import { type Factor, ruleSides } from '../factor-rule.js';
import { type DimensionMarks, followDimensions, markOfDimension } from '../follow-dimensions.js';
import { hasValues, isCausalMask, type Mask, masksOf, showsItself } from '../fused-regions/causal-mask.js';
import { REGION_DOMAIN } from '../fused-regions/fused-region.js';
import { indexGraph } from '../fused-regions/matching.js';
import { type Graph, type Node, type TensorOrder, type TensorType, typeOf, type Weight } from '../graph.js';
import { fixedTensors } from '../of-weights.js';
import type { OperatorFamily } from '../operator.js';
import { operatorOf } from '../operator-of.js';
import { constant, constantWeight } from '../ops/constants.js';
import { entryOf, ruleOf } from '../ops/index.js';
import { orderedPlaces, reordered } from '../sequence-order.js';
import { unusedName } from '../unused-name.js';

/** The attribute of an attention, and of its gradient, with the number of ranks that the order is for. */
export const ZIGZAG = 'zigzag';

/** The graph in zig-zag order; null with the reason where that has no use or no place. */
export type OrderedSequence =
  | { readonly graph: Graph; readonly reason: null }
  | { readonly graph: null; readonly reason: string; readonly node?: string };

/** Brings the sequence of a step into zig-zag order for so many ranks. */
export function inZigzag(graph: Graph, ranks: number): OrderedSequence {
  const found = zigzagAttention(graph, ranks);
  if ('reason' in found) return { graph: null, ...found };
  const starts = sequenceDimensions(graph);
  const marks = followDimensions(graph, starts);
  return { graph: new Reordering(graph, marks, PIECES * ranks).run(found.attention), reason: null };
}

/**
 * The graph in the model's order, with attention that a ring computes, and prices, as in zig-zag order: a plan without such a
 * ring is a plan of the graph itself.
 */
export function withRings(graph: Graph, attention: ReadonlySet<string>, ranks: number): Graph {
  if (attention.size === 0) return graph;
  return { ...graph, nodes: graph.nodes.map((node) => withRing(node, attention, ranks)) };
}

/** Marks an attention, or its gradient, that is one of these. */
function withRing(node: Node, attention: ReadonlySet<string>, ranks: number): Node {
  const isOne = node.domain === REGION_DOMAIN && (attention.has(node.name) || attention.has(node.forward ?? ''));
  return isOne ? { ...node, attributes: { ...node.attributes, [ZIGZAG]: ranks } } : node;
}

/** Names of the attention that has equal work in a ring of so many ranks in zig-zag order; or why that has no use or no place. */
export function zigzagAttention(
  graph: Graph,
  ranks: number,
): { readonly attention: ReadonlySet<string> } | { readonly reason: string; readonly node?: string } {
  const causal = causalAttention(graph);
  if (causal.size === 0) return { reason: 'no attention of the model has only a causal mask' };
  const starts = sequenceDimensions(graph);
  const inside = starts.find(({ input }) => !graph.inputs.includes(input));
  if (inside) return { reason: `the sequence begins at ${inside.input}, inside the model` };
  const pieces = PIECES * ranks;
  const sizes = starts.map(({ input, axis }) => typeOf(graph, input).shape[axis] ?? 1);
  if (sizes.some((size) => size % pieces === 0)) return { attention: causal };
  const [node] = causal;
  const reason = `zig-zag order over ${ranks} ranks has ${pieces} equal pieces, and the sequence has ${sizes[0]} positions`;
  return { reason, ...(node === undefined ? {} : { node }) };
}

/** Pieces of the sequence that each rank has. */
const PIECES = 2;

/**
 * Names of recognised attention that is causal, and whose rows all have a key: the softmax of a row without one would be over
 * keys that are skipped. Masks that are parameters hide nothing, nor do masks made of weights alone whose values are unknown.
 */
function causalAttention(graph: Graph): ReadonlySet<string> {
  const index = indexGraph(graph);
  const fixed = fixedTensors({ ...graph, weights: new Map([...graph.weights, ...(graph.initial ?? [])]) });
  const leavesItself = (mask: Mask) => showsItself(index, mask) || (fixed.has(mask.tensor) && !hasValues(index, mask));
  const isCausal = (masks: readonly Mask[]) =>
    masks.every(leavesItself) && masks.some((mask) => isCausalMask(index, mask));
  return new Set(
    graph.nodes.flatMap((node) =>
      node.op === 'Attention' && node.domain === REGION_DOMAIN && isCausal(masksOf(node)) ? [node.name] : [],
    ),
  );
}

/** Families whose expansions treat all positions of a factor alike. */
const SYMMETRIC: ReadonlySet<OperatorFamily> = new Set(['normalisation', 'reduction', 'loss', 'contraction']);

class Reordering {
  private readonly tensors: Map<string, TensorType>;
  private readonly weights: Map<string, Weight>;
  private readonly nodes: Node[] = [];
  /** By tensor that is in the model's order under its own name: the one in zig-zag order, and vice versa. */
  private readonly others = new Map<string, string>();
  private readonly inModelOrder = new Set<string>();
  private readonly orders = new Map<string, TensorOrder>();

  constructor(
    private readonly graph: Graph,
    private readonly marks: DimensionMarks,
    private readonly pieces: number,
  ) {
    this.tensors = new Map(graph.tensors);
    this.weights = new Map(graph.weights);
    for (const name of [...graph.weights.keys(), ...graph.state.flatMap(({ input, output }) => [input, output])])
      this.inModelOrder.add(name);
  }

  run(causal: ReadonlySet<string>): Graph {
    const { graph } = this;
    for (const node of graph.nodes) {
      const isFree = node.phase !== 'update' && this.isFree(node);
      if (!isFree) for (const output of node.outputs) if (output !== null) this.inModelOrder.add(output);
      const wanted = (name: string | null) =>
        name === null || this.orderOf(name) === null || this.inModelOrder.has(name) === !isFree
          ? name
          : this.converted(name, node);
      this.nodes.push(withRing({ ...node, inputs: node.inputs.map(wanted) }, causal, this.pieces / PIECES));
    }
    const ordered = new Map<string, TensorOrder>();
    for (const name of graph.tensors.keys()) {
      const order = this.inModelOrder.has(name) ? null : this.orderOf(name);
      if (order) ordered.set(name, order);
    }
    return { ...graph, nodes: this.nodes, tensors: this.tensors, weights: this.weights, ordered };
  }

  /** Where a tensor has the sequence; null where it has none, or none that the pieces divide. */
  private orderOf(name: string): TensorOrder | null {
    const known = this.orders.get(name);
    const order =
      known ??
      this.marks
        .dimensionMarks(name)
        .map((mark) =>
          mark && mark.size % this.pieces === 0 ? { size: mark.size, minor: mark.minor, pieces: this.pieces } : null,
        );
    this.orders.set(name, order);
    return order.some((own) => own !== null) ? order : null;
  }

  /** Whether an operator computes the same in any order of positions. */
  private isFree(node: Node): boolean {
    const { graph, marks } = this;
    const factors = marks.factorMarks(node);
    const rule = ruleOf(operatorOf(graph, node));
    const follows = ruleSides(rule, node).every(({ of: name, dims }) =>
      marks.dimensionMarks(name).every((mark, axis) => {
        const found = markOfDimension(dims[axis] ?? [], rule, factors);
        return (mark?.size ?? 1) === (found?.size ?? 1) && (mark?.minor ?? 1) === (found?.minor ?? 1);
      }),
    );
    const { family = 'other', region = null } = entryOf(node.op, node.domain) ?? {};
    const isSymmetric = ({ kind }: Factor) =>
      kind === 'pass' ||
      kind === 'contracting' ||
      (kind === 'expanded' && (node.body !== null || SYMMETRIC.has(family)));
    // An attention without a body may have a mask of its own. Rotary embedding has its angles as operands.
    const isOpen = family !== 'attention' || region === 'RotaryEmbedding' || node.body !== null || factors.size === 0;
    return (
      follows &&
      isOpen &&
      [...factors].every(([name, { size }]) => {
        const factor = rule.factors.get(name);
        return size === 1 || (factor !== undefined && isSymmetric(factor));
      })
    );
  }

  /** A tensor in the other order than it has under its own name. */
  private converted(name: string, near: Node): string {
    const found = this.others.get(name);
    if (found !== undefined) return found;
    const back = !this.inModelOrder.has(name);
    const order = this.orderOf(name) ?? [];
    const type = typeOf(this.graph, name);
    const weight = this.graph.weights.get(name);
    let made = name;
    if (weight?.role === 'constant' && weight.source.kind === 'inline' && dtypeBits(type.dtype) % 8 === 0) {
      made = unusedName(this.tensors, `${name}/zigzag`);
      this.weights.set(made, constantWeight({ ...type, data: reordered(weight.source.data, type, order, back) }));
      this.tensors.set(made, type);
    } else {
      for (const [axis, own] of order.entries()) {
        if (!own) continue;
        const indices = this.indices(orderedPlaces(type.shape[axis] ?? 1, own, back));
        const result = unusedName(this.tensors, `${name}/${back ? 'in_order' : 'zigzag'}`);
        this.tensors.set(result, type);
        const plain = { op: 'Gather', domain: '', attributes: { axis }, body: null, group: result };
        this.nodes.push({ ...near, ...plain, name: result, inputs: [made, indices], outputs: [result] });
        made = result;
      }
    }
    this.others.set(name, made);
    return made;
  }

  private indices(places: readonly number[]): string {
    const key = `places ${places.length} ${places.slice(0, places.length / 2).join()}`;
    const known = this.others.get(key);
    if (known !== undefined) return known;
    const value = constant('int64', places, [places.length]);
    const name = unusedName(this.tensors, 'zigzag/places');
    this.tensors.set(name, { dtype: value.dtype, shape: value.shape });
    this.weights.set(name, constantWeight(value));
    this.others.set(key, name);
    return name;
  }
}
