/**
 * @file Schedules with their transfers placed finish without any buffer, each transfer between its maker and its reader; and what
 * that costs beside sends that never wait.
 */
import test from 'ava';
import fc from 'fast-check';
import { type Exchange, endlessWait } from '../../src/program/rendezvous.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';
import { byStage, placeSchedule, rendezvousSeconds } from '../../src/schedule/place.js';
import { type Action, UNIT_SECONDS } from '../../src/schedule/schedule.js';
import { simulate } from '../../src/schedule/simulate.js';
import { draws } from '../selection.js';
import { anySchedule } from './any-schedule.js';

const UNITS = ({ phase }: Action) => UNIT_SECONDS[phase];

function nameOf({ stage, chunk, microBatch, phase }: Action): string {
  return `${phase} ${microBatch} of chunk ${chunk}, stage ${stage}`;
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
      const exchanges = lists.map((list, stage) =>
        list.flatMap((event): readonly Exchange[] => {
          if (event.kind === 'action') return [];
          const { from, to, transfer } = event;
          const common = { tensor: nameOf(transfer.from), microBatch: transfer.from.microBatch, at: '' };
          return [from === stage ? { kind: 'send', peer: to, ...common } : { kind: 'recv', peer: from, ...common }];
        }),
      );
      const waits = endlessWait(exchanges);
      if (waits !== null) throw new Error(waits);
    }),
    { numRuns: draws(200) },
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
