/**
 * @file Structural keys: two operators with equal keys have the same candidates at the same costs, wherever they stand.
 */
import { createHash } from 'node:crypto';
import type { AttributeValue, TensorType } from '../ir/graph.js';
import type { OperatorView } from '../ir/operator.js';

/** Key of an operator by what its price can depend on; `extra` holds what the planner adds (roles, weights). */
export function structureKey(view: OperatorView, extra: readonly unknown[]): string {
  const attributes = Object.keys(view.attributes)
    .sort()
    .map((name) => [name, attributeKey(view.attributes[name] as AttributeValue)]);
  return JSON.stringify([view.domain, view.op, attributes, view.inputs.map(typeKey), view.outputs.map(typeKey), extra]);
}

export function typeKey(type: TensorType | null): string {
  return type === null ? '_' : `${type.dtype}[${type.shape.join()}]`;
}

function attributeKey(value: AttributeValue): unknown {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'object' && 'data' in value) {
    return [typeKey(value), createHash('sha256').update(value.data).digest('hex')];
  }
  return value;
}
