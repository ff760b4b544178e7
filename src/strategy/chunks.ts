/**
 * @file The chunk of each operator, which MindSpore's file and ONNX's annotations lack: stages that run several chunks in turn go
 * back to the first one along the model, and each time the next chunk begins.
 */
import type { Graph, Node } from '../ir/graph.js';
import { makersOf, readersOf } from '../ir/makers-and-readers.js';
import { withoutUndefined } from '../ir/without-undefined.js';
import { sharedOperators } from '../partition/cut-stages.js';
import type { PinRecord } from '../sharding-propagation/annotations/annotation.js';

/**
 * Stage and chunk of a pin, by operator: nothing where the order of the stages cannot be planned.
 * @param stages of operators of the graph
 * @param notes gets what was found
 */
export function stagePlaces(
  graph: Graph,
  stages: ReadonlyMap<Node, number>,
  notes: string[],
): (node: Node) => Pick<PinRecord, 'stage' | 'chunk'> {
  const chunks = chunksOf(graph, stages);
  if (chunks.count === 1) return (node) => withoutUndefined({ stage: stages.get(node) });
  if (!chunks.areComplete) {
    notes.push(
      'the stages of the file do not follow the order of the model, as those of --schedule zbv, and the file holds no ' +
        'chunks: stages are not pinned; give the schedule, or --stages',
    );
    return () => ({});
  }
  notes.push(`the stages run ${chunks.count} chunks each in turn, which follow from the order of the model`);
  const shared = sharedOperators(graph);
  return (node) => (shared.has(node) ? {} : withoutUndefined({ stage: stages.get(node), chunk: chunks.of.get(node) }));
}

interface Chunks {
  /** By operator whose stage is known. */
  readonly of: ReadonlyMap<Node, number>;
  /** 1 where the stages follow the order of the model. */
  readonly count: number;
  /** Every stage has every chunk: otherwise the stages do not run in turn. */
  readonly areComplete: boolean;
}

/** A stage, and the chunk of it, that an operator is on or comes after. */
interface ChunkPlace {
  readonly stage: number;
  readonly chunk: number;
}

function chunksOf(graph: Graph, stages: ReadonlyMap<Node, number>): Chunks {
  const makers = makersOf(graph.nodes);
  const readers = readersOf(graph.nodes);
  const first = new Map<Node, ChunkPlace>();
  for (const node of graph.nodes) {
    const before = node.inputs.flatMap((input) => {
      const maker = makers.get(input);
      return (maker && first.get(maker)) ?? [];
    });
    const place = earliest(stages.get(node), before);
    if (place) first.set(node, place);
  }
  // An operator without operands from others, such as a mask, is on the chunk that reads it.
  const last = new Map<Node, ChunkPlace>();
  for (const node of [...graph.nodes].reverse()) {
    const after = node.outputs.flatMap((output) =>
      (readers.get(output) ?? []).flatMap((reader) => last.get(reader) ?? []),
    );
    const place = latest(stages.get(node), after) ?? first.get(node);
    if (place) last.set(node, place);
  }
  const of = new Map([...stages.keys()].map((node) => [node, last.get(node)?.chunk ?? 0]));
  const count = Math.max(0, ...of.values()) + 1;
  const found = new Set([...of].map(([node, chunk]) => `${stages.get(node)}/${chunk}`));
  return { of, count, areComplete: found.size === count * new Set(stages.values()).size };
}

/** The first place on a stage that does not come before its operands; those of the operands where the stage is not known. */
function earliest(stage: number | undefined, operands: readonly ChunkPlace[]): ChunkPlace | undefined {
  const [place] = [...operands].sort((a, b) => b.chunk - a.chunk || b.stage - a.stage);
  if (stage === undefined) return place;
  return { stage, chunk: place === undefined ? 0 : place.chunk + Number(stage < place.stage) };
}

/** The last place on a stage that does not come after its readers. */
function latest(stage: number | undefined, readers: readonly ChunkPlace[]): ChunkPlace | undefined {
  const [place] = [...readers].sort((a, b) => a.chunk - b.chunk || a.stage - b.stage);
  if (stage === undefined || place === undefined) return place;
  return { stage, chunk: Math.max(0, place.chunk - Number(stage > place.stage)) };
}
