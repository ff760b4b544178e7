/**
 * @file Every pair of schedule, stages, micro-batches, chunks and inner degrees in some pipeline, each against one rank: losses,
 * weights and momentum after several steps with clipping active.
 */
import test from 'ava';
import { SCHEDULE_KINDS } from '../../src/schedule/schedule.js';
import { type Pipeline, train, trainingStep, worstDifference } from './staged-training.js';

const TOLERANCE = 1e-5;
const STEPS = 5;

const MODELS = ['gpt-tiny', 'llama-tiny', 'mlp', 'cnn-tiny'] as const;

interface Choice extends Required<Pipeline> {
  readonly model: (typeof MODELS)[number];
}

/** All that schedules and models allow: chunks are for interleaving, micro-batches divide a batch of 4 or 8. */
function everyChoice(): readonly Choice[] {
  const choices: Choice[] = [];
  for (const model of MODELS)
    for (const kind of SCHEDULE_KINDS)
      for (const stages of [2, 3, 4])
        for (const microBatches of [1, 2, 4])
          for (const [dp, tp] of [
            [1, 1],
            [2, 1],
            [1, 2],
            [2, 2],
          ] as const) {
            const isInterleaved = kind.startsWith('interleaved');
            const chunks = isInterleaved || kind === 'zbv' ? 2 : 1;
            const fits = !isInterleaved || microBatches % stages === 0;
            const batch = model === 'mlp' ? 8 : 4;
            // Convolutions in a batch of statistics mix samples, which micro-batches refuse.
            if (fits && batch % (dp * microBatches) === 0 && !(model === 'cnn-tiny' && microBatches > 1))
              choices.push({ model, kind, stages, microBatches, chunks, dp, tp });
          }
  return choices;
}

/** Choices in which every pair of values that occurs together in some choice does, by taking the one with most new pairs. */
function pairwise(all: readonly Choice[]): readonly Choice[] {
  const pairsOf = (choice: Choice) => {
    const values = Object.entries({ ...choice, inner: `${choice.dp}x${choice.tp}` }).map(
      ([key, value]) => `${key}=${value}`,
    );
    return values.flatMap((left, index) => values.slice(index + 1).map((right) => `${left} ${right}`));
  };
  const missing = new Set(all.flatMap(pairsOf));
  const taken: Choice[] = [];
  while (missing.size > 0) {
    const fresh = (choice: Choice) => pairsOf(choice).filter((pair) => missing.has(pair)).length;
    const [first] = [...all].sort((a, b) => fresh(b) - fresh(a));
    if (!first) break;
    taken.push(first);
    for (const pair of pairsOf(first)) missing.delete(pair);
  }
  return taken;
}

for (const { model, ...pipeline } of pairwise(everyChoice())) {
  test.serial(`${model} ${JSON.stringify(pipeline)}`, async (t) => {
    const step = await trainingStep(model, pipeline.microBatches);
    const worst = worstDifference(await train(step, STEPS), await train(step, STEPS, pipeline));
    t.log(worst.toExponential(1));
    t.true(worst <= TOLERANCE);
  });
}
