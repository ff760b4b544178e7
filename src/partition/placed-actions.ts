/**
 * @file The actions of each stage in a step: which of its lists, for which micro-batch, in which order. The actions of a pipeline
 * schedule include the transfers between them, so that price, program and runtime all use one order.
 */
import { byStage, type Passing, placeTransfers } from '../schedule/place.js';
import { type Action, UNIT_SECONDS } from '../schedule/schedule.js';
import type { LoweredStage } from './lower-stages.js';
import {
  BEGIN,
  computeLists,
  lastList,
  listName,
  type ProgramPhase,
  programPhases,
  transferList,
  UPDATE,
} from './program-phases.js';
import { readsOf, type ShardedGraph } from './sharded-graph.js';

/** A run of one of a stage's lists; `microBatch`, of two that run at a time the first, is null where it runs once a step. */
export interface StageAction {
  readonly chunk: number;
  readonly microBatch: number | null;
  readonly list: string;
}

/**
 * Per stage, in order.
 * @param actions of the pipeline's schedule, per stage; left out where there is one stage
 * @throws Error (internal error) where they wait for one another in a cycle
 */
export function actionsOf(
  lowered: readonly Pick<LoweredStage, 'sharded'>[],
  actions: readonly (readonly Action[])[] = [],
): readonly (readonly StageAction[])[] {
  const stages = lowered.map(({ sharded }) => sharded);
  const isPipeline = stages.some(({ pipeline }) => pipeline);
  if (!isPipeline) return stages.map(unpipelinedActions);
  return placedActions(stages, actions).map((own, stage) => exceptLast(own, stages[stage] as ShardedGraph));
}

/** With the last micro-batch's own lists, where it has such. */
function exceptLast(
  actions: readonly StageAction[],
  { microBatches, interleave = 1 }: ShardedGraph,
): readonly StageAction[] {
  if (!microBatches?.exceptLast) return actions;
  const last = microBatches.count - interleave;
  return actions.map((own) => (own.microBatch === last ? { ...own, list: lastList(own.list) } : own));
}

/** For a graph without pipeline stages: the list that begins the step, each micro-batch, then the step's own list. */
export function unpipelinedActions(sharded: ShardedGraph): readonly StageAction[] {
  const { microBatches, interleave = 1 } = sharded;
  const once = (list: string): StageAction => ({ chunk: 0, microBatch: null, list });
  if (!microBatches) return [once('forward')];
  const micro = Array.from({ length: microBatches.count / interleave }, (_, index) => ({
    ...once('micro'),
    microBatch: interleave * index,
  }));
  const begin = programPhases(sharded).some(({ phase }) => phase === BEGIN) ? [once(BEGIN)] : [];
  return exceptLast([...begin, ...micro, once('step')], sharded);
}

/**
 * For pipeline stages: the actions of the schedule and the transfers between them, behind the transfers before the first
 * micro-batch and ahead of the update.
 */
function placedActions(
  stages: readonly ShardedGraph[],
  actions: readonly (readonly Action[])[],
): readonly (readonly StageAction[])[] {
  const seconds = new Map<StageAction, number>();
  const computed = stages.map((sharded, stage) =>
    (actions[stage] ?? []).map(({ chunk, microBatch, phase }): StageAction => {
      const { microBatches, interleave = 1 } = sharded;
      const listed = { chunk, microBatch: microBatches ? interleave * microBatch : null, list: listName(phase, chunk) };
      seconds.set(listed, UNIT_SECONDS[phase]);
      return listed;
    }),
  );
  const transfers = crossingsOf(stages).flatMap((crossing) => passings(crossing, computed));
  const order = placeTransfers(computed, transfers, (action) => seconds.get(action) as number);
  return byStage(order, stages.length).map((placed, stage) => {
    const once = (name: string): readonly StageAction[] =>
      hasInstructions(stages[stage] as ShardedGraph, name) ? [{ chunk: 0, microBatch: null, list: name }] : [];
    const inTurn = placed.map((event): StageAction => {
      if (event.kind === 'action') return event.action;
      const { crossing, from } = event.transfer;
      const end = event.from === stage ? crossing.send : crossing.recv;
      return { microBatch: from.microBatch, ...end };
    });
    return [...once(BEGIN), ...inTurn, ...once(UPDATE)];
  });
}

/** Whether a list runs anything. */
function hasInstructions(sharded: ShardedGraph, name: string): boolean {
  const list = programPhases(sharded).find(({ phase }) => phase === name);
  return list !== undefined && (list.transfers.length > 0 || sharded.nodes.some(list.includes));
}

/** Transfers of one list of a stage to another stage, in every micro-batch. */
interface Crossing {
  readonly from: number;
  readonly list: string;
  readonly to: number;
  /** The lists at both ends that transfer it, and the chunk that makes it, or reads it first. */
  readonly send: Pick<StageAction, 'list' | 'chunk'>;
  readonly recv: Pick<StageAction, 'list' | 'chunk'>;
  /** The receiver's lists that read it. */
  readonly readers: ReadonlySet<string>;
}

function crossingsOf(stages: readonly ShardedGraph[]): readonly Crossing[] {
  const lists = stages.map(({ pipeline }) => (pipeline ? computeLists(pipeline) : []));
  const chunkOf = (stage: number, list: string | undefined) =>
    lists[stage]?.find(({ phase }) => phase === list)?.chunk ?? 0;
  return stages.flatMap((sharded, to) => {
    const reads = (lists[to] ?? []).map(({ phase, includes }) => ({
      phase,
      tensors: new Set(sharded.nodes.filter(includes).flatMap(readsOf)),
    }));
    return transferPhases(sharded).flatMap(({ phase, transfers }): readonly Crossing[] => {
      const [first] = transfers;
      if (first?.kind !== 'recv') return [];
      const { list, stage: from } = first.transfer;
      const readers = reads.filter(({ tensors }) => transfers.some(({ transfer }) => tensors.has(transfer.tensor)));
      return [
        {
          ...{ from, list, to },
          send: { list: transferList('send', list, to), chunk: chunkOf(from, list) },
          recv: { list: phase, chunk: chunkOf(to, readers[0]?.phase) },
          readers: new Set(readers.map((reader) => reader.phase)),
        },
      ];
    });
  });
}

/** Lists that only send or receive, in every micro-batch. */
function transferPhases(sharded: ShardedGraph): readonly ProgramPhase[] {
  return programPhases(sharded).filter(({ runs, transfers }) => runs === 'micro' && transfers.length > 0);
}

/** A crossing in each micro-batch. */
function passings(
  crossing: Crossing,
  computed: readonly (readonly StageAction[])[],
): readonly (Passing<StageAction> & { readonly crossing: Crossing })[] {
  const readers = new Map<number | null, StageAction>();
  for (const action of computed[crossing.to] ?? [])
    if (crossing.readers.has(action.list) && !readers.has(action.microBatch)) readers.set(action.microBatch, action);
  return (computed[crossing.from] ?? [])
    .filter(({ list }) => list === crossing.list)
    .map((from) => {
      const reader = readers.get(from.microBatch);
      return { from, stage: crossing.to, ...(reader ? { reader } : {}), crossing };
    });
}
