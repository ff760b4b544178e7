/**
 * @file What a plan looks like to a person: its heaviest operators and its communication.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { sendSeconds } from '../../cost-model/predict-stages.js';
import { priceNode } from '../../cost-model/price.js';
import type { Assignment } from '../../partition/assignment.js';
import { runsInStep } from '../../partition/except-last.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { localBytes } from '../../partition/partition.js';
import type { ShardedGraph, ShardedNode } from '../../partition/sharded-graph.js';
import { fileLayout } from '../../sharding-propagation/file-form.js';
import { layoutText } from '../../sharding-propagation/layout-text.js';
import { deviceCount, STAGE_AXIS } from '../../sharding-propagation/mesh.js';
import { namesOn } from '../../sharding-propagation/stage-meshes.js';
import { fileTensors } from '../models/file-tensors.js';

export interface HeavyOperator {
  readonly operator: string;
  /** Operators of equal layers on the same stage that this one stands for, itself included. */
  readonly count: number;
  readonly op: string;
  /** Factors and their axes: `n: tp, b: dp`. */
  readonly strategy: string;
  /** Layouts of operands and results: `[dp, -] · [-, tp] → [dp, tp]`. */
  readonly layouts: string;
  /** Of all of them. */
  readonly seconds: number;
}

export interface Communication {
  readonly label: string;
  /** What corresponds to it in the first of equal layers; itself where there are none. */
  readonly like: string;
  readonly kind: string;
  readonly axes: readonly string[];
  /** Bytes of the larger of operand and result on one rank. */
  readonly bytes: number;
  readonly seconds: number;
}

/** By operator of a layer that equals an earlier one: the one in that place of the first such layer. */
export type LikeOperators = ReadonlyMap<string, string>;

/** The operators that a rank spends most time on, heaviest first; those of equal layers on a stage are one. */
export function heaviestOf(
  lowered: readonly LoweredStage[],
  assignment: Assignment,
  cluster: Cluster,
  like: LikeOperators = new Map(),
  most = 8,
): readonly HeavyOperator[] {
  const all = lowered.flatMap((stage) => heaviestOfStage(stage, assignment, cluster, like, most));
  return all.sort((a, b) => b.seconds - a.seconds || (a.operator < b.operator ? -1 : 1)).slice(0, most);
}

function heaviestOfStage(
  { graph, sharded }: LoweredStage,
  assignment: Assignment,
  cluster: Cluster,
  like: LikeOperators,
  most: number,
): readonly HeavyOperator[] {
  const seconds = new Map<string, number>();
  const alike = new Map<string, Set<string>>();
  const main = new Map<string, ShardedNode>();
  const fileOf = fileTensors(graph, sharded);
  const byName = new Map(graph.nodes.map((node) => [node.name, node]));
  const runsOf = runsInStep(sharded);
  for (const node of sharded.nodes) {
    if (node.kind !== 'compute') continue;
    const price = runsOf(node) * priceNode(node, sharded, cluster);
    const leader = like.get(node.origin) ?? node.origin;
    const members = alike.get(leader) ?? new Set([node.origin]);
    alike.set(leader, members.add(node.origin));
    seconds.set(leader, (seconds.get(leader) ?? 0) + price / 1e9);
    if (node.op === byName.get(node.origin)?.op) main.set(node.origin, node);
  }
  const heaviest = [...seconds].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, most);
  return heaviest.map(([leader, time]) => {
    // On a later stage the first layer of a class is not there.
    const members = alike.get(leader) ?? new Set([leader]);
    const [operator = leader] = members;
    const strategy = assignment.strategies.get(byName.get(operator)?.group ?? operator);
    const node = main.get(operator);
    const layout = (name: string | null) => {
      const tensor = name === null ? undefined : sharded.tensors.get(name);
      return tensor ? [layoutText(fileLayout(tensor.layout, fileOf.get(name ?? '') ?? null), sharded.mesh)] : [];
    };
    return {
      operator,
      count: members.size,
      op: byName.get(operator)?.op ?? '',
      strategy: Object.entries(strategy?.axes ?? {})
        .map(([factor, axes]) => `${factor}: ${namesOn(sharded.mesh, axes).join(',')}`)
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
export function communicationOf(
  lowered: readonly LoweredStage[],
  cluster: Cluster,
  like: LikeOperators = new Map(),
): readonly Communication[] {
  return lowered
    .flatMap(({ sharded }) => [...collectivesOf(sharded, cluster), ...sendsOf(sharded, lowered.length, cluster)])
    .map((each) => ({ ...each, like: like.get(each.label) ?? each.label }));
}

function sendsOf(sharded: ShardedGraph, stages: number, cluster: Cluster): readonly Omit<Communication, 'like'>[] {
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

function collectivesOf(sharded: ShardedGraph, cluster: Cluster): readonly Omit<Communication, 'like'>[] {
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
        axes: namesOn(sharded.mesh, node.axes),
        bytes: Math.max(...bytes),
        seconds: (runsOf(node) * priceNode(node, sharded, cluster)) / 1e9,
      },
    ];
  });
}
