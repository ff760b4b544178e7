/**
 * @file The cost of each mesh axis: its ranks, the levels of the cluster that its groups span, the slowest link that they
 * cross, and the bytes and seconds of its communication in a step.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import { hiddenBehind } from '../../cost-model/data-overlap.js';
import { type GroupPlace, groupPlace, placeGroup } from '../../cost-model/group-place.js';
import type { ClusterLevel } from '../../cost-model/levels.js';
import { clustersOf, placeStages, sendsInStep, simulateStages } from '../../cost-model/predict-stages.js';
import { communicatedBytes, priceNode } from '../../cost-model/price.js';
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import { type GroupName, groupRuns } from '../../cost-model/step/mesh-order.js';
import type { StepPrice } from '../../cost-model/step/step-price.js';
import { runsInStep } from '../../partition/except-last.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import type { CommunicationNode, ShardedGraph } from '../../partition/sharded-graph.js';
import type { Schedule } from '../../schedule/schedule.js';
import { deviceCount, type Mesh, type MeshAxis, STAGE_AXIS } from '../../sharding-propagation/mesh.js';
import { dataAxes, EXPERTS } from '../../sharding-propagation/roles.js';

export interface AxisUse {
  /** `tp`; for collectives over several axes together `dp·tp`. */
  readonly axis: string;
  /** The stage of a lowered pipeline whose ranks the bytes are of; left out without stages. */
  readonly stage?: number;
  readonly ranks: number;
  /** Members of a group at each level where it has more than one, innermost first. */
  readonly levels: readonly { readonly level: string; readonly members: number }[];
  /** The outermost of these levels, with the bandwidth per device. Null where there is one rank. */
  readonly link: {
    readonly level: string;
    readonly bytesPerSecond: number;
    readonly latencySeconds: number;
  } | null;
  /** Bytes that one rank sends per step. */
  readonly sentBytes: number;
  /** Seconds that the step is longer by. */
  readonly seconds: number;
  /** Seconds that are overlapped with compute. */
  readonly hiddenSeconds: number;
}

interface StepAxis {
  readonly group: Exclude<GroupName, 'replicas'>;
  readonly ranks: number;
  /** The name that is shown, if it is not the group's name. */
  readonly axis?: string;
  readonly hiddenSeconds?: number;
}

/** Axes of a step that was priced without a program, from the innermost, which moves most, to the outermost. */
export function stepAxes(
  { degrees, meshOrder }: StepConfiguration,
  { bytes, parts, hidden }: Pick<StepPrice, 'bytes' | 'parts' | 'hidden'>,
  cluster: Cluster,
): readonly AxisUse[] {
  const runs = groupRuns(degrees, meshOrder);
  const { dp, sp, tp, ep, pp } = degrees;
  const { tp: tpSeconds, dp: dpSeconds } = hidden;
  const shown: readonly StepAxis[] = [
    { group: 'tp', ranks: tp, hiddenSeconds: tpSeconds },
    { group: 'sp', ranks: sp },
    { group: 'ep', ranks: ep },
    { group: 'dp', ranks: dp * sp, hiddenSeconds: dpSeconds, ...(sp > 1 ? { axis: 'dp·sp' } : {}) },
    { group: 'pp', ranks: pp },
  ];
  return shown
    .filter(({ ranks }) => ranks > 1)
    .map(({ group, axis = group, ranks, hiddenSeconds = 0 }) => ({
      axis,
      ranks,
      ...lying(groupPlace(runs[group], cluster.levels), cluster.levels),
      sentBytes: bytes[group],
      seconds: parts[group],
      hiddenSeconds,
    }));
}

/** The axes of each stage of a lowered pipeline: those of its mesh, innermost first, and the stages that its ranks send to. */
export function axesOfStages(
  stages: readonly LoweredStage[],
  schedule: Schedule,
  cluster: Cluster,
): readonly (readonly AxisUse[])[] {
  const clusters = clustersOf(stages, cluster);
  const seconds = simulateStages(stages, schedule, cluster).waitedSeconds();
  return stages.map(({ sharded }, stage) => {
    const pipeline = {
      axis: STAGE_AXIS,
      ranks: stages.length,
      ...lying(placeStages(stages.length, deviceCount(sharded.mesh), cluster), cluster.levels),
      sentBytes: sendsInStep(sharded, stages.length, cluster).reduce((sum, { bytes }) => sum + bytes, 0),
      seconds,
      hiddenSeconds: 0,
    };
    return [...planAxes(sharded, clusters[stage] as Cluster), pipeline].map((use) => ({ ...use, stage }));
  });
}

/** Axes of a lowered graph, innermost first; collectives over several axes at once are a line of their own. */
export function planAxes(graph: ShardedGraph, cluster: Cluster): readonly AxisUse[] {
  const axes = [...graph.mesh.axes].reverse().filter(({ size }) => size > 1);
  const experts = expertsAxis(graph.mesh);
  const outermost = experts && dataAxes(graph.mesh).find(({ size }) => size > 1);
  const sums = new Map<string, AxisSum>(
    axes.flatMap((axis) =>
      [...(experts && axis === outermost ? [experts] : []), axis].map((own) => [own.name, { ...NO_SUM, axes: [own] }]),
    ),
  );
  const overlap = hiddenBehind(graph, cluster);
  const runsOf = runsInStep(graph);
  for (const node of graph.nodes) {
    if (node.kind !== 'communicate') continue;
    const over =
      experts && isOfExperts(node, experts, graph.mesh)
        ? [experts]
        : axes.filter(({ subAxes }) => subAxes.some(({ name }) => node.axes.includes(name)));
    const name = over.map((axis) => axis.name).join('·');
    const sum = sums.get(name) ?? { ...NO_SUM, axes: over };
    const runs = runsOf(node);
    const nanoseconds = runs * (overlap?.joined?.get(node.name) ?? priceNode(node, graph, cluster));
    sum.bytes += runs * communicatedBytes(node, graph);
    sum.nanoseconds += nanoseconds;
    sum.hidden += nanoseconds - (overlap?.exposed.get(node.name) ?? nanoseconds);
    sums.set(name, sum);
  }
  return [...sums].map(([axis, { axes: over, bytes, nanoseconds, hidden }]) => ({
    axis,
    ranks: over.reduce((product, { size }) => product * size, 1),
    ...lying(
      placeGroup(
        graph.mesh,
        over.flatMap(({ subAxes }) => subAxes.map(({ name }) => name)),
        cluster,
      ),
      cluster.levels,
    ),
    sentBytes: bytes,
    seconds: (nanoseconds - hidden) / 1e9,
    hiddenSeconds: hidden / 1e9,
  }));
}

/** The sub-axes that shard experts, as an axis of their own; undefined where experts are whole. */
function expertsAxis({ axes, experts = [] }: Mesh): MeshAxis | undefined {
  const subAxes = axes.flatMap((axis) => axis.subAxes.filter(({ name }) => experts.includes(name)));
  return subAxes.length === 0
    ? undefined
    : { name: EXPERTS, size: subAxes.reduce((product, { size }) => product * size, 1), subAxes };
}

/** Whether ranks exchange tokens for experts. Where experts are on all data ranks, sums of gradients have the same groups. */
function isOfExperts({ axes, collective }: CommunicationNode, experts: MeshAxis, mesh: Mesh): boolean {
  const isWithin = axes.every((axis) => experts.subAxes.some(({ name }) => name === axis));
  const isAll = dataAxes(mesh).reduce((product, { size }) => product * size, 1) === experts.size;
  return isWithin && (collective.kind === 'all-to-all' || !isAll);
}

interface AxisSum {
  readonly axes: readonly MeshAxis[];
  bytes: number;
  nanoseconds: number;
  /** Nanoseconds that are overlapped with compute. */
  hidden: number;
}

const NO_SUM = { bytes: 0, nanoseconds: 0, hidden: 0 };

function lying({ members }: GroupPlace, levels: readonly ClusterLevel[]): Pick<AxisUse, 'levels' | 'link'> {
  const used = levels
    .map((level, index) => ({ level, members: members[index] ?? 1 }))
    .filter((place) => place.members > 1);
  const outermost = used.at(-1)?.level;
  return {
    levels: used.map((place) => ({ level: place.level.name, members: place.members })),
    link: outermost
      ? { level: outermost.name, bytesPerSecond: outermost.bandwidth, latencySeconds: outermost.latencySeconds }
      : null,
  };
}
