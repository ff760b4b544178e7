/**
 * @file Schedules with their transfers placed finish without any buffer, each transfer between its maker and its reader; and what
 * that costs beside sends that never wait.
 */
import test from 'ava';
import fc from 'fast-check';
import { placeSchedule, rendezvousSeconds } from '../../scripts/linear-order.js';
import { endlessWait, type TransferEnd } from '../../src/program/rendezvous.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { placeOfPart } from '../../src/schedule/parts.js';
import { byStage, type Passing, type PlacedEvent, placeTransfers } from '../../src/schedule/place.js';
import { type Action, phasesOf, UNIT_SECONDS } from '../../src/schedule/schedule.js';
import { simulate } from '../../src/schedule/simulate.js';
import { draws } from '../selection.js';
import { anySchedule } from './any-schedule.js';

const UNITS = ({ phase }: Action) => UNIT_SECONDS[phase];

function nameOf({ stage, chunk, microBatch, phase }: Action): string {
  return `${phase} ${microBatch} of chunk ${chunk}, stage ${stage}`;
}

/** The transfers of each stage, each by a name of its own. */
function exchanges(
  lists: readonly (readonly PlacedEvent<Action, Passing<Action>>[])[],
): readonly (readonly TransferEnd[])[] {
  const names = new Map<Passing<Action>, string>();
  return lists.map((list, stage) =>
    list.flatMap((event): readonly TransferEnd[] => {
      if (event.kind === 'action') return [];
      const { from, to, transfer } = event;
      const tensor = names.get(transfer) ?? `transfer ${names.size}`;
      names.set(transfer, tensor);
      const common = { tensor, microBatch: transfer.from.microBatch, at: '' };
      return [from === stage ? { kind: 'send', peer: to, ...common } : { kind: 'recv', peer: from, ...common }];
    }),
  );
}

test('every stage keeps the order of its actions, and a transfer stands between its maker and its reader on both', (t) => {
  fc.assert(
    fc.property(anySchedule, (schedule) => {
      const order = placeSchedule(schedule);
      const lists = byStage(order, schedule.stages);
      for (const [stage, list] of lists.entries()) {
        const own = list.flatMap((event) => (event.kind === 'action' ? [event.action] : []));
        if (own.some((action, index) => action !== schedule.actions[stage]?.[index])) throw new Error('order');
        for (const [index, event] of list.entries()) {
          if (event.kind === 'action') continue;
          const { from, reader } = event.transfer;
          const maker = list.findIndex((other) => other.kind === 'action' && other.action === from);
          const reads = list.findIndex((other) => other.kind === 'action' && other.action === reader);
          if (event.from === stage ? maker > index : reads < index) throw new Error(`${nameOf(from)} at ${index}`);
        }
      }
      const waits = endlessWait(exchanges(lists));
      if (waits !== null) throw new Error(waits);
    }),
    { numRuns: draws(200) },
  );
  t.pass();
});

test('values that skip parts of the model, there and back, leave the stages free of waiting in a cycle too', (t) => {
  const parts = fc.array(fc.tuple(fc.nat(27), fc.nat(27)), { maxLength: 8 });
  fc.assert(
    fc.property(anySchedule, parts, (schedule, pairs) => {
      const { kind, stages, virtualStages, microBatches } = schedule;
      const actions = new Map(schedule.actions.flat().map((action) => [nameOf(action), action]));
      const at = (part: number, microBatch: number, phase: Action['phase']) => {
        const { stage, chunk } = placeOfPart(kind, part, stages);
        return actions.get(nameOf({ stage, chunk, microBatch, phase })) as Action;
      };
      const gradient = phasesOf(schedule)[1];
      const chain = Array.from({ length: stages * virtualStages - 1 }, (_, part) => [part, part + 1] as const);
      const skips = pairs.map(([a, b]) => [a % (stages * virtualStages), b % (stages * virtualStages)] as const);
      const transfers = [...chain, ...skips].flatMap(([a, b]): readonly Passing<Action>[] => {
        const [low, high] = [Math.min(a, b), Math.max(a, b)];
        return Array.from({ length: microBatches }, (_, microBatch) => [
          [at(low, microBatch, 'forward'), at(high, microBatch, 'forward')] as const,
          ...(gradient ? [[at(high, microBatch, gradient), at(low, microBatch, gradient)] as const] : []),
        ])
          .flat()
          .flatMap(([from, reader]) => (from.stage === reader.stage ? [] : [{ from, stage: reader.stage, reader }]));
      });
      const order = placeTransfers(schedule.actions, transfers, UNITS);
      return endlessWait(exchanges(byStage(order, stages))) === null;
    }),
    { numRuns: draws(100) },
  );
  t.pass();
});

test('interleaved, 8 stages, 16 micro-batches, 2 chunks: finishes without a buffer, some per cent later', (t) => {
  const schedule = makeSchedule({ kind: 'interleaved-1f1b', stages: 8, microBatches: 16, virtualStages: 2 });
  const buffered = simulate(schedule, { compute: (_stage, _chunk, phase) => UNIT_SECONDS[phase] }).makespan;
  const extra = rendezvousSeconds(placeSchedule(schedule), UNITS) / buffered - 1;
  t.log(`${(100 * extra).toFixed(1)} % more time`);
  t.true(extra > 0 && extra < 0.07);
});

test('without a buffer a schedule takes no less time than with one', (t) => {
  fc.assert(
    fc.property(anySchedule, (schedule) => {
      const { makespan } = simulate(schedule, { compute: (_stage, _chunk, phase) => UNIT_SECONDS[phase] });
      return rendezvousSeconds(placeSchedule(schedule), UNITS) >= makespan;
    }),
    { numRuns: draws(200) },
  );
  t.pass();
});
