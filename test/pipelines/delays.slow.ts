/**
 * @file As delays.test.ts: every schedule with data parallelism, with tensor parallelism and with both; one of
 * the three of every second schedule trains a language model.
 */
import test from 'ava';
import { SCHEDULE_KINDS } from '../../src/schedule/schedule.js';
import { shortened } from '../selection.js';
import { type Pipeline, train, trainingStep } from './staged-training.js';

const STEPS = shortened(50);
const INNER = [
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 2, tp: 2 },
] as const;

const PIPELINES = SCHEDULE_KINDS.flatMap((kind, index) =>
  INNER.map((inner, place): readonly [string, Pipeline] => {
    const takesChunks = kind.startsWith('interleaved') || kind === 'zbv';
    const parts = takesChunks ? { chunks: 2, stages: 2 } : { stages: 2 + ((index + place) % 2) };
    const language = index % 4 === 0 ? 'llama-tiny' : 'gpt-tiny';
    const isLanguage = index % 2 === 0 && place === index % INNER.length;
    return [isLanguage ? language : 'mlp', { kind, ...parts, microBatches: 2, ...inner }];
  }),
);

for (const [index, [model, pipeline]] of PIPELINES.entries()) {
  test.serial(`${model} ${JSON.stringify(pipeline)}`, async (t) => {
    const step = await trainingStep(model, pipeline.microBatches);
    const prompt = await train(step, STEPS, pipeline);
    const late = await train(step, STEPS, pipeline, { delays: { seed: index, seconds: 0.0005 } });
    t.deepEqual(late.losses, prompt.losses);
    t.deepEqual(late.state, prompt.state);
  });
}
