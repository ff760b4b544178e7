/**
 * @file Who comes first changes nothing: with every communication delayed at random, losses and state are the same bits.
 */
import test from 'ava';
import { type Pipeline, train, trainingStep } from './staged-training.js';

const CASES: readonly (readonly [model: string, pipeline: Pipeline])[] = [
  ['mlp', { kind: '1f1b', stages: 2, microBatches: 4 }],
  ['mlp', { kind: 'f-then-b', stages: 2, microBatches: 2, tp: 2 }],
];

for (const [model, pipeline] of CASES) {
  test.serial(`${model} ${JSON.stringify(pipeline)}`, async (t) => {
    const step = await trainingStep(model, pipeline.microBatches);
    const prompt = await train(step, 3, pipeline);
    const late = await train(step, 3, pipeline, { delays: { seed: 7, seconds: 0.003 } });
    t.deepEqual(late.losses, prompt.losses);
    t.deepEqual(late.state, prompt.state);
  });
}
