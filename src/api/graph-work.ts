/**
 * @file The work per micro-batch of any imported model on one rank of its tensor-parallel group: the graph is differentiated,
 * planned for those ranks and lowered; layers whose work is alike are one class.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { deviceLevels } from '../cost-model/levels.js';
import { readWork } from '../cost-model/step/read-work.js';
import type { ModelWork, PartWork } from '../cost-model/step/work.js';
import type { LossOptions } from '../ir/autodiff/append-loss.js';
import { appendLoss } from '../ir/autodiff/append-loss.js';
import { differentiate } from '../ir/autodiff/differentiate.js';
import { drawDropout } from '../ir/autodiff/dropout.js';
import { flattenBlocks } from '../ir/blocks/flatten-blocks.js';
import { elementCount, type Graph, type Node, typeOf } from '../ir/graph.js';
import { plan } from '../search/plan.js';

/** What a graph's work is read for: inference, or training with a loss. */
export type Purpose = { readonly kind: 'inference' } | { readonly kind: 'training'; readonly loss: LossOptions };

/** @throws AutoparError where no plan shards the graph over `tp` ranks, or it has no gradient */
export async function graphWork(forward: Graph, tp: number, cluster: Cluster, purpose: Purpose): Promise<ModelWork> {
  const graph = purpose.kind === 'training' ? withGradients(forward, purpose.loss) : forward;
  const { device } = cluster;
  const ranks: Cluster = { nodes: 1, perNode: tp, device, levels: deviceLevels(device, 1, tp), local: false };
  const found = await plan(graph, ranks, {
    degrees: { dp: 1, tp },
    memoryBytes: Number.MAX_SAFE_INTEGER,
  });
  const places = layerPlaces(graph);
  const parts = readWork(graph, found.sharded, (group) => places.get(group) ?? 'last');
  const layers = [...parts].filter(([name]) => name !== 'first' && name !== 'last').map(([, part]) => part);
  return {
    first: parts.get('first') ?? NOTHING,
    layers: layers.length > 0 ? classesOf(layers) : [{ count: 1, part: NOTHING }],
    last: parts.get('last') ?? NOTHING,
    hidden: 1,
    chosen: 1,
    boundary: boundaryOf(graph, places),
    tied: false,
  };
}

const NOTHING: PartWork = {
  forward: [],
  backward: [],
  parameters: 0,
  expertParameters: 0,
  saved: 0,
  savedRepeated: 0,
  savedMasks: 0,
};

function withGradients(forward: Graph, loss: LossOptions): Graph {
  const { graph: scored, loss: name } = appendLoss(drawDropout(flattenBlocks(forward), 0).graph, loss);
  const trained = [...scored.weights].flatMap(([weight, { role }]) => (role === 'parameter' ? [weight] : []));
  const { graph, gradients } = differentiate(scored, name, trained);
  return { ...graph, outputs: [name, ...gradients.values()] };
}

/** first, last, or the repeated layer of each group: what comes before the first layer, and what after it is in none. */
function layerPlaces(graph: Graph): ReadonlyMap<string, string> {
  const places = new Map<string, string>();
  let begun = false;
  for (const node of graph.nodes) {
    if (node.phase !== 'forward') {
      if (node.layer !== null) places.set(node.group, node.layer);
      continue;
    }
    begun ||= node.layer !== null;
    places.set(node.group, node.layer ?? (begun ? 'last' : 'first'));
  }
  return places;
}

/** Equal parts counted, in the order in which they first come. */
function classesOf(parts: readonly PartWork[]): ModelWork['layers'] {
  const classes = new Map<string, { count: number; part: PartWork }>();
  for (const part of parts) {
    const key = JSON.stringify(part);
    const known = classes.get(key);
    if (known) known.count++;
    else classes.set(key, { count: 1, part });
  }
  return [...classes.values()];
}

/** Elements that go from one layer to the next: the most that any pair of neighbours hands on. */
function boundaryOf(graph: Graph, places: ReadonlyMap<string, string>): number {
  const makers = new Map<string, Node>();
  for (const node of graph.nodes) {
    if (node.phase !== 'forward') continue;
    for (const output of node.outputs) if (output !== null) makers.set(output, node);
  }
  const handed = new Map<string, Set<string>>();
  for (const node of graph.nodes) {
    if (node.phase !== 'forward') continue;
    const to = places.get(node.group) ?? '';
    for (const input of node.inputs) {
      const maker = input === null ? undefined : makers.get(input);
      const from = maker ? (places.get(maker.group) ?? '') : '';
      if (!maker || input === null || from === to || from === 'first' || to === 'last') continue;
      const set = handed.get(`${from} ${to}`) ?? new Set<string>();
      handed.set(`${from} ${to}`, set.add(input));
    }
  }
  const sums = [...handed.values()].map((names) =>
    [...names].reduce((sum, name) => sum + elementCount(typeOf(graph, name).shape), 0),
  );
  return Math.max(0, ...sums);
}
