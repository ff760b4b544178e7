/**
 * @file The values that an input may have which indexes a table.
 */
import { flattenRegions } from './fused-regions/flatten-regions.js';
import { type Graph, typeOf } from './graph.js';
import { entryOf } from './ops/index.js';

/** Rows of the smallest table that an input indexes, followed through views and casts; null if it indexes none. */
export function tableRows(given: Graph, input: string): number | null {
  const graph = flattenRegions(given);
  const names = new Set([input]);
  let bound = Infinity;
  for (const node of graph.nodes) {
    const entry = entryOf(node.op, node.domain);
    node.inputs.forEach((name, operand) => {
      if (name === null || !names.has(name)) return;
      if (entry?.isView || entry?.family === 'view') for (const output of node.outputs) if (output) names.add(output);
      const table = node.inputs[0];
      if (entry?.indexInput !== operand || !table) return;
      const axis = node.attributes['axis'];
      bound = Math.min(bound, typeOf(graph, table).shape.at(typeof axis === 'number' ? axis : 0) ?? Infinity);
    });
  }
  return Number.isFinite(bound) ? bound : null;
}
