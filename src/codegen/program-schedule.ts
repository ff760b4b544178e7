/**
 * @file The schedule of a program: which lists of instructions each stage runs, for which micro-batch, in which order. The actions
 * of a pipeline's schedule come with the transfers between them placed, so that no runtime has an order of its own.
 */
import { BEGIN, computeLists, listName, type PhaseList, phasesOf, transferList, UPDATE } from '../partition/order.js';
import { readsOf, type ShardedGraph } from '../partition/sharded-graph.js';
import type { Instruction, ProgramAction } from '../program/program.js';
import { byStage, type Passing, placeTransfers } from '../schedule/place.js';
import { type Action, UNIT_SECONDS } from '../schedule/schedule.js';

/** Of the whole graph: each micro-batch, then the step's own list. */
export function wholeSchedule({ microBatches }: ShardedGraph): readonly ProgramAction[] {
  const once = (phase: string) => ({ stage: 0, chunk: 0, microBatch: null, phase });
  if (!microBatches) return [once('forward')];
  const micro = Array.from({ length: microBatches.count }, (_, microBatch) => ({ ...once('micro'), microBatch }));
  return [...micro, once('step')];
}

/** A stage and its written lists. */
export interface WrittenStage {
  readonly sharded: ShardedGraph;
  readonly lists: readonly { readonly phase: string; readonly instructions: readonly Instruction[] }[];
}

/**
 * Of a pipeline's stages: the actions of its schedule and the transfers between them, behind what is exchanged before the first
 * and ahead of the update.
 * @param actions per stage, in its order
 * @throws Error (a fault of ours) where they wait for one another in a circle
 */
export function placedSchedule(
  stages: readonly WrittenStage[],
  actions: readonly (readonly Action[])[],
): readonly (readonly ProgramAction[])[] {
  const seconds = new Map<ProgramAction, number>();
  const computed = stages.map(({ sharded }, stage) =>
    (actions[stage] ?? []).map(({ chunk, microBatch, phase }): ProgramAction => {
      const listed = {
        stage,
        chunk,
        microBatch: sharded.microBatches ? microBatch : null,
        phase: listName(phase, chunk),
      };
      seconds.set(listed, UNIT_SECONDS[phase]);
      return listed;
    }),
  );
  const transfers = crossingsOf(stages).flatMap((crossing) => passings(crossing, computed));
  const order = placeTransfers(computed, transfers, (action) => seconds.get(action) as number);
  return byStage(order, stages.length).map((placed, stage) => {
    const once = (phase: string): readonly ProgramAction[] => {
      const isThere = (stages[stage]?.lists.find((list) => list.phase === phase)?.instructions ?? []).length > 0;
      return isThere ? [{ stage, chunk: 0, microBatch: null, phase }] : [];
    };
    const inTurn = placed.map((event): ProgramAction => {
      if (event.kind === 'action') return event.action;
      const { crossing, from } = event.transfer;
      const end = event.from === stage ? crossing.send : crossing.recv;
      return { stage, microBatch: from.microBatch, ...end };
    });
    return [...once(BEGIN), ...inTurn, ...once(UPDATE)];
  });
}

/** What one list of a stage makes for another stage, in every micro-batch. */
interface Crossing {
  readonly from: number;
  readonly list: string;
  readonly to: number;
  /** The lists at both ends that transfer it, and the chunk that makes it, or reads it first. */
  readonly send: Pick<ProgramAction, 'phase' | 'chunk'>;
  readonly recv: Pick<ProgramAction, 'phase' | 'chunk'>;
  /** The receiver's lists that read it. */
  readonly readers: ReadonlySet<string>;
}

function crossingsOf(stages: readonly WrittenStage[]): readonly Crossing[] {
  const lists = stages.map(({ sharded }) => (sharded.pipeline ? computeLists(sharded.pipeline) : []));
  const chunkOf = (stage: number, list: string | undefined) =>
    lists[stage]?.find(({ phase }) => phase === list)?.chunk ?? 0;
  return stages.flatMap(({ sharded }, to) => {
    const reads = (lists[to] ?? []).map(({ phase, includes }) => ({
      phase,
      tensors: new Set(sharded.nodes.filter(includes).flatMap(readsOf)),
    }));
    return exchangesOf(sharded).flatMap(({ phase, transfers }): readonly Crossing[] => {
      const [first] = transfers;
      if (first?.kind !== 'recv') return [];
      const { list, stage: from } = first.transfer;
      const readers = reads.filter(({ tensors }) => transfers.some(({ transfer }) => tensors.has(transfer.tensor)));
      return [
        {
          ...{ from, list, to },
          send: { phase: transferList('send', list, to), chunk: chunkOf(from, list) },
          recv: { phase, chunk: chunkOf(to, readers[0]?.phase) },
          readers: new Set(readers.map((reader) => reader.phase)),
        },
      ];
    });
  });
}

/** Lists that only exchange, in every micro-batch. */
function exchangesOf(sharded: ShardedGraph): readonly PhaseList[] {
  return phasesOf(sharded).filter(({ runs, transfers }) => runs === 'micro' && transfers.length > 0);
}

/** A crossing in each micro-batch. */
function passings(
  crossing: Crossing,
  computed: readonly (readonly ProgramAction[])[],
): readonly (Passing<ProgramAction> & { readonly crossing: Crossing })[] {
  const readers = new Map<number | null, ProgramAction>();
  for (const action of computed[crossing.to] ?? [])
    if (crossing.readers.has(action.phase) && !readers.has(action.microBatch)) readers.set(action.microBatch, action);
  return (computed[crossing.from] ?? [])
    .filter(({ phase }) => phase === crossing.list)
    .map((from) => {
      const reader = readers.get(from.microBatch);
      return { from, stage: crossing.to, ...(reader ? { reader } : {}), crossing };
    });
}
