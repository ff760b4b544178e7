/**
 * @file What data-parallel ranks keep of parameters, optimizer state and accumulated gradients, and the ZeRO level that it
 * amounts to: read off the lowered stages, whoever chose the layouts.
 */
import { elementCount, type Graph } from '../../ir/graph.js';
import { isAccumulator } from '../../ir/ops/accumulate.js';
import { heldWeights } from '../../ir/passes/held-weights.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { localBytes } from '../../partition/partition.js';
import type { ShardedTensor } from '../../partition/sharded-graph.js';
import { dataParts, type KeptPart, keptState, usedDataAxes, type ZeroLevel, zeroCuts } from '../../search/zero.js';
import type { Mesh } from '../../sharding-propagation/mesh.js';
import type { Plan } from '../../strategy/plan.js';

/** One part, of one rank of each stage. */
export interface Kept {
  readonly bytes: number;
  /** What it would be if the data axes cut nothing of it. */
  readonly wholeBytes: number;
}

export interface KeptState {
  /** The ZeRO level; null where only some tensors of a part are cut. */
  readonly level: ZeroLevel | null;
  /** The data axes. */
  readonly axes: readonly string[];
  /** Accumulators are there where a step has several micro-batches. */
  readonly parts: Readonly<Record<KeptPart, Kept>>;
}

/** What ranks keep; null without data parallelism, or where nothing is kept but weights as they are read. */
export function keptByRanks(
  lowered: readonly LoweredStage[],
  { requested, training }: Pick<Plan, 'requested' | 'training'>,
): KeptState | null {
  const mesh = lowered[0]?.sharded.mesh;
  const axes = mesh ? usedDataAxes(mesh) : [];
  const holds = training !== null || lowered.some(({ graph }) => heldWeights(graph).size > 0);
  if (!mesh || !holds || axes.length === 0) return null;
  const tensors = keptTensors(lowered);
  const isLike = (level: ZeroLevel) =>
    (Object.keys(tensors) as KeptPart[]).every((part) =>
      tensors[part].every((tensor) => isAsLevelHasIt(tensor, mesh, zeroCuts(part, level))),
    );
  const levels = ([0, 1, 2, 3] as const).filter(isLike);
  const asked = levels.find((level) => level === requested?.zero);
  const of = (part: KeptPart): Kept => ({
    bytes: tensors[part].reduce((sum, tensor) => sum + localBytes(tensor), 0),
    wholeBytes: tensors[part].reduce((sum, tensor) => sum + localBytes(tensor) * dataParts(tensor.layout, mesh), 0),
  });
  return {
    level: asked ?? levels[0] ?? null,
    axes,
    parts: { state: of('state'), accumulator: of('accumulator'), parameter: of('parameter') },
  };
}

function keptTensors(lowered: readonly LoweredStage[]): Readonly<Record<KeptPart, readonly ShardedTensor[]>> {
  const tensors: Record<KeptPart, ShardedTensor[]> = { state: [], accumulator: [], parameter: [] };
  for (const { graph, sharded } of lowered) {
    for (const [name, part] of keptNames(graph)) {
      const tensor = sharded.tensors.get(name);
      if (tensor) tensors[part].push(tensor);
    }
  }
  return tensors;
}

function keptNames(graph: Graph): readonly (readonly [string, KeptPart])[] {
  const sums = graph.nodes.filter(isAccumulator).flatMap(({ outputs }) => outputs.filter((name) => name !== null));
  return [...keptState(graph), ...sums.map((name) => [name, 'accumulator'] as const)];
}

/** A tensor that no dimension of can be cut is as every level has it. */
function isAsLevelHasIt({ layout, localShape }: ShardedTensor, mesh: Mesh, isCut: boolean): boolean {
  const parts = dataParts(layout, mesh);
  if (!isCut) return parts === 1;
  return parts > 1 || localShape.every((size) => size < 2) || elementCount(localShape) < smallestCut(mesh);
}

function smallestCut(mesh: Mesh): number {
  const data = new Set(usedDataAxes(mesh));
  return Math.max(...mesh.axes.filter(({ name }) => data.has(name)).map(({ size }) => size));
}
