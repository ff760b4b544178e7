/**
 * @file The chunk of each operator, which MindSpore's file lacks: stages that run several chunks in turn go back to the first
 * one along the model, and each time the next chunk begins.
 */
import type { Graph, Node } from '../../ir/graph.js';
import { makersOf, readersOf } from '../../ir/makers-and-readers.js';

export interface Chunks {
  /** Of each operator whose stage is known. */
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

/** @param stages of operators of the graph */
export function chunksOf(graph: Graph, stages: ReadonlyMap<Node, number>): Chunks {
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
