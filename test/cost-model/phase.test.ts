/**
 * @file Collectives once a step have the passes beside them that the schedule itself leaves after a chunk's last backward.
 */
import test from 'ava';
import { passesBeside } from '../../src/cost-model/phase.js';
import { makeSchedule } from '../../src/schedule/make-schedule.js';

for (const stages of [2, 4])
  for (const virtualStages of [1, 2, 4])
    for (const microBatches of [stages, 3 * stages])
      test(`${stages} stages of ${virtualStages} chunks, ${microBatches} micro-batches`, (t) => {
        const kind = virtualStages === 1 ? '1f1b' : 'interleaved-1f1b';
        const { actions } = makeSchedule({ kind, stages, microBatches, virtualStages, training: true });
        for (const own of actions) {
          const backward = own.filter(({ phase }) => phase === 'backward');
          // The chunk whose gradients are whole first: from its last backward on, all that is left is beside a reduction.
          const whole = backward.findLastIndex(({ chunk }) => chunk === virtualStages - 1);
          t.is((backward.length - whole) / virtualStages, passesBeside(virtualStages, stages, microBatches));
          const forward = own.filter(({ phase }) => phase === 'forward');
          // The chunk whose parameters are read last: up to the end of its first forward all is beside a gathering.
          const read = forward.findIndex(({ chunk }) => chunk === virtualStages - 1);
          t.is((read + 1) / virtualStages, passesBeside(virtualStages, stages, microBatches));
        }
      });
