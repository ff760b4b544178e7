/**
 * @file A graph in stages under an assignment → a sharded graph per stage. Each stage is lowered as a graph of its own; a tensor
 * that another stage reads leaves in the layout in which its first reader there wants it, so that equal ranks of the two stages
 * exchange equal blocks.
 */
import type { Graph, Node } from '../ir/graph.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { Mesh } from '../sharding-propagation/mesh.js';
import type { Redistributor } from '../sharding-propagation/redistribution.js';
import type { StageMeshes } from '../sharding-propagation/stage-meshes.js';
import type { Assignment, Reader, View } from './assignment.js';
import {
  type CutGraph,
  cutStages,
  type StageGraph,
  type StagePlace,
  stageOfOperators,
  type Transfer,
} from './cut-stages.js';
import { partition } from './partition.js';
import { computeLists } from './phase-lists.js';
import { type PipelineStage, resultsOf, type ShardedGraph, type StageTransfer } from './sharded-graph.js';

/** How a graph is laid on the stages of a pipeline. */
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
 * @throws Error (a fault of ours) where the assignment is illegal or incomplete
 */
export function lowerStages(
  graph: Graph,
  assignment: Assignment,
  redistributor: Redistributor,
  layout: PipelineLayout,
): readonly LoweredStage[] {
  const cut = cutStages(graph, layout.placeOf, layout.stages);
  const layouts = new Map<string, Layout>();
  for (const transfer of cut.transfers)
    if (!layouts.has(transfer.tensor)) layouts.set(transfer.tensor, sentAs(transfer, assignment, cut));
  const stages = cut.stages.map((stage, index): Unconnected => {
    const own = ofStage(stage, index, assignment, cut, layouts);
    const mesh = layout.meshes?.stages[index] ?? assignment.mesh;
    const sharded = partition(stage.graph, { ...own, mesh }, redistributor);
    return { graph: stage.graph, sharded, pipeline: pipelineOf(stage, index, layout) };
  });
  return connected(stages, cut.transfers, graph);
}

/**
 * The layout in which a tensor goes from stage to stage: that of the view of the graph's output, or of what leaves the stage;
 * else whole values, laid as the first receiver's first reader wants them.
 */
function sentAs({ tensor, to, when }: Transfer, assignment: Assignment, { stages }: CutGraph): Layout {
  const rest = when === 'begin' ? assignment.inputs.get(tensor) : undefined;
  if (rest) return rest;
  const there = new Set(stages[to]?.graph.nodes.map(({ name }) => name));
  const views = assignment.views.filter((view) => view.tensor === tensor);
  const wanted =
    views.find(({ readers }) => readers.some(({ kind }) => kind === 'output')) ??
    views.find(({ readers }) => readers.some(({ kind, name }) => kind === 'operator' && there.has(name)));
  if (!wanted) throw new Error(`stage ${to} receives ${tensor}, which nothing there reads`);
  return { ...wanted.layout, partial: [] };
}

/** What of an assignment a stage obeys. */
function ofStage(
  { graph }: StageGraph,
  index: number,
  assignment: Assignment,
  { transfers }: CutGraph,
  layouts: ReadonlyMap<string, Layout>,
): Assignment {
  const here = new Set(graph.nodes.map(({ name }) => name));
  const given = new Set(graph.outputs);
  const sent = new Set(transfers.flatMap(({ tensor, from }) => (from === index ? [tensor] : [])));
  // What is sent is brought into its layout when it is made, whoever else reads it so.
  const inTurn = ({ kind }: Reader) => (kind === 'output' ? 0 : 1);
  const views: View[] = assignment.views.flatMap((view) => {
    const own = sent.has(view.tensor) ? view.readers.toSorted((a, b) => inTurn(a) - inTurn(b)) : view.readers;
    const readers = own.filter(({ kind, name }) => (kind === 'operator' ? here.has(name) : given.has(name)));
    return readers.length > 0 ? [{ ...view, readers }] : [];
  });
  const seen = new Set(
    views.flatMap(({ readers }) => readers.flatMap(({ kind, name }) => (kind === 'output' ? [name] : []))),
  );
  for (const { tensor, from, when } of transfers) {
    const layout = layouts.get(tensor);
    if (from !== index || (when === 'begin' && assignment.inputs.has(tensor)) || seen.has(tensor) || !layout) continue;
    seen.add(tensor);
    views.push({ tensor, readers: [{ kind: 'output', name: tensor, operand: 0 }], layout });
  }
  const received = transfers.filter(({ to }) => to === index).map(({ tensor }) => tensor);
  const inputs = new Map([...assignment.inputs].filter(([name]) => graph.inputs.includes(name)));
  for (const name of received) inputs.set(name, layouts.get(name) as Layout);
  return { ...assignment, inputs, views };
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
  return { chunks: count, parts, chunkOf, splitsBackward };
}

/** The sharded graphs with their transfers beside what the user feeds and is given. */
function connected(
  stages: readonly Unconnected[],
  transfers: readonly Transfer[],
  whole: Graph,
): readonly LoweredStage[] {
  const asked = new Set(whole.outputs);
  const ends = transfers.map((transfer, order) => {
    const sender = stages[transfer.from] as Unconnected;
    const { tensor = transfer.tensor } = sender.sharded.outputs.find(({ output }) => output === transfer.tensor) ?? {};
    const list = transfer.when === 'micro' ? makingList(sender, tensor) : transfer.when;
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

/** The list of instructions that makes a tensor of a stage. */
function makingList({ sharded, pipeline }: Unconnected, tensor: string): string {
  const maker = sharded.nodes.find((node) => resultsOf(node).includes(tensor));
  const list = maker && computeLists(pipeline).find(({ includes }) => includes(maker));
  if (!list) throw new Error(`${tensor} is sent in every micro-batch, and no list of the stage makes it`);
  return list.phase;
}

/** The sharded graph of a step that has one stage. @throws Error (a fault of ours) for a pipeline */
export function onlyStage(lowered: readonly LoweredStage[]): ShardedGraph {
  const [first, ...others] = lowered;
  if (first && others.length === 0) return first.sharded;
  throw new Error(`one stage is expected, and there are ${lowered.length}`);
}
