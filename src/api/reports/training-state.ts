/**
 * @file Parameters, optimizer state and accumulated gradients that data-parallel ranks hold, and the ZeRO level that this
 * amounts to: read off the lowered stages, whoever chose the layouts.
 */
import { elementCount, type Graph } from '../../ir/graph.js';
import { isAccumulator } from '../../ir/ops/accumulate.js';
import { stateWeights } from '../../ir/passes/state-weights.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { localBytes } from '../../partition/partition.js';
import type { ShardedTensor } from '../../partition/sharded-graph.js';
import { expertOperators } from '../../search/factor-families.js';
import {
  dataParts,
  type StatePart,
  tensorsOfExperts,
  updatedState,
  usedDataAxes,
  type ZeroLevel,
  zeroOf,
} from '../../search/zero.js';
import type { Mesh, SubAxis } from '../../sharding-propagation/mesh.js';
import type { Plan } from '../../strategy/plan.js';
import type { PeakMemory } from './peak-memory.js';

/** One part of the state, as one rank holds it. */
export interface StatePartBytes {
  readonly bytes: number;
  /** Bytes without sharding over the data axes; spreading experts over ranks does not count as such sharding. */
  readonly wholeBytes: number;
}

export interface TrainingStateBytes {
  /** The ZeRO level; null where only some tensors of a part are sharded. */
  readonly level: ZeroLevel | null;
  /** The data axes. */
  readonly axes: readonly string[];
  /** The stage whose ranks the parts are of: the one that needs most memory. Left out without stages. */
  readonly stage?: number;
  /** Accumulators exist only where a step has several micro-batches. */
  readonly parts: Readonly<Record<StatePart, StatePartBytes>>;
}

/**
 * State that ranks hold; null without data parallelism, or if they hold only weights as they are read.
 * @param memory of each stage's ranks at their peaks
 */
export function trainingStateBytes(
  lowered: readonly LoweredStage[],
  { requested, training }: Pick<Plan, 'requested' | 'training'>,
  memory: readonly Pick<PeakMemory, 'peakBytes'>[],
): TrainingStateBytes | null {
  const mesh = lowered[0]?.sharded.mesh;
  const axes = mesh ? usedDataAxes(mesh) : [];
  const holds = training !== null || lowered.some(({ graph }) => stateWeights(graph).size > 0);
  if (!mesh || !holds || axes.length === 0) return null;
  const byStage = lowered.map(stateTensors);
  const tensors = joined(byStage);
  const partsOf = ({ layout, spread }: StateTensor) => dataParts(layout, mesh, spread);
  // A part that a level leaves free matches the level only if it is whole, unless that level was requested.
  const isLike = (level: ZeroLevel, ofFree: (tensor: StateTensor) => boolean) =>
    (Object.keys(tensors) as StatePart[]).every((part) => {
      const treatment = zeroOf(part, level);
      return tensors[part].every(treatment === 'free' ? ofFree : treatment === 'cut' ? isCut : isWhole);
    });
  const isWhole = (tensor: StateTensor) => partsOf(tensor) === 1;
  const isCut = (tensor: StateTensor) => isCutOver(tensor, mesh);
  const levels = ([0, 1, 2, 3] as const).filter((level) => isLike(level, isWhole));
  const { zero } = requested ?? {};
  const asked = zero !== undefined && isLike(zero, () => true) ? zero : undefined;
  const peaks = memory.map(({ peakBytes }) => peakBytes);
  const stage = peaks.indexOf(Math.max(...peaks));
  const of = (part: StatePart): StatePartBytes => {
    const held = byStage[stage]?.[part] ?? [];
    return {
      bytes: held.reduce((sum, tensor) => sum + localBytes(tensor), 0),
      wholeBytes: held.reduce((sum, tensor) => sum + localBytes(tensor) * partsOf(tensor), 0),
    };
  };
  return {
    level: asked ?? levels[0] ?? null,
    axes,
    ...(lowered.length > 1 ? { stage } : {}),
    parts: { state: of('state'), accumulator: of('accumulator'), parameter: of('parameter') },
  };
}

interface StateTensor extends ShardedTensor {
  /** The expert axes, for tensors that experts own. */
  readonly spread: readonly SubAxis[];
}

type StateTensors = Readonly<Record<StatePart, readonly StateTensor[]>>;

function stateTensors({ graph, sharded }: LoweredStage): StateTensors {
  const tensors: Record<StatePart, StateTensor[]> = { state: [], accumulator: [], parameter: [] };
  const { experts = [] } = sharded.mesh;
  const ofExperts = experts.length > 0 ? tensorsOfExperts(graph, expertOperators(graph)) : new Set<string>();
  for (const [name, part] of stateNames(graph)) {
    const tensor = sharded.tensors.get(name);
    if (tensor) tensors[part].push({ ...tensor, spread: ofExperts.has(name) ? experts : [] });
  }
  return tensors;
}

function joined(stages: readonly StateTensors[]): StateTensors {
  const all = (part: StatePart) => stages.flatMap((tensors) => tensors[part]);
  return { state: all('state'), accumulator: all('accumulator'), parameter: all('parameter') };
}

function stateNames(graph: Graph): readonly (readonly [string, StatePart])[] {
  const sums = graph.nodes.filter(isAccumulator).flatMap(({ outputs }) => outputs.filter((name) => name !== null));
  return [...updatedState(graph), ...sums.map((name) => [name, 'accumulator'] as const)];
}

/** Whether the data axes shard a tensor, or none of its dimensions can be sharded. */
function isCutOver({ layout, localShape }: StateTensor, mesh: Mesh): boolean {
  const isSmall = localShape.every((size) => size < 2) || elementCount(localShape) < smallestCut(mesh);
  return isSmall || dataParts(layout, mesh) > 1;
}

function smallestCut(mesh: Mesh): number {
  const data = new Set(usedDataAxes(mesh));
  return Math.max(...mesh.axes.filter(({ name }) => data.has(name)).map(({ size }) => size));
}
