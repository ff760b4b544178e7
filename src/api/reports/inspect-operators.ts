/**
 * @file Tables about a graph's operators: work by type, layers, fused regions, and operators that would be replicated, with the
 * reasons.
 */

import { followBatch } from '../../ir/batch.js';
import type { Factor, FactorKind } from '../../ir/factor-rule.js';
import type { Graph, Node } from '../../ir/graph.js';
import { layerClasses, operatorsByLayer } from '../../ir/layers.js';
import type { RegionKind } from '../../ir/operator.js';
import { operatorOf } from '../../ir/operator-of.js';
import { bytesOf } from '../../ir/ops/entry.js';
import { entryOf, operatorEntry, ruleOf } from '../../ir/ops/index.js';

export interface OperatorWork {
  readonly flops: number;
  /** Bytes read and written. */
  readonly bytes: number;
}

export interface OperatorRow extends OperatorWork {
  readonly op: string;
  readonly domain: string;
  readonly count: number;
}

export interface LayerRow extends OperatorWork {
  /** Name of the first layer. */
  readonly name: string;
  readonly instances: readonly string[];
  /** Number of operators in one layer. */
  readonly operators: number;
}

export interface RegionRow {
  readonly kind: RegionKind;
  readonly count: number;
  /** Number of regions that are single operators of the file; the others were recognised as patterns. */
  readonly single: number;
}

/** Operators that every rank of an axis would compute redundantly. */
export interface ReplicatedRow extends OperatorWork {
  readonly op: string;
  readonly domain: string;
  readonly count: number;
  readonly over: 'dp' | 'tp' | 'dp and tp';
  readonly why: string;
  readonly example: string;
}

/** Work of each operator according to its entry; views cost nothing. */
export function workOf(graph: Graph): ReadonlyMap<Node, OperatorWork> {
  return new Map(graph.nodes.map((node) => [node, nodeWork(graph, node)]));
}

/** Rows of operators by type, most work first. */
export function operatorRows(graph: Graph, work: ReadonlyMap<Node, OperatorWork>): readonly OperatorRow[] {
  const rows = new Map<string, OperatorRow>();
  for (const node of graph.nodes) {
    const key = `${node.domain}:${node.op}`;
    const { flops, bytes } = work.get(node) ?? NO_WORK;
    const row = rows.get(key) ?? { op: node.op, domain: node.domain, count: 0, ...NO_WORK };
    rows.set(key, { ...row, count: row.count + 1, flops: row.flops + flops, bytes: row.bytes + bytes });
  }
  return [...rows.values()].sort(
    (a, b) => b.flops - a.flops || b.bytes - a.bytes || b.count - a.count || order(a.op, b.op),
  );
}

/** Repeated layers: layers of equal structure share a row, in the order of the graph. */
export function layerRows(graph: Graph, work: ReadonlyMap<Node, OperatorWork>): readonly LayerRow[] {
  const layers = operatorsByLayer(graph.nodes);
  return layerClasses(graph, () => null).map(({ name, instances }) => {
    const nodes = layers.get(name) ?? [];
    const works = nodes.map((node) => work.get(node) ?? NO_WORK);
    const sum = (of: keyof OperatorWork) => works.reduce((all, own) => all + own[of], 0);
    return { name, instances, operators: nodes.length, flops: sum('flops'), bytes: sum('bytes') };
  });
}

export function regionRows(graph: Graph): readonly RegionRow[] {
  const rows = new Map<RegionKind, { count: number; single: number }>();
  for (const node of graph.nodes) {
    const kind = entryOf(node.op, node.domain)?.region;
    if (!kind) continue;
    const row = rows.get(kind) ?? { count: 0, single: 0 };
    rows.set(kind, { count: row.count + 1, single: row.single + (node.body === null ? 1 : 0) });
  }
  return [...rows].map(([kind, row]) => ({ kind, ...row })).sort((a, b) => order(a.kind, b.kind));
}

/**
 * Operators that cannot be sharded by dp (along the batch) or by tp (along any other dimension), with the reason; most work
 * first. Views and operators on single elements are left out: sharding them saves nothing.
 */
export function replicatedRows(graph: Graph, work: ReadonlyMap<Node, OperatorWork>): readonly ReplicatedRow[] {
  const marks = followBatch(graph);
  const hasBatch = marks.size !== null && marks.size > 1;
  const rows = new Map<string, ReplicatedRow>();
  for (const node of graph.nodes) {
    const { flops, bytes } = work.get(node) ?? NO_WORK;
    if (flops === 0 && bytes === 0) continue;
    const { factors } = ruleOf(operatorOf(graph, node));
    const sized = [...factors.values()].filter(({ size }) => size > 1);
    if (sized.length === 0) continue;
    const batch = marks.factorMarks(node);
    const [own, others] = [sized.filter(({ name }) => batch.has(name)), sized.filter(({ name }) => !batch.has(name))];
    const dp = hasBatch ? obstacle(node, own, 'it does not depend on the batch') : null;
    const tp = obstacle(node, others, 'the batch is its only dimension');
    if (dp === null && tp === null) continue;
    const over = dp !== null && tp !== null ? 'dp and tp' : dp !== null ? 'dp' : 'tp';
    const why = [...new Set([dp, tp].filter((reason) => reason !== null))].join('; ');
    const key = JSON.stringify([node.domain, node.op, over, why]);
    const row = rows.get(key) ?? {
      op: node.op,
      domain: node.domain,
      over,
      why,
      example: node.name,
      count: 0,
      ...NO_WORK,
    };
    rows.set(key, { ...row, count: row.count + 1, flops: row.flops + flops, bytes: row.bytes + bytes });
  }
  return [...rows.values()].sort(
    (a, b) => b.flops - a.flops || b.bytes - a.bytes || order(a.op, b.op) || order(a.why, b.why),
  );
}

const NO_WORK: OperatorWork = { flops: 0, bytes: 0 };

/** Kinds of factors that no axis may shard. A halo is sharded like the factor that it follows. */
const UNCUT: ReadonlySet<FactorKind> = new Set(['whole', 'halo']);

/** Why none of the factors can be sharded; null if one can, evenly or with padding. */
function obstacle(node: Node, factors: readonly Factor[], without: string): string | null {
  if (factors.length === 0) return without;
  if (factors.some(({ kind }) => !UNCUT.has(kind))) return null;
  const entry = entryOf(node.op, node.domain);
  if (!entry) return 'autopar does not know the operator';
  return (entry.note ?? 'its dimensions are not sharded').replace(/\.$/, '');
}

function nodeWork(graph: Graph, node: Node): OperatorWork {
  const operator = operatorOf(graph, node);
  const entry = operatorEntry(node);
  const { flops, bytes } = entry.work(operator);
  if (bytes !== undefined) return { flops, bytes };
  return { flops, bytes: entry.isView ? 0 : bytesOf(operator.inputs) + bytesOf(operator.outputs) };
}

function order(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
