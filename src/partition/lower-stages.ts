/**
 * @file A graph in stages under an assignment → a sharded graph per stage. Each stage is lowered as a graph of its own; a tensor
 * that another stage reads is sent in the layout that its first reader there requires, so that equal ranks of the two stages
 * have equal shards.
 */
import { type Graph, isOnceAStep, type Node } from '../ir/graph.js';
import { appendTo, groupBy } from '../ir/group-by.js';
import { makersOf } from '../ir/makers-and-readers.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Resharder } from '../sharding-propagation/resharding.js';
import type { StageMeshes } from '../sharding-propagation/stage-meshes.js';
import type { Assignment, SharedReshard, TensorReader } from './assignment.js';
import {
  type CutGraph,
  type CutTransfer,
  cutStages,
  type StageGraph,
  type StagePlace,
  stageOfOperators,
} from './cut-stages.js';
import { partition } from './partition.js';
import { phaseOfNode } from './program-phases.js';
import { type PipelineStage, resultsOf, type ShardedGraph, type StageTransfer } from './sharded-graph.js';

/** How a graph is placed on the stages of a pipeline. */
export interface PipelineLayout {
  readonly stages: number;
  /** Chunks of each stage. */
  readonly chunks: number;
  /** Whether the schedule runs gradients of weights apart. */
  readonly splitsBackward: boolean;
  /** By forward operator. */
  readonly placeOf: ReadonlyMap<string, StagePlace>;
  /** The meshes of stages where they differ; left out where all have one. */
  readonly meshes?: StageMeshes;
}

/** One stage: the unsharded graph of its operators, and that lowered. */
export interface LoweredStage {
  readonly graph: Graph;
  readonly sharded: ShardedGraph;
}

/**
 * Lowers a graph whose accumulators are apart (`accumulatedApart`) stage by stage, each on its mesh.
 * @throws Error (internal error) where the assignment is illegal or incomplete
 */
export function lowerStages(
  graph: Graph,
  assignment: Assignment,
  resharder: Resharder,
  layout: PipelineLayout,
): readonly LoweredStage[] {
  const cut = cutStages(graph, layout.placeOf, layout.stages);
  const stagesOf = new Map<string, number[]>();
  for (const [index, stage] of cut.stages.entries())
    for (const { name } of stage.graph.nodes) appendTo(stagesOf, name, index);
  const reshardsOf = groupBy(assignment.sharedReshards, ({ tensor }) => tensor);
  const layouts = new Map<string, Layout>();
  for (const transfer of cut.transfers)
    if (!layouts.has(transfer.tensor))
      layouts.set(transfer.tensor, sentAs(transfer, assignment, reshardsOf.get(transfer.tensor) ?? [], stagesOf));
  const reshards = reshardsOfStages(assignment, cut, stagesOf);
  const stages = cut.stages.map((stage, index): Unconnected => {
    const own = ofStage(stage, index, { ...assignment, sharedReshards: reshards[index] ?? [] }, cut, layouts);
    const mesh = layout.meshes?.stages[index] ?? assignment.mesh;
    const sharded = partition(stage.graph, { ...own, mesh }, resharder, graph);
    return { graph: stage.graph, sharded, pipeline: pipelineOf(stage, index, layout) };
  });
  return connected(stages, cut.transfers, graph);
}

/**
 * The layout in which a tensor is sent from stage to stage: that of the reshard of the graph's output, or of the stage's output;
 * else whole values, in the layout that the first receiver's first reader requires.
 */
function sentAs(
  { tensor, to, when }: CutTransfer,
  { inputs }: Assignment,
  reshards: readonly SharedReshard[],
  stagesOf: ReadonlyMap<string, readonly number[]>,
): Layout {
  const rest = when === 'begin' ? inputs.get(tensor) : undefined;
  if (rest) return rest;
  const isThere = ({ kind, name }: TensorReader) => kind === 'operator' && stagesOf.get(name)?.includes(to) === true;
  const wanted =
    reshards.find(({ readers }) => readers.some(({ kind }) => kind === 'output')) ??
    reshards.find(({ readers }) => readers.some(isThere));
  if (!wanted) throw new Error(`stage ${to} receives ${tensor}, which no operator of the stage reads`);
  return { ...wanted.layout, partial: [] };
}

/** By stage the reshards of its readers, each with those alone. */
function reshardsOfStages(
  { sharedReshards }: Assignment,
  { stages, transfers }: CutGraph,
  stagesOf: ReadonlyMap<string, readonly number[]>,
): readonly (readonly SharedReshard[])[] {
  const given = stages.map(({ graph }) => new Set(graph.outputs));
  const sent = stages.map(
    (_, index) => new Set(transfers.flatMap(({ tensor, from }) => (from === index ? tensor : []))),
  );
  // A sent tensor is resharded to its layout when it is computed, whoever else reads it in that layout.
  const inTurn = ({ kind }: TensorReader) => (kind === 'output' ? 0 : 1);
  const found = stages.map((): SharedReshard[] => []);
  for (const reshard of sharedReshards) {
    const readersIn = new Map<number, TensorReader[]>();
    for (const reader of reshard.readers) {
      const { kind, name } = reader;
      const there =
        kind === 'operator' ? stagesOf.get(name) : given.flatMap((own, index) => (own.has(name) ? index : []));
      for (const index of there ?? []) {
        appendTo(readersIn, index, reader);
      }
    }
    for (const [index, readers] of readersIn) {
      if (sent[index]?.has(reshard.tensor)) readers.sort((a, b) => inTurn(a) - inTurn(b));
      found[index]?.push({ ...reshard, readers });
    }
  }
  return found;
}

/** The part of an assignment that applies to a stage; the reshards of `assignment` are the stage's own. */
function ofStage(
  { graph }: StageGraph,
  index: number,
  assignment: Assignment,
  { transfers }: CutGraph,
  layouts: ReadonlyMap<string, Layout>,
): Assignment {
  const sharedReshards = [...assignment.sharedReshards];
  const seen = new Set(
    sharedReshards.flatMap(({ readers }) => readers.flatMap(({ kind, name }) => (kind === 'output' ? [name] : []))),
  );
  for (const { tensor, from, when } of transfers) {
    const layout = layouts.get(tensor);
    if (from !== index || (when === 'begin' && assignment.inputs.has(tensor)) || seen.has(tensor) || !layout) continue;
    seen.add(tensor);
    sharedReshards.push({ tensor, readers: [{ kind: 'output', name: tensor, operand: 0 }], layout });
  }
  const received = transfers.filter(({ to }) => to === index).map(({ tensor }) => tensor);
  const fed = new Set(graph.inputs);
  const inputs = new Map([...assignment.inputs].filter(([name]) => fed.has(name)));
  for (const name of received) inputs.set(name, layouts.get(name) as Layout);
  return { ...assignment, inputs, sharedReshards };
}

/** By operator the mesh of its stage; null where all stages have one. */
export function meshOfOperators(
  graph: Graph,
  { meshes, placeOf, stages }: PipelineLayout,
): ((node: Pick<Node, 'name'>) => Mesh) | null {
  if (!meshes) return null;
  const stageOf = stageOfOperators(cutStages(graph, placeOf, stages));
  return ({ name }) => meshes.stages[stageOf.get(name) ?? 0] as Mesh;
}

/** A stage whose transfers are inputs and outputs as yet. */
interface Unconnected extends LoweredStage {
  readonly pipeline: Omit<PipelineStage, 'sends' | 'receives'>;
}

function pipelineOf(
  { graph, chunks }: StageGraph,
  index: number,
  { stages, chunks: count, splitsBackward, placeOf }: PipelineLayout,
): Unconnected['pipeline'] {
  const chunkOf = new Map(chunks);
  for (const node of graph.nodes)
    for (const name of node.outputs) if (name !== null) chunkOf.set(name, chunks.get(node.name) ?? 0);
  const parts = Array.from({ length: count }, (_, chunk) => chunk * stages + index);
  for (const { stage, chunk, part } of placeOf.values()) if (stage === index && part !== undefined) parts[chunk] = part;
  return { stages, chunks: count, parts, chunkOf, splitsBackward };
}

/** The sharded graphs with their transfers beside the inputs and outputs of the user. */
function connected(
  stages: readonly Unconnected[],
  transfers: readonly CutTransfer[],
  whole: Graph,
): readonly LoweredStage[] {
  const asked = new Set(whole.outputs);
  const locals = stages.map(({ sharded }) => new Map(sharded.outputs.map(({ output, tensor }) => [output, tensor])));
  const listsOf = stages.map(makingLists);
  const ends = transfers.map((transfer, order) => {
    const tensor = locals[transfer.from]?.get(transfer.tensor) ?? transfer.tensor;
    const list = transfer.when === 'micro' ? listsOf[transfer.from]?.(tensor) : transfer.when;
    if (list === undefined)
      throw new Error(`${tensor} is sent in every micro-batch, and no list of the stage makes it`);
    return { ...transfer, local: tensor, list, order };
  });
  return stages.map(({ graph, sharded, pipeline }, index) => {
    const sends = ends
      .filter(({ from }) => from === index)
      .map(
        ({ tensor, local, to, when, list, order }): StageTransfer => ({
          ...{ name: tensor, tensor: local, stage: to },
          ...{ when, list, order },
        }),
      );
    const receives = ends
      .filter(({ to }) => to === index)
      .map(
        ({ tensor, from, when, list, order }): StageTransfer => ({
          ...{ name: tensor, tensor, stage: from },
          ...{ when, list, order },
        }),
      );
    const received = new Set(receives.map(({ name }) => name));
    return {
      graph,
      sharded: {
        ...sharded,
        inputs: sharded.inputs.filter(({ input }) => !received.has(input)),
        outputs: sharded.outputs.filter(({ output }) => asked.has(output)),
        pipeline: { ...pipeline, sends, receives },
      },
    };
  });
}

/** The list of instructions that makes a tensor of a stage for each micro-batch; undefined where none does. */
function makingLists({ sharded, pipeline }: Unconnected): (tensor: string) => string | undefined {
  const makers = makersOf(sharded.nodes, resultsOf);
  return (tensor) => {
    const maker = makers.get(tensor);
    return maker && !isOnceAStep(maker.phase) ? phaseOfNode(maker, { pipeline }) : undefined;
  };
}

/** The sharded graph of a step that has one stage. @throws Error (internal error) for a pipeline */
export function onlyStage(lowered: readonly LoweredStage[]): ShardedGraph {
  const [first, ...others] = lowered;
  if (first && others.length === 0) return first.sharded;
  throw new Error(`one stage is expected, and there are ${lowered.length}`);
}
