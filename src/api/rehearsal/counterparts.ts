/**
 * @file Maps each operator and tensor of a rehearsal to its counterpart in the plan's model. Both are built alike, so names
 * match; operators that are numbered over the whole model (the terms of a gradient norm) are matched by their inputs.
 */

import type { Graph, Node } from '../../ir/graph.js';
import { operatorRole } from '../../ir/ops/index.js';

export interface Counterparts {
  /** The plan's operator, by operator of the rehearsal. */
  readonly nodeOf: ReadonlyMap<string, string>;
  /** The plan's tensor, by tensor of the rehearsal. */
  readonly tensorOf: ReadonlyMap<string, string>;
}

export function counterparts(big: Graph, small: Graph): Counterparts {
  const nodes = new Map(big.nodes.map((node) => [node.name, node]));
  const readers = new Map<string, Node[]>();
  for (const node of big.nodes)
    for (const input of new Set(node.inputs)) {
      if (input === null) continue;
      const list = readers.get(input);
      if (list) list.push(node);
      else readers.set(input, [node]);
    }
  const nodeOf = new Map<string, string>();
  const tensorOf = new Map<string, string>();
  const makers = new Map(small.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
  for (const name of [...small.inputs, ...small.weights.keys()]) if (big.tensors.has(name)) tensorOf.set(name, name);
  for (const node of small.nodes) {
    // In a chain of sums each term identifies its place, and the running sum does not.
    const tells = node.inputs.map((input) => {
      const maker = makers.get(input);
      return input !== null && !(maker && maker.layer === null && maker.op === node.op && maker.phase === node.phase);
    });
    const reads = (other: Node) =>
      node.inputs.filter((input, index) => tells[index] && tensorOf.get(input ?? '') === other.inputs[index]).length;
    const readsAll = (other: Node) =>
      node.inputs.every((input, index) => (tensorOf.get(input ?? '') ?? null) === other.inputs[index]);
    const isAlike = (other: Node) =>
      (other.op === node.op || operatorRole(node) === 'copy') &&
      other.domain === node.domain &&
      other.phase === node.phase &&
      other.layer === node.layer;
    const named = nodes.get(node.name);
    const isSame = named && isAlike(named) && (node.layer !== null || reads(named) > 0 || readsAll(named));
    const alike = isSame
      ? []
      : node.inputs
          .flatMap((input) => readers.get(tensorOf.get(input ?? '') ?? '') ?? [])
          .filter(isAlike)
          .sort((a, b) => reads(b) - reads(a));
    const other = isSame ? named : (alike[0] ?? (named && isAlike(named) ? named : undefined));
    if (!other) continue;
    nodeOf.set(node.name, other.name);
    node.outputs.forEach((output, index) => {
      const its = other.outputs[index];
      if (output !== null && its) tensorOf.set(output, its);
    });
  }
  return { nodeOf, tensorOf };
}
