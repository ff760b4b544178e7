/**
 * @file A graph in stages under an assignment → a sharded graph per stage. Each stage is lowered as a graph of its own; a tensor
 * that another stage reads leaves in the layout in which its first reader there wants it, so that equal ranks of the two stages
 * exchange equal blocks.
 */
import type { Graph } from '../ir/graph.js';
import type { Layout } from '../sharding-propagation/layout.js';
import type { Redistributor } from '../sharding-propagation/redistribution.js';
import type { Assignment, View } from './assignment.js';
import { type CutGraph, cutStages, type StageGraph, type StagePlace, type Transfer } from './cut-stages.js';
import { partition } from './partition.js';
import type { ShardedGraph, StageTransfer } from './sharded-graph.js';

/** How a graph is laid on the stages of a pipeline. */
export interface PipelineLayout {
  readonly stages: number;
  /** Chunks of each stage. */
  readonly chunks: number;
  /** Whether the schedule runs gradients of weights apart. */
  readonly splitsBackward: boolean;
  /** By forward operator. */
  readonly placeOf: ReadonlyMap<string, StagePlace>;
}

/** One stage: the unsharded graph of its operators, and that lowered. */
export interface LoweredStage {
  readonly graph: Graph;
  readonly sharded: ShardedGraph;
}

/**
 * Lowers a graph whose accumulators are apart (`accumulatedApart`) stage by stage, all on one mesh.
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
    if (!layouts.has(transfer.tensor)) layouts.set(transfer.tensor, sentAs(transfer, graph, assignment, cut));
  return cut.stages.map((stage, index) => {
    const own = ofStage(stage, index, assignment, cut, layouts);
    const sharded = partition(stage.graph, own, redistributor);
    return { graph: stage.graph, sharded: asStage(sharded, stage, index, graph, cut, layout) };
  });
}

/** The layout in which a tensor goes from stage to stage: whole values, laid as the first receiver's first reader wants them. */
function sentAs({ tensor, to, when }: Transfer, graph: Graph, assignment: Assignment, { stages }: CutGraph): Layout {
  const rest = when === 'begin' ? assignment.inputs.get(tensor) : undefined;
  if (rest) return rest;
  const there = new Set(stages[to]?.graph.nodes.map(({ name }) => name));
  const views = assignment.views.filter((view) => view.tensor === tensor);
  const isOutput = graph.outputs.includes(tensor);
  const wanted = views.find(({ readers }) =>
    readers.some(({ kind, name }) => (isOutput ? kind === 'output' : kind === 'operator' && there.has(name))),
  );
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
  const views: View[] = assignment.views.flatMap((view) => {
    const readers = view.readers.filter(({ kind, name }) => (kind === 'operator' ? here.has(name) : given.has(name)));
    return readers.length > 0 ? [{ ...view, readers }] : [];
  });
  const seen = new Set(
    views.flatMap(({ readers }) => readers.flatMap(({ kind, name }) => (kind === 'output' ? [name] : []))),
  );
  for (const { tensor, from, when } of transfers) {
    const layout = layouts.get(tensor);
    if (from !== index || when === 'begin' || seen.has(tensor) || !layout) continue;
    seen.add(tensor);
    views.push({ tensor, readers: [{ kind: 'output', name: tensor, operand: 0 }], layout });
  }
  const received = transfers.filter(({ to }) => to === index).map(({ tensor }) => tensor);
  const inputs = new Map([...assignment.inputs].filter(([name]) => graph.inputs.includes(name)));
  for (const name of received) inputs.set(name, layouts.get(name) as Layout);
  return { ...assignment, inputs, views };
}

/** The sharded graph with its transfers beside what the user feeds and is given. */
function asStage(
  sharded: ShardedGraph,
  { graph, chunks }: StageGraph,
  index: number,
  whole: Graph,
  { transfers }: CutGraph,
  { chunks: count, splitsBackward }: PipelineLayout,
): ShardedGraph {
  const received = new Set(transfers.filter(({ to }) => to === index).map(({ tensor }) => tensor));
  const asked = new Set(whole.outputs);
  const local = new Map(sharded.outputs.map(({ tensor, output }) => [output, tensor]));
  const chunkOf = new Map(chunks);
  for (const node of graph.nodes)
    for (const name of node.outputs) if (name !== null) chunkOf.set(name, chunks.get(node.name) ?? 0);
  const sends = transfers
    .filter(({ from }) => from === index)
    .map(
      ({ tensor, to, when }): StageTransfer => ({ name: tensor, tensor: local.get(tensor) ?? tensor, stage: to, when }),
    );
  const receives = transfers
    .filter(({ to }) => to === index)
    .map(({ tensor, from, when }): StageTransfer => ({ name: tensor, tensor, stage: from, when }));
  return {
    ...sharded,
    inputs: sharded.inputs.filter(({ input }) => !received.has(input)),
    outputs: sharded.outputs.filter(({ output }) => asked.has(output)),
    pipeline: { chunks: count, chunkOf, splitsBackward, sends, receives },
  };
}

/** The sharded graph of a step that has one stage. @throws Error (a fault of ours) for a pipeline */
export function onlyStage(lowered: readonly LoweredStage[]): ShardedGraph {
  const [first, ...others] = lowered;
  if (first && others.length === 0) return first.sharded;
  throw new Error(`one stage is expected, and there are ${lowered.length}`);
}
