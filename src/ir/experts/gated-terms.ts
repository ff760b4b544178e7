/**
 * @file Sums of terms that each have a gate, as exporters write a mixture whose experts are modules of their own:
 *
 *     ((0 + y₀ · g₀) + y₁ · g₁) + where(m₂, y₂, 0) + …        y [..., width], g and m [..., 1]
 */
import { type Graph, type Node, typeOf } from '../graph.js';
import { type Makers, makersOf, type Readers } from '../makers-and-readers.js';

/** A factor of a term's result, or a mask of the rows in which the result counts. */
interface Gate {
  readonly kind: 'factor' | 'mask';
  readonly tensor: string;
}

export interface GatedTerm {
  readonly tensor: string;
  /** Without its gates. */
  readonly result: string;
  /** A factor first. */
  readonly gates: readonly Gate[];
}

export interface GatedSum {
  /** The last operator. */
  readonly end: Node;
  readonly terms: readonly GatedTerm[];
  /** The other summands, without zeros. */
  readonly others: readonly string[];
}

/** Sums with several such terms. */
export function sumsOf(graph: Graph, readers: Readers<Node>): readonly GatedSum[] {
  const makers = makersOf(graph.nodes);
  const outputs = new Set(graph.outputs);
  const isOnce = (tensor: string) => readers.get(tensor)?.length === 1 && !outputs.has(tensor);
  const isSum = (node: Node) =>
    (node.op === 'Add' || node.op === 'Sum') &&
    node.domain === '' &&
    node.phase === 'forward' &&
    node.inputs.every((input) => input !== null && shapeOf(graph, input) === shapeOf(graph, node.outputs[0] ?? ''));
  const inner = new Set<string>();
  const found: GatedSum[] = [];
  for (const end of graph.nodes.toReversed()) {
    if (!isSum(end) || inner.has(end.outputs[0] ?? '')) continue;
    const leaves: string[] = [];
    const stack = end.inputs.toReversed();
    for (let next = stack.pop(); next; next = stack.pop()) {
      const maker = makers.get(next);
      if (maker && isSum(maker) && isOnce(next)) {
        inner.add(next);
        stack.push(...maker.inputs.toReversed());
      } else leaves.push(next);
    }
    const terms = leaves.map((leaf) => termOf(graph, makers, isOnce, leaf));
    const gated = terms.flatMap((term) => term ?? []);
    if (gated.length < 2) continue;
    const others = leaves.filter((leaf, index) => !terms[index] && !isZero(graph, makers, leaf));
    found.push({ end, terms: gated, others });
  }
  return found.reverse();
}

function shapeOf(graph: Graph, tensor: string): string {
  return typeOf(graph, tensor).shape.join();
}

/** A tensor without its gates; null where it has none. */
function termOf(
  graph: Graph,
  makers: Makers<Node>,
  isOnce: (tensor: string) => boolean,
  tensor: string,
): GatedTerm | null {
  const { shape } = typeOf(graph, tensor);
  if (shape.length < 2 || (shape.at(-1) ?? 1) < 2) return null;
  const gateShape = shape.with(-1, 1).join();
  const gates: Gate[] = [];
  let at = tensor;
  for (let maker = makers.get(at); maker && isOnce(at); maker = makers.get(at)) {
    const [first, second, third] = maker.inputs;
    if (maker.domain !== '' || !first || !second) break;
    const isGate = (name: string) => shapeOf(graph, name) === gateShape;
    if (maker.op === 'Mul' && (isGate(first) || isGate(second))) {
      const [result, gate] = isGate(second) ? [first, second] : [second, first];
      if (isGate(result)) break;
      gates.push({ kind: 'factor', tensor: gate });
      at = result;
    } else if (maker.op === 'Where' && third && isGate(first) && isZero(graph, makers, third)) {
      gates.push({ kind: 'mask', tensor: first });
      at = second;
    } else break;
  }
  const factors = gates.filter(({ kind }) => kind === 'factor');
  const masks = gates.filter(({ kind }) => kind === 'mask');
  return factors.length > 0 && isOnce(at) ? { tensor, result: at, gates: [...factors, ...masks] } : null;
}

/** Whether all elements are zero, as the first summand of a loop is. */
function isZero(graph: Graph, makers: Makers<Node>, tensor: string): boolean {
  const weight = graph.weights.get(tensor);
  if (weight) {
    const { source } = weight;
    return source.kind === 'zero' || (source.kind === 'inline' && source.data.every((byte) => byte === 0));
  }
  const maker = makers.get(tensor);
  const value = maker?.op === 'ConstantOfShape' ? maker.attributes['value'] : undefined;
  return (
    maker?.op === 'ConstantOfShape' &&
    (value === undefined || (typeof value === 'object' && 'data' in value && value.data.every((byte) => byte === 0)))
  );
}
