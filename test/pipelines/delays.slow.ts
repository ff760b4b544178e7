/**
 * @file As delays.test.ts: seven of 20 pipelines of every schedule, which miss no schedule and no mesh, 50 steps each.
 */
import test from 'ava';
import type { ScheduleKind } from '../../src/schedule/schedule.js';
import { thinned } from '../selection.js';
import { type Pipeline, train, trainingStep } from './staged-training.js';

const STEPS = 50;
const INNER = [
  { dp: 1, tp: 1 },
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 2, tp: 2 },
] as const;
const KINDS: readonly ScheduleKind[] = ['naive', 'f-then-b', '1f1b', 'zero-bubble', 'interleaved-1f1b'];

const PIPELINES = KINDS.flatMap((kind, index) =>
  INNER.map((inner, place): readonly [string, Pipeline] => [
    place % 2 === 0 ? 'llama-tiny' : 'gpt-tiny',
    {
      kind,
      stages: 2 + ((index + place) % 2),
      microBatches: 2,
      ...(kind === 'interleaved-1f1b' ? { chunks: 2, stages: 2 } : {}),
      ...inner,
    },
  ]),
);

for (const [index, [model, pipeline]] of thinned([...PIPELINES.entries()], 3)) {
  test.serial(`${model} ${JSON.stringify(pipeline)}`, async (t) => {
    const step = await trainingStep(model, pipeline.microBatches);
    const prompt = await train(step, STEPS, pipeline);
    const late = await train(step, STEPS, pipeline, { delays: { seed: index, seconds: 0.0005 } });
    t.deepEqual(late.losses, prompt.losses);
    t.deepEqual(late.state, prompt.state);
  });
}
