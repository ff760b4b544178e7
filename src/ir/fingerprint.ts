/**
 * @file The fingerprint of a graph: SHA-256 over its canonical structure. Values of parameters and buffers are left out,
 * so a model trained further keeps its plan; small constants are in it, as attributes would be.
 */
import { createHash } from 'node:crypto';
import { elementCount, type Graph, type Node, passOf, type Weight } from './graph.js';
import { attributesKey } from './passes/attributes-key.js';
import { FOLD_LIMIT } from './passes/fold-limit.js';
import { remembered } from './remembered.js';

/**
 * Hex SHA-256; equal for equal operators over equal names, types and small constants, whatever the order of maps. Remembered:
 * a training graph has regions of the graph that it is made from.
 */
export const fingerprint = remembered((graph: Graph): string => {
  const hash = createHash('sha256');
  hash.update(JSON.stringify({ inputs: graph.inputs, outputs: graph.outputs, state: graph.state, batch: graph.batch }));
  if (graph.microBatches) hash.update(JSON.stringify([graph.microBatches.count, ...graph.microBatches.cut]));
  const types = sorted(graph.tensors).map(([name, { dtype, shape }]) => `\n${name} ${dtype}[${shape.join(',')}]`);
  hash.update(types.join(''));
  for (const [name, weight] of sorted(graph.weights)) {
    hash.update(`\n${name} ${weight.role}`);
    hash.update(constantBytes(weight));
  }
  hash.update(graph.nodes.map((node) => `\n${nodeText(node)}`).join(''));
  return hash.digest('hex');
});

function nodeText(node: Node): string {
  const place = [
    node.name,
    node.domain,
    node.op,
    node.inputs,
    node.outputs,
    node.layer,
    node.phase === 'update' ? 'step' : 'micro',
    passOf(node.phase),
    node.group,
  ];
  return `${JSON.stringify(place)} ${attributesKey(node.attributes)} ${node.body ? fingerprint(node.body) : ''}`;
}

function constantBytes(weight: Weight): Uint8Array {
  const counts = weight.role === 'constant' && elementCount(weight.shape) <= FOLD_LIMIT;
  return counts && weight.source.kind === 'inline' ? weight.source.data : new Uint8Array(0);
}

function sorted<Value>(map: ReadonlyMap<string, Value>): readonly [string, Value][] {
  return [...map.keys()].sort().map((name) => [name, map.get(name) as Value]);
}
