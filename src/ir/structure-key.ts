/**
 * @file Structural keys: two operators with equal keys have the same candidates at the same costs, wherever they stand.
 */
import { createHash } from 'node:crypto';
import type { AttributeValue, Graph, TensorType } from './graph.js';
import type { OperatorView } from './operator.js';

/** Key of an operator by what its price can depend on, whatever its name. */
export function structureKey(view: OperatorView): string {
  const known = KEYS.get(view) ?? keyOf(view);
  KEYS.set(view, known);
  return known;
}

/** Views never change, and every station of a compilation asks for their keys. */
const KEYS = new WeakMap<OperatorView, string>();

function keyOf(view: OperatorView): string {
  const attributes = Object.keys(view.attributes)
    .sort()
    .map((name) => [name, attributeKey(view.attributes[name] as AttributeValue)]);
  const types = [view.inputs.map(typeKey), view.outputs.map(typeKey)];
  return JSON.stringify([view.domain, view.op, attributes, ...types, view.body ? bodyKey(view.body) : 0]);
}

export function typeKey(type: TensorType | null): string {
  return type === null ? '_' : `${type.dtype}[${type.shape.join()}]`;
}

/** A body by its structure: tensors are told by where they come from, never by their names. */
function bodyKey(body: Graph): unknown {
  const places = new Map<string, string>();
  for (const [index, name] of body.inputs.entries()) places.set(name, `in${index}`);
  for (const [name, weight] of body.weights)
    places.set(name, weight.source.kind === 'inline' ? `${weight.dtype} ${[...weight.source.data]}` : name);
  const nodes = body.nodes.map((node, position) => {
    const attributes = Object.keys(node.attributes)
      .sort()
      .map((name) => [name, attributeKey(node.attributes[name] as AttributeValue)]);
    node.outputs.forEach((name, index) => {
      if (name !== null) places.set(name, `${position}.${index}`);
    });
    return [node.domain, node.op, attributes, node.inputs.map((name) => (name === null ? null : places.get(name)))];
  });
  return [nodes, body.outputs.map((name) => places.get(name))];
}

function attributeKey(value: AttributeValue): unknown {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'object' && 'data' in value) {
    return [typeKey(value), createHash('sha256').update(value.data).digest('hex')];
  }
  return value;
}
