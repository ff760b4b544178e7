/**
 * @file Mixtures whose chosen results are gathered and added up by their gates, as sums over all experts:
 *
 *     Σⱼ w[t, j] · y[t, e(t, j)]  →  Σₑ gate[t, e] · y[t, e]        gate[t, e] = Σ of the w[t, j] with e(t, j) = e
 *
 * Dispatch recognises this form, and every rank adds up only its own experts.
 */
import type { FactorRule } from '../factor-rule.js';
import { type Graph, type Node, typeOf } from '../graph.js';
import { makersOf, readersOf } from '../makers-and-readers.js';
import { operatorOf } from '../operator-of.js';
import { constant } from '../ops/constants.js';
import { operatorFamily, ruleOf } from '../ops/index.js';
import { ForwardWriter } from '../passes/forward-writer.js';
import { expertCounts } from './find-experts.js';

/** The graph with sums over experts in place of gathered results; the graph itself if none. */
export function sumGathered(graph: Graph): Graph {
  const gathers = graph.nodes.filter(({ op, domain }) => op === 'GatherElements' && domain === '');
  if (gathers.length === 0) return graph;
  const counts = expertCounts(graph);
  const find = finderIn(graph);
  const writer = new ForwardWriter(graph);
  const made = new Map<Node, readonly Node[]>();
  for (const gather of gathers) {
    const found = find(gather);
    if (!found || !counts.has(found.experts)) continue;
    const { product, place, sum, all, choice, weights, axis } = found;
    const add = (op: string, inputs: readonly string[], attributes = {}) =>
      writer.add(`${product.name}/${op}`, product, op, inputs, attributes);
    const { dtype, shape } = typeOf(graph, weights);
    const places = add('Reshape', [choice], { shape, allowzero: 0 });
    const value = constant(dtype, [0], [1]);
    const zeros = add('ConstantOfShape', [], { shape: shape.with(axis, found.experts), value });
    const gate = add('ScatterElements', [zeros, places, weights], { axis, reduction: 'add' });
    const operands = place === 0 ? [all, gate] : [gate, all];
    const [result] = (sum ?? product).outputs;
    if (sum) writer.into(result ?? '', sum, sum.op, [add(product.op, operands, product.attributes)], sum.attributes);
    else writer.into(result ?? '', product, product.op, operands, product.attributes);
    made.set(sum ?? product, writer.take());
  }
  if (made.size === 0) return graph;
  return writer.neededGraph(graph.nodes.flatMap((node) => made.get(node) ?? [node]));
}

interface GatheredResults {
  /** Multiplies results by weights, which are the other operand, and adds up the chosen ones unless `sum` does. */
  readonly product: Node;
  readonly place: number;
  readonly sum: Node | null;
  readonly all: string;
  readonly experts: number;
  /** The chosen experts, and their weights, with the chosen ones along `axis` of the weights. */
  readonly choice: string;
  readonly weights: string;
  readonly axis: number;
}

/** Finds the operators that read gathered results; null where these do not compute a weighted sum. */
function finderIn(graph: Graph): (gather: Node) => GatheredResults | null {
  const readers = readersOf(graph.nodes);
  const makers = makersOf(graph.nodes);
  const outputs = new Set(graph.outputs);
  const only = (tensor: string | null | undefined): Node | null => {
    const all = readers.get(tensor ?? '') ?? [];
    return tensor && all.length === 1 && !outputs.has(tensor) ? (all[0] ?? null) : null;
  };
  const sizes = (tensor: string) => typeOf(graph, tensor).shape;
  return (gather) => {
    const [all, index] = gather.inputs;
    const [result] = gather.outputs;
    const product = only(result);
    const place = product?.inputs.indexOf(result ?? '') ?? -1;
    const weights = product?.inputs[1 - place];
    if (!all || !index || !product || !weights || product.inputs.length !== 2 || gather.phase !== 'forward')
      return null;
    const chosenAxis = Number(gather.attributes['axis']);
    const spread = makers.get(index);
    const [choice] = spread?.inputs ?? [];
    // One expert for all features of a token.
    const isSpread = spread?.op === 'Expand' && spread.domain === '' && choice && sizes(choice).at(-1) === 1;
    const isEach = sizes(index).every((size, axis) => axis === chosenAxis || size === sizes(all)[axis]);
    if (!isSpread || !isEach || chosenAxis === sizes(all).length - 1) return null;
    const rule = ruleOf(operatorOf(graph, product));
    const [factor = '', ...others] = rule.inputs[place]?.[chosenAxis] ?? [];
    const axis = rule.inputs[1 - place]?.findIndex((names) => names.join() === factor) ?? -1;
    const made = rule.outputs[0]?.findIndex((names) => names.join() === factor) ?? -1;
    if (others.length > 0 || factor === '' || axis < 0) return null;
    // Positions of tokens are those of their choices, in one order.
    const own = (names: FactorRule['inputs'][number], shape: readonly number[]) =>
      shape.flatMap((size, dimension) => (size > 1 ? [names?.[dimension]?.join()] : [])).join(' ');
    const wanted = own(rule.inputs[place] ?? null, sizes(choice));
    if (sizes(choice).length !== sizes(index).length || wanted !== own(rule.inputs[1 - place] ?? null, sizes(weights)))
      return null;
    const found = { product, place, all, choice, weights, axis, experts: sizes(all)[chosenAxis] ?? 1 };
    if (made < 0) return operatorFamily(product) === 'contraction' ? { ...found, sum: null } : null;
    const sum = only(product.outputs[0]);
    const isSum = sum?.op === 'ReduceSum' && [sum.attributes['axes']].flat().join() === `${made}`;
    return product.op === 'Mul' && product.domain === '' && isSum ? { ...found, sum } : null;
  };
}
