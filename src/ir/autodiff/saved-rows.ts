/**
 * @file Stored activations of a recognised attention besides its result: two numbers per row of scores S, from which its gradient
 * computes the probabilities again without a second softmax,
 *
 *     m = max S      r = max P = 1 / Σ exp(S − m)      P = exp(S − m) · r      (log-sum-exp = m − log r)
 *
 * and its gradient, where the sum over keys is one over the features of the result O (FlashAttention, Dao et al. 2022):
 *
 *     dS = P · (dP − D)      D = Σ P dP = Σ dO O
 *
 * Their log-sum-exp alone would be enough except for rows in which a finite mask hides all keys: there −3.4e38 absorbs the log.
 */
import { type DType, onnxOfDtype } from '../dtype.js';
import { isRowOfResult, type Softmax, softmaxInside } from '../fused-regions/attention.js';
import { composeRule } from '../fused-regions/region-rule.js';
import type { Attributes, Graph, Node, TensorType, Weight } from '../graph.js';
import type { DifferentiatedOperator, WrittenOperators } from '../operator.js';
import { constant, constantWeight } from '../ops/constants.js';
import { summationType } from '../ops/expansion.js';
import { operatorEntry, ruleOf } from '../ops/index.js';
import { OperatorGradient } from '../ops/operator-gradient.js';
import { unusedName } from '../unused-name.js';

/** An attention that stores its rows' numbers. */
export interface SavedRows {
  /** The region with two more results. */
  readonly forward: Node;
  /** Types of those two, and of tensors that only the gradient makes. */
  readonly tensors: ReadonlyMap<string, TensorType>;
  /** The region's operators with one Softmax in place of however the exporter wrote it. */
  readonly nodes: readonly Node[];
  /** The name of that Softmax where the gradient computes it again. */
  readonly softmax: string;
  readonly max: string;
  readonly share: string;
  /** The region's result, where a row of it stands for a row of scores. */
  readonly result: { readonly name: string; readonly dtype: DType } | null;
  readonly type: DType;
  readonly isGuarded: boolean;
  /** The attention sink: a score that each row's sum includes besides those of its keys. */
  readonly sink: string | null;
}

/** The stored numbers that the gradient `name` of an attention needs; null where the region cannot store them. */
export function savedRows(node: Node, body: Graph, name: string): SavedRows | null {
  const softmax = softmaxInside(body);
  const scores = softmax && body.tensors.get(softmax.scores);
  if (!softmax || !scores) return null;
  const { axis, sink } = softmax;
  const isOfRows = isRowOfResult(body, softmax);
  // A sink's gradient is made of the result's rows.
  if (sink && !isOfRows) return null;
  const [maxName, shareName] = [`${node.name}/row_max`, `${node.name}/row_share`];
  const shape = scores.shape.map((size, index) => (index === axis ? 1 : size));
  const type = summationType(scores.dtype);
  const rows = { axes: [axis], keepdims: 1 };
  const tensors = new Map<string, TensorType>([
    [maxName, { dtype: scores.dtype, shape }],
    [shareName, { dtype: type, shape }],
  ]);
  const add = adder(node, tensors);
  const named = (inner: Node, name: string): Node => ({ ...inner, outputs: [name] });
  const max = named(
    sink
      ? add('Identity', [sink.max], { dtype: scores.dtype, shape })
      : add('ReduceMax', [softmax.scores], { dtype: scores.dtype, shape }, rows),
    maxName,
  );
  let summing: readonly Node[] = [];
  if (!sink && type !== scores.dtype) {
    // Half precision would lose accuracy in one number that the whole row depends on.
    const powers = powersOf(add, softmax.scores, maxName, scores);
    summing = [...powers, add('ReduceSum', [lastOf(powers)], { dtype: type, shape }, rows)];
  }
  const sum = sink?.sum ?? (summing.length > 0 ? lastOf(summing) : null);
  const share =
    sum !== null
      ? add('Reciprocal', [sum], { dtype: type, shape })
      : add('ReduceMax', [softmax.probabilities], { dtype: type, shape }, rows);
  const extended: Graph = {
    ...body,
    nodes: [...body.nodes, max, ...summing, named(share, shareName)],
    tensors: new Map([...body.tensors, ...tensors]),
    outputs: [...body.outputs, maxName, shareName],
  };
  const result = node.outputs[0] ?? null;
  const find = (op: string, domain: string) => operatorEntry({ op, domain });
  if (!composeRule(node.op, extended, find)) return null;
  return {
    forward: { ...node, outputs: [...node.outputs, maxName, shareName], body: extended },
    tensors,
    nodes: plainly(node, body, softmax),
    softmax: `${name}/${node.name}/softmax`,
    max: maxName,
    share: shareName,
    result: result !== null && isOfRows ? { name: result, dtype: body.tensors.get(result)?.dtype ?? type } : null,
    type: scores.dtype,
    isGuarded: softmax.isGuarded,
    sink: sink?.tensor ?? null,
  };
}

/** The gradient of the scores from that of the probabilities; the tensor `resultGradient` is that of the region's result. */
export function rowsGradient(
  operator: DifferentiatedOperator,
  { result }: SavedRows,
  resultGradient: string | null,
): WrittenOperators {
  const write = new OperatorGradient(operator, ruleOf(operator));
  const type = write.sumType;
  const at = write.on(type);
  const own = operator.outputs[0]?.dtype ?? type;
  const [y, g] = [write.inType('out0', own, type), write.inType('grad0', own, type)];
  const product =
    result && resultGradient !== null
      ? at.mul(write.inType(result.name, result.dtype, type), write.inType(resultGradient, result.dtype, type))
      : at.mul(y, g);
  const sum = write.add('ReduceSum', [product], { axes: [-1], keepdims: 1 });
  write.become(0, at.mul(y, at.sub(g, sum)), type);
  return write.finish();
}

/** Nodes, and the types and constants around them. */
export interface Pieces {
  readonly nodes: readonly Node[];
  readonly tensors: ReadonlyMap<string, TensorType>;
  readonly weights: ReadonlyMap<string, Weight>;
}

/** The gradient's nodes with probabilities made of the rows' numbers in place of the Softmax. */
export function withoutSoftmax({ nodes, ...given }: Pieces, rows: SavedRows): Pieces {
  const place = nodes.findIndex(({ name }) => name === rows.softmax);
  const softmax = nodes[place];
  const scores = softmax?.inputs[0];
  const result = softmax?.outputs[0];
  if (!softmax || !scores || !result) throw new Error(`the gradient of ${rows.forward.name} has no softmax`);
  const tensors = new Map([...given.tensors, ...rows.tensors]);
  const weights = new Map(given.weights);
  const shape = tensors.get(scores)?.shape ?? [];
  const [own, type] = [rows.type, summationType(rows.type)];
  const add = adder(softmax, tensors);
  const powers = powersOf(add, scores, rows.max, { dtype: own, shape });
  let steps = [...powers, add('Mul', [lastOf(powers), rows.share], { dtype: type, shape })];
  if (rows.isGuarded) {
    const zero = `${softmax.name}/zero`;
    tensors.set(zero, { dtype: type, shape: [] });
    weights.set(zero, constantWeight(constant(type, [0])));
    const none = add('IsNaN', [lastOf(steps)], { dtype: 'bool', shape });
    steps = [...steps, none, add('Where', [lastOf([none]), zero, lastOf(steps)], { dtype: type, shape })];
  }
  if (type !== own) steps.push(add('Cast', [lastOf(steps)], { dtype: own, shape }, { to: onnxOfDtype(own) }));
  const end = lastOf(steps);
  const named = steps.map((node) => (node.outputs[0] === end ? { ...node, outputs: [result] } : node));
  return { nodes: [...nodes.slice(0, place), ...named, ...nodes.slice(place + 1)], tensors, weights };
}

/**
 * The gradient of a sink, from that of the result (`resultGradient`): the share of each row that it takes from the keys,
 *
 *     d sink = −Σ exp(sink − m) · r · D      over the rows that it is a score of
 *
 * It is computed separately: in chunks of keys it would be counted once per chunk.
 */
export function sinkGradient(
  { forward, sink, max, share, result, type: own }: SavedRows,
  resultGradient: string,
  known: ReadonlyMap<string, TensorType>,
  near: Node,
): { readonly nodes: readonly Node[]; readonly tensors: ReadonlyMap<string, TensorType>; readonly gradient: string } {
  const typed = (name: string | null | undefined) => known.get(name ?? '') as TensorType;
  const tensors = new Map(known);
  const add = adder({ ...near, name: `${forward.name}/sink` }, tensors);
  const [{ shape: wanted }, { shape }, { dtype: type }] = [typed(sink), typed(max), typed(share)];
  const nodes: Node[] = [];
  const write = (op: string, inputs: readonly string[], dtype: DType, sizes: readonly number[], attributes = {}) => {
    const node = add(op, inputs, { dtype, shape: sizes }, attributes);
    nodes.push(node);
    return lastOf([node]);
  };
  const fine = (name: string) =>
    typed(name).dtype === type ? name : write('Cast', [name], type, typed(name).shape, { to: onnxOfDtype(type) });
  const [output, seed] = [fine(result?.name ?? ''), fine(resultGradient)];
  const features = { axes: [shape.length - 1], keepdims: 1 };
  const product = write('Mul', [output, seed], type, typed(resultGradient).shape);
  const sum = write('ReduceSum', [product], type, shape, features);
  const down = write('Sub', [sink ?? '', max], own, shape);
  const power = write(
    'Exp',
    [type === own ? down : write('Cast', [down], type, shape, { to: onnxOfDtype(type) })],
    type,
    shape,
  );
  const taken = write('Mul', [write('Mul', [power, share], type, shape), sum], type, shape);
  const axes = shape.flatMap((size, axis) => (size !== wanted[axis] ? [axis] : []));
  const whole = axes.length === 0 ? taken : write('ReduceSum', [taken], type, wanted, { axes, keepdims: 1 });
  const wideGradient = write('Neg', [whole], type, wanted);
  const gradient = type === own ? wideGradient : write('Cast', [wideGradient], own, wanted, { to: onnxOfDtype(own) });
  return { nodes, tensors: new Map([...tensors].filter(([name]) => !known.has(name))), gradient };
}

type Adder = (op: string, inputs: readonly string[], type: TensorType, attributes?: Attributes) => Node;

/** Makes operators near a node, and records the types of their results. */
function adder(near: Node, tensors: Map<string, TensorType>): Adder {
  return (op, inputs, type, attributes = {}) => {
    const name = unusedName(tensors, `${near.name}/${op}`);
    tensors.set(name, type);
    return { ...near, name, op, domain: '', attributes, inputs, outputs: [name], group: name, body: null };
  };
}

function lastOf(nodes: readonly Node[]): string {
  return nodes.at(-1)?.outputs[0] ?? '';
}

/** exp(S − max), in the type that sums are formed in. */
function powersOf(add: Adder, scores: string, max: string, { dtype, shape }: TensorType): readonly Node[] {
  const type = summationType(dtype);
  const down = add('Sub', [scores, max], { dtype, shape });
  const fine = type === dtype ? [] : [add('Cast', [lastOf([down])], { dtype: type, shape }, { to: onnxOfDtype(type) })];
  const before = [down, ...fine];
  return [...before, add('Exp', [lastOf(before)], { dtype: type, shape })];
}

/** The body's operators with one Softmax where the exporter wrote several operators. */
function plainly(node: Node, body: Graph, softmax: Softmax): readonly Node[] {
  const parts = new Set(softmax.nodes);
  const last = body.nodes.findLast((inner) => parts.has(inner));
  const single: Node = {
    ...node,
    name: `${node.name}/softmax`,
    op: 'Softmax',
    domain: '',
    attributes: { axis: softmax.axis },
    inputs: [softmax.scores],
    outputs: [softmax.probabilities],
    body: null,
  };
  return body.nodes.flatMap((inner) => (inner === last ? [single] : parts.has(inner) ? [] : [inner]));
}
