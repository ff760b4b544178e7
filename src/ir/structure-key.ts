/**
 * @file Structural keys: operators of equal keys differ only in names, wherever they are. Operators of one key have the same
 * candidates at the same costs; regions of one key have one rule, layers of one key are planned once, segments of one key are one
 * file.
 */

import type { Graph, Node, TensorType } from './graph.js';
import type { Operator } from './operator.js';
import { attributesKey } from './passes/attributes-key.js';
import { remembered } from './remembered.js';

/** An operator of a run. */
type StructuredNode = Pick<Node, 'op' | 'domain' | 'attributes' | 'inputs' | 'outputs'> & Partial<Pick<Node, 'body'>>;

/** Known facts of a tensor besides its place, as JSON; `body`: the region that it is in. */
export type DescribeTensor = (tensor: string, body: Graph | null) => unknown;

/** A run of operators without its names. */
export interface Structure {
  /** Equal for equal operators with equal attributes, tensors in equal places and equal descriptions of these. */
  readonly key: string;
  /** Tensors by the order in which they are first mentioned. */
  readonly places: ReadonlyMap<string, number>;
}

/** The structure of operators; `ends` are tensors that are mentioned before and after them, in a significant order. */
export function structureOf(
  nodes: readonly StructuredNode[],
  describe: DescribeTensor,
  ends: Partial<Pick<Graph, 'inputs' | 'outputs'>> = {},
  body: Graph | null = null,
): Structure {
  const places = new Map<string, number>();
  const placesIn = (names: readonly (string | null)[]) =>
    names.map((name): unknown => {
      const known = name === null ? null : places.get(name);
      if (name === null || known !== undefined) return known;
      places.set(name, places.size);
      return [describe(name, body)];
    });
  const inputs = placesIn(ends.inputs ?? []);
  const operators = nodes.map((node) => [
    node.domain,
    node.op,
    attributesKey(node.attributes),
    placesIn(node.inputs),
    placesIn(node.outputs),
    ...(node.body ? [structureOf(node.body.nodes, describe, node.body, node.body).key] : []),
  ]);
  return { key: JSON.stringify([inputs, operators, placesIn(ends.outputs ?? [])]), places };
}

/** Key of an operator by everything that its cost can depend on, whatever its name. Every phase of a compilation needs it. */
export const structureKey = remembered(keyOf);

function keyOf({ domain, op, attributes, inputs, outputs, body }: Operator): string {
  const inside = body ? structureOf(body.nodes, constantOf, body, body).key : '';
  return JSON.stringify([domain, op, attributesKey(attributes), inputs.map(typeKey), outputs.map(typeKey), inside]);
}

/** Types inside of a region follow from those around it. */
function constantOf(tensor: string, body: Graph | null): unknown {
  const weight = body?.weights.get(tensor);
  if (!weight) return null;
  return weight.source.kind === 'inline' ? [weight.dtype, ...weight.source.data] : tensor;
}

export function typeKey(type: TensorType | null): string {
  return type === null ? '_' : `${type.dtype}[${type.shape.join()}]`;
}
