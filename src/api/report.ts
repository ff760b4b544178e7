/**
 * @file What a plan looks like to a person: its heaviest operators and its communication.
 */
import type { Cluster } from '../cost-model/cluster.js';
import { sendSeconds } from '../cost-model/predict-stages.js';
import { priceNode } from '../cost-model/price.js';
import type { Assignment } from '../partition/assignment.js';
import { runsInStep } from '../partition/except-last.js';
import type { LoweredStage } from '../partition/lower-stages.js';
import { localBytes } from '../partition/partition.js';
import type { ShardedGraph, ShardedNode } from '../partition/sharded-graph.js';
import { fileLayout } from '../sharding-propagation/file-form.js';
import { layoutText } from '../sharding-propagation/layout-text.js';
import { deviceCount, STAGE_AXIS } from '../sharding-propagation/mesh.js';
import { nameOn } from '../sharding-propagation/stage-meshes.js';
import { fileTensors } from './file-tensors.js';

export interface HeavyOperator {
  readonly operator: string;
  readonly op: string;
  /** Factors and their axes: `n: tp, b: dp`. */
  readonly strategy: string;
  /** Layouts of operands and results: `[dp, -] · [-, tp] → [dp, tp]`. */
  readonly layouts: string;
  readonly seconds: number;
}

export interface Communication {
  readonly label: string;
  readonly kind: string;
  readonly axes: readonly string[];
  /** Bytes of the larger of operand and result on one rank. */
  readonly bytes: number;
  readonly seconds: number;
}

/** The operators that a rank spends most time on, heaviest first. */
export function heaviestOf(
  lowered: readonly LoweredStage[],
  assignment: Assignment,
  cluster: Cluster,
  count = 8,
): readonly HeavyOperator[] {
  const all = lowered.flatMap((stage) => heaviestOfStage(stage, assignment, cluster, count));
  return all.sort((a, b) => b.seconds - a.seconds || (a.operator < b.operator ? -1 : 1)).slice(0, count);
}

function heaviestOfStage(
  { graph, sharded }: LoweredStage,
  assignment: Assignment,
  cluster: Cluster,
  count: number,
): readonly HeavyOperator[] {
  const seconds = new Map<string, number>();
  const main = new Map<string, ShardedNode>();
  const fileOf = fileTensors(graph, sharded);
  const byName = new Map(graph.nodes.map((node) => [node.name, node]));
  const runsOf = runsInStep(sharded);
  for (const node of sharded.nodes) {
    if (node.kind !== 'compute') continue;
    const price = runsOf(node) * priceNode(node, sharded, cluster);
    seconds.set(node.origin, (seconds.get(node.origin) ?? 0) + price / 1e9);
    if (node.op === byName.get(node.origin)?.op) main.set(node.origin, node);
  }
  const heaviest = [...seconds].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, count);
  return heaviest.map(([operator, time]) => {
    const strategy = assignment.strategies.get(byName.get(operator)?.group ?? operator);
    const node = main.get(operator);
    const layout = (name: string | null) => {
      const tensor = name === null ? undefined : sharded.tensors.get(name);
      return tensor ? [layoutText(fileLayout(tensor.layout, fileOf.get(name ?? '') ?? null), sharded.mesh)] : [];
    };
    return {
      operator,
      op: byName.get(operator)?.op ?? '',
      strategy: Object.entries(strategy?.axes ?? {})
        .map(([factor, axes]) => `${factor}: ${axes.map((axis) => nameOn(sharded.mesh, axis)).join(',')}`)
        .join(', '),
      layouts:
        node?.kind === 'compute'
          ? `${node.inputs.flatMap(layout).join(' · ')} → ${node.outputs.flatMap(layout).join(' · ')}`
          : '',
      seconds: time,
    };
  });
}

/** Every collective in the order of the sharded graph, then what is sent to other stages; stage by stage. */
export function communicationOf(lowered: readonly LoweredStage[], cluster: Cluster): readonly Communication[] {
  return lowered.flatMap(({ sharded }) => [
    ...collectivesOf(sharded, cluster),
    ...sendsOf(sharded, lowered.length, cluster),
  ]);
}

function sendsOf(sharded: ShardedGraph, stages: number, cluster: Cluster): readonly Communication[] {
  return (sharded.pipeline?.sends ?? []).map(({ name, tensor, when }) => {
    const type = sharded.tensors.get(tensor);
    const bytes = type ? localBytes(type) : 0;
    const runs = when === 'micro' ? (sharded.microBatches?.count ?? 1) : 1;
    return {
      ...{ label: name, kind: 'send', axes: [STAGE_AXIS], bytes },
      seconds: runs * sendSeconds(bytes, stages, deviceCount(sharded.mesh), cluster),
    };
  });
}

function collectivesOf(sharded: ShardedGraph, cluster: Cluster): readonly Communication[] {
  const runsOf = runsInStep(sharded);
  return sharded.nodes.flatMap((node) => {
    if (node.kind !== 'communicate') return [];
    const bytes = [node.input, node.output].map((name) => {
      const tensor = sharded.tensors.get(name);
      return tensor ? localBytes(tensor) : 0;
    });
    return [
      {
        label: node.origin,
        kind: node.collective.kind,
        axes: node.axes.map((axis) => nameOn(sharded.mesh, axis)),
        bytes: Math.max(...bytes),
        seconds: (runsOf(node) * priceNode(node, sharded, cluster)) / 1e9,
      },
    ];
  });
}
