/**
 * @file Fifty steps of the shipped models by `compile --train` and `run`, on one, two and four ranks and in micro-batches,
 * against PyTorch: the command line's own optimizer (AdamW at 1e-3) from the same weights and batch.
 */
import test from 'ava';
import { missing } from '../missing.js';
import { ownSteps, trainedWeights } from './own-training.js';
import { startTorch, type Torch, torchAbsence } from './torch.js';
import { shippedSources } from './training-cases.js';

const STEPS = 50;
const OPTIMIZER = { learningRate: 1e-3, weightDecay: 0.01 };

const DEGREES = [
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 2, tp: 2 },
  { dp: 4, tp: 1 },
  { dp: 1, tp: 1, microBatches: 4 },
  { dp: 2, tp: 1, microBatches: 2 },
  { dp: 2, tp: 2, microBatches: 2 },
] as const;

const absence = torchAbsence();

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always(() => torch.close());

  for (const source of shippedSources())
    test.serial(`${source.name}: fifty steps on one, two and four ranks`, async (t) => {
      const item = await source.open();
      const { graph } = item.imported;
      const training = { optimizer: { kind: 'adamw', ...OPTIMIZER } } as const;
      const alone = await ownSteps(item, training, STEPS);
      const parameters = trainedWeights(graph);
      const undecayed = parameters.filter((name) => (graph.tensors.get(name)?.shape.length ?? 0) < 2);
      const { losses } = await torch.train({
        model: item.file,
        loss: item.torchLoss,
        parameters,
        batches: [item.arrays],
        steps: STEPS,
        optimizer: { name: 'adamw', ...OPTIMIZER, undecayed },
      });
      t.is(losses.length, STEPS);
      t.is(alone.losses.length, STEPS);
      const fromTorch = furthest(alone.losses, losses);
      t.true(fromTorch <= 1e-3, `one rank against PyTorch: ${fromTorch}`);
      const found = [`losses ${losses[0]?.toFixed(4)} … ${losses.at(-1)?.toFixed(4)}`, `PyTorch ${text(fromTorch)}`];
      for (const { dp, tp, ...parts } of DEGREES) {
        const shared = await ownSteps(item, { ...training, ...parts }, STEPS, { dp, tp });
        const [fromOne, fromReference] = [furthest(shared.losses, alone.losses), furthest(shared.losses, losses)];
        const name = `dp ${dp} tp ${tp}${'microBatches' in parts ? ` in ${parts.microBatches}` : ''}`;
        found.push(`${name} ${text(fromOne)}`);
        t.true(fromOne <= 1e-5, `${name} against one rank: ${fromOne}`);
        t.true(fromReference <= 1e-3, `${name} against PyTorch: ${fromReference}`);
      }
      t.log(found.join(' · '));
    });
}

/** The largest relative distance of two series; NaN where one is shorter. */
function furthest(got: readonly number[], expected: readonly number[]): number {
  return Math.max(
    ...expected.map((value, at) => Math.abs((got[at] ?? Number.NaN) - value) / Math.max(Math.abs(value), 1e-3)),
  );
}

function text(value: number): string {
  return value.toExponential(1);
}
