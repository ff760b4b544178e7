/**
 * @file Buckets change when gradients are reduced and in which messages, and nothing else: bit for bit the same losses and state,
 * as many bytes, and the peak that was predicted; with them reductions begin before the last backward is over, and gathers of a
 * layer's parameters (ZeRO 3) before the layer ahead of it has computed.
 */
import test from 'ava';
import type { Instruction } from '../../src/program/program.js';
import { EVERYTHING, slowTests, thinned } from '../selection.js';
import { type Pipeline, type Task, type Trained, train } from './compiled-training.js';
import { gatheredBytes } from './kept-bytes.js';

const slow = slowTests(test.serial);

const STEPS = EVERYTHING ? 3 : 2;

const CASES: readonly (readonly [model: Task['model'], pipeline: Pipeline])[] = [
  ['mlp', { stages: 1, dp: 2, tp: 2 }],
  ['mlp', { kind: 'zero-bubble', stages: 2, dp: 2 }],
  ['gpt', { stages: 1, dp: 4 }],
  ['gpt', { stages: 1, dp: 2, tp: 2 }],
  ['llama', { kind: '1f1b', stages: 2, dp: 2 }],
];

/** One collective in each, a few in each, all in one. */
const SIZES = [1, 5000, 25e6];

for (const [model, pipeline] of EVERYTHING ? thinned(CASES, 3) : CASES.slice(0, 1))
  for (const microBatches of pipeline.kind || !EVERYTHING ? [4] : [1, 4])
    test.serial(`${model} ${JSON.stringify(pipeline)}, ${microBatches} micro-batches`, async (t) => {
      const task: Task = { model, microBatches };
      const plain = await train(task, STEPS, pipeline);
      const messages: number[] = [];
      for (const bucket of SIZES) {
        const bucketed = await train(task, STEPS, { ...pipeline, request: { bucket } });
        t.deepEqual(bucketed.losses, plain.losses);
        t.deepEqual(bucketed.state, plain.state);
        t.deepEqual(bucketed.sentByRank, plain.sentByRank);
        t.deepEqual(bucketed.peaks.counted, bucketed.peaks.predicted);
        if (microBatches > 1 && bucket === 1) t.true(startsAhead(bucketed));
        messages.push(messagesIn(bucketed));
      }
      const [alone = 0, few = 0, one = 0] = messages;
      t.true(alone > few && few >= one, messages.join(', '));
    });

const GATHERED: readonly (readonly [model: Task['model'], pipeline: Partial<Pipeline>, microBatches: number])[] = [
  ['mlp', { dp: 2, tp: 2 }, 1],
  ['gpt', { dp: 2 }, 2],
  ['llama', { kind: '1f1b', stages: 2, dp: 2 }, 4],
  ['encoder-decoder', { dp: 4 }, 2],
  ['cnn', { dp: 4 }, 2],
];

for (const [model, pipeline, microBatches] of thinned(GATHERED, 3))
  slow(`${model} ${JSON.stringify(pipeline)}, ZeRO 3`, async (t) => {
    const task: Task = { model, microBatches };
    const plain = await train(task, STEPS, { ...pipeline, zero: 3 });
    const messages: number[] = [];
    for (const bucket of SIZES) {
      const bucketed = await train(task, STEPS, { ...pipeline, zero: 3, request: { bucket } });
      t.deepEqual(bucketed.losses, plain.losses);
      t.deepEqual(bucketed.state, plain.state);
      t.deepEqual(bucketed.sentByRank, plain.sentByRank);
      t.deepEqual(bucketed.peaks.counted, bucketed.peaks.predicted);
      const { most, layer } = gatheredBytes(bucketed.lowered);
      t.true(most > 0 && most <= 2 * layer, `${most} B of ${layer} B a layer`);
      t.true(gathersAhead(bucketed) > gathersAhead(plain));
      messages.push(messagesIn(bucketed));
    }
    const [alone = 0, few = 0, one = 0] = messages;
    t.true(alone > few && few >= one, messages.join(', '));
  });

/** The number of gathers that are under way while something computes. */
function gathersAhead({ program }: Trained): number {
  const lists = program.stages.flatMap(({ phases }) => Object.values(phases));
  return lists.reduce((sum, list) => {
    const gathers = [...list.entries()].flatMap(([at, each]) =>
      each.kind === 'start' && each.collective.kind === 'all-gather' ? [{ at, id: each.id }] : [],
    );
    const ahead = gathers.filter(({ at, id }) => {
      const end = list.findIndex((each) => each.kind === 'wait' && each.id === id);
      return list.slice(at, end).some(({ kind }) => kind === 'compute');
    });
    return sum + ahead.length;
  }, 0);
}

/** Messages of buckets in a step of all stages. */
function messagesIn({ program }: Trained): number {
  const buckets = program.stages.map(({ phases }) => starts(Object.values(phases).flat()));
  return buckets.reduce((sum, own) => sum + new Set(own.map(({ bucket }) => bucket)).size, 0);
}

/** Whether some reduction begins while the list that makes gradients has more to compute. */
function startsAhead({ program }: Trained): boolean {
  return program.stages.some(({ phases }) =>
    Object.values(phases).some((list) => {
      const first = list.findIndex((instruction) => instruction.kind === 'start' && instruction.last);
      return first >= 0 && list.slice(first).some(({ kind }) => kind === 'compute');
    }),
  );
}

function starts(list: readonly Instruction[]): readonly Extract<Instruction, { kind: 'start' }>[] {
  return list.flatMap((each) => (each.kind === 'start' && each.bucket !== undefined ? [each] : []));
}
