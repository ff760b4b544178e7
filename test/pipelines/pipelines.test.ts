/**
 * @file Pipelines train as one rank does: losses, weights and momentum after several steps with clipping active, under every
 * schedule, alone and with data and tensor parallelism; tied tables, labels on the last stage, skips and several chunks included.
 */
import test from 'ava';
import { SCHEDULE_KINDS } from '../../src/schedule/schedule.js';
import { selection } from '../selection.js';
import { worstDifference } from './difference.js';
import { skipModel } from './skip-model.js';
import { type Pipeline, type Trained, train, trainingStep } from './staged-training.js';

/** Relative to the largest element of a tensor. */
const TOLERANCE = 1e-5;
const STEPS = 5;

const CASES: readonly (readonly [model: string, pipeline: Pipeline])[] = [
  ['mlp', { kind: 'naive', stages: 2, microBatches: 2 }],
  ['mlp', { kind: 'f-then-b', stages: 3, microBatches: 4, tp: 2 }],
  ['cnn-tiny', { kind: '1f1b', stages: 2, microBatches: 1 }],
  ['gpt-tiny', { kind: 'interleaved-1f1b', stages: 2, microBatches: 4, chunks: 2 }],
  ['llama-tiny', { kind: 'zbv', stages: 3, microBatches: 4, chunks: 2 }],
  ['gpt-tiny', { kind: '1f1b', stages: 2, microBatches: 4 }],
  ['gpt-tiny', { kind: 'zero-bubble', stages: 2, microBatches: 2, dp: 2 }],
  ['llama-tiny', { kind: 'zero-bubble', stages: 4, microBatches: 4 }],
  ['llama-tiny', { kind: 'interleaved-1f1b', stages: 2, microBatches: 2, chunks: 2, tp: 2 }],
  ['llama-tiny', { kind: '1f1b', stages: 2, microBatches: 2, dp: 2, tp: 2 }],
  ['gpt-tiny', { kind: 'interleaved-zero-bubble', stages: 2, microBatches: 4, chunks: 2 }],
];

const references = new Map<string, ReturnType<typeof reference>>();

/** A step of a model, and what it leaves on one rank. */
async function reference(model: string, microBatches: number) {
  const step = await trainingStep(model, microBatches);
  return { step, alone: await train(step, STEPS) };
}

for (const [, [model, pipeline]] of selection(CASES, ([name]) => name, 1)) {
  test.serial(`${model} ${JSON.stringify(pipeline)}`, async (t) => {
    const key = `${model} ${pipeline.microBatches}`;
    const known = references.get(key) ?? reference(model, pipeline.microBatches);
    references.set(key, known);
    const { step, alone } = await known;
    const staged = await train(step, STEPS, pipeline);
    t.is(staged.program.stages.length, pipeline.stages);
    t.log(`worst ${worstDifference(alone, staged).toExponential(1)}`);
    t.true(worstDifference(alone, staged) <= TOLERANCE);
    t.deepEqual(staged.peaks.counted, staged.peaks.predicted);
    t.deepEqual(alone.peaks.counted, alone.peaks.predicted);
  });
}

/** Kinds that cut the model alike. */
const ALIKE: readonly (readonly Pipeline['kind'][])[] = [
  ['naive', 'f-then-b', '1f1b', 'zero-bubble'],
  ['interleaved-1f1b', 'interleaved-zero-bubble'],
  ['zbv'],
];

test.serial(
  'all kinds train a model with skips and a shared weight as one rank does; those of one cut give the same bits',
  async (t) => {
    const step = await trainingStep(await skipModel(9), 4);
    const alone = await train(step, STEPS);
    t.deepEqual(ALIKE.flat().sort(), [...SCHEDULE_KINDS].sort());
    for (const kinds of ALIKE) {
      const chunks = kinds.includes('naive') ? 1 : 2;
      let first: Trained | undefined;
      for (const kind of kinds) {
        const staged = await train(step, STEPS, { kind, stages: 2, microBatches: 4, chunks });
        t.true(worstDifference(alone, staged) <= TOLERANCE, kind);
        first ??= staged;
        t.deepEqual(staged.losses, first.losses, kind);
        t.deepEqual(staged.state, first.state, kind);
      }
    }
  },
);
