/**
 * @file Parameters, optimizer state and accumulated gradients that data-parallel ranks hold, and the ZeRO level that this
 * amounts to: read off the lowered stages, whoever chose the layouts.
 */
import { elementCount, type Graph } from '../../ir/graph.js';
import { isAccumulator } from '../../ir/ops/accumulate.js';
import { heldWeights } from '../../ir/passes/held-weights.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { localBytes } from '../../partition/partition.js';
import type { ShardedTensor } from '../../partition/sharded-graph.js';
import { expertOperators } from '../../search/factor-families.js';
import {
  dataParts,
  type KeptPart,
  keptState,
  tensorsOfExperts,
  usedDataAxes,
  type ZeroLevel,
  zeroOf,
} from '../../search/zero.js';
import type { Mesh, SubAxis } from '../../sharding-propagation/mesh.js';
import type { Plan } from '../../strategy/plan.js';

/** One part of the state, summed over one rank of each stage. */
export interface Kept {
  readonly bytes: number;
  /** Bytes without sharding over the data axes; spreading experts over ranks does not count as such sharding. */
  readonly wholeBytes: number;
}

export interface KeptState {
  /** The ZeRO level; null where only some tensors of a part are sharded. */
  readonly level: ZeroLevel | null;
  /** The data axes. */
  readonly axes: readonly string[];
  /** Accumulators exist only where a step has several micro-batches. */
  readonly parts: Readonly<Record<KeptPart, Kept>>;
}

/** State that ranks hold; null without data parallelism, or if they hold only weights as they are read. */
export function keptByRanks(
  lowered: readonly LoweredStage[],
  { requested, training }: Pick<Plan, 'requested' | 'training'>,
): KeptState | null {
  const mesh = lowered[0]?.sharded.mesh;
  const axes = mesh ? usedDataAxes(mesh) : [];
  const holds = training !== null || lowered.some(({ graph }) => heldWeights(graph).size > 0);
  if (!mesh || !holds || axes.length === 0) return null;
  const tensors = keptTensors(lowered);
  const partsOf = ({ layout, spread }: KeptTensor) => dataParts(layout, mesh, spread);
  // A part that a level leaves free matches the level only if it is whole, unless that level was requested.
  const isLike = (level: ZeroLevel, ofFree: (tensor: KeptTensor) => boolean) =>
    (Object.keys(tensors) as KeptPart[]).every((part) => {
      const kept = zeroOf(part, level);
      return tensors[part].every(kept === 'free' ? ofFree : kept === 'cut' ? isCut : isWhole);
    });
  const isWhole = (tensor: KeptTensor) => partsOf(tensor) === 1;
  const isCut = (tensor: KeptTensor) => isCutOver(tensor, mesh);
  const levels = ([0, 1, 2, 3] as const).filter((level) => isLike(level, isWhole));
  const { zero } = requested ?? {};
  const asked = zero !== undefined && isLike(zero, () => true) ? zero : undefined;
  const of = (part: KeptPart): Kept => ({
    bytes: tensors[part].reduce((sum, tensor) => sum + localBytes(tensor), 0),
    wholeBytes: tensors[part].reduce((sum, tensor) => sum + localBytes(tensor) * partsOf(tensor), 0),
  });
  return {
    level: asked ?? levels[0] ?? null,
    axes,
    parts: { state: of('state'), accumulator: of('accumulator'), parameter: of('parameter') },
  };
}

interface KeptTensor extends ShardedTensor {
  /** The expert axes, for tensors that experts own. */
  readonly spread: readonly SubAxis[];
}

function keptTensors(lowered: readonly LoweredStage[]): Readonly<Record<KeptPart, readonly KeptTensor[]>> {
  const tensors: Record<KeptPart, KeptTensor[]> = { state: [], accumulator: [], parameter: [] };
  for (const { graph, sharded } of lowered) {
    const { experts = [] } = sharded.mesh;
    const ofExperts = experts.length > 0 ? tensorsOfExperts(graph, expertOperators(graph)) : new Set<string>();
    for (const [name, part] of keptNames(graph)) {
      const tensor = sharded.tensors.get(name);
      if (tensor) tensors[part].push({ ...tensor, spread: ofExperts.has(name) ? experts : [] });
    }
  }
  return tensors;
}

function keptNames(graph: Graph): readonly (readonly [string, KeptPart])[] {
  const sums = graph.nodes.filter(isAccumulator).flatMap(({ outputs }) => outputs.filter((name) => name !== null));
  return [...keptState(graph), ...sums.map((name) => [name, 'accumulator'] as const)];
}

/** Whether the data axes shard a tensor, or none of its dimensions can be sharded. */
function isCutOver({ layout, localShape }: KeptTensor, mesh: Mesh): boolean {
  const isSmall = localShape.every((size) => size < 2) || elementCount(localShape) < smallestCut(mesh);
  return isSmall || dataParts(layout, mesh) > 1;
}

function smallestCut(mesh: Mesh): number {
  const data = new Set(usedDataAxes(mesh));
  return Math.max(...mesh.axes.filter(({ name }) => data.has(name)).map(({ size }) => size));
}
