/**
 * @file An operator's expansion as operators of the graph, where the operator stood.
 */
import type { Node, TensorType, Weight } from './graph.js';
import type { WrittenOperator, WrittenOperators } from './operator.js';
import { constantWeight } from './ops/constants.js';
import { operatorEntry } from './ops/index.js';
import { madeOnce } from './remembered.js';
import { unusedName } from './unused-name.js';
import { tensorsByName } from './written-names.js';

/** A graph's tables, to which new tensors and weights are added. */
interface GraphTables {
  readonly tensors: Map<string, TensorType>;
  readonly weights: Map<string, Weight>;
}

/**
 * The operators of an expansion under new names, and these names by the expansion's. `given`: tensors that it reads besides the
 * operator's operands.
 */
export function inPlaceOf(
  maker: Node,
  expansion: WrittenOperators,
  { tensors, weights }: GraphTables,
  given: Readonly<Record<string, string>> = {},
): { readonly nodes: readonly Node[]; readonly names: ReadonlyMap<string, string> } {
  const names = new Map([...Object.entries(given), ...tensorsByName(maker.inputs, maker.outputs)]);
  for (const [name, value] of Object.entries(expansion.constants)) {
    const own = unusedName(tensors, `${maker.outputs[0]}/${name}`);
    names.set(name, own);
    tensors.set(own, { dtype: value.dtype, shape: value.shape });
    weights.set(own, constantWeight(value));
  }
  return { nodes: expansion.nodes.map((inner) => instance(inner, maker, names, tensors)), names };
}

function instance(
  inner: WrittenOperator,
  maker: Node,
  names: Map<string, string>,
  tensors: Map<string, TensorType>,
): Node {
  const inputs = inner.inputs.map((name) => (name === null ? null : (names.get(name) ?? null)));
  const name = unusedName(tensors, `${maker.name}/${inner.outputs[0]}`);
  const domain = inner.domain ?? '';
  const attributes = inner.attributes ?? {};
  const types = operatorEntry({ op: inner.op, domain }).infer({
    name,
    op: inner.op,
    domain,
    attributes,
    inputs: inputs.map((input) => (input === null ? null : (tensors.get(input) ?? null))),
    outputs: [],
    outputCount: inner.outputs.length,
  });
  const outputs = inner.outputs.map((local, index) => {
    const own = madeOnce(names, local, () => unusedName(tensors, `${maker.name}/${local}`));
    const type = types[index];
    if (type) tensors.set(own, { dtype: type.dtype, shape: type.shape });
    return own;
  });
  return { ...maker, name, op: inner.op, domain, attributes, inputs, outputs, group: name };
}
