/**
 * @file Every plan of plans.ts goes on from its own checkpoint to the bit, and from those of others as these go on themselves:
 * sixteen pairs. `npm run checkpoints:pairs` has all of them.
 */
import test from 'ava';
import { PLANS, PlanRuns } from './plans.js';

/** Relative tolerance of a loss: sums in another order differ in their last bits. */
const TOLERANCE = 1e-6;

/** Sources beside itself that each plan goes on from; the first four plans have one more. */
const SOURCES = 1;

const runs = new PlanRuns();
const names = Object.keys(PLANS);

test.after.always(() => runs.close());

test.serial('plans run, and leave checkpoints behind which losses go on falling', async (t) => {
  await runs.runAll();
  t.true(runs.leastProgress > 0.1);
});

for (const [index, to] of names.entries()) {
  const others = [...names.slice(index + 1), ...names.slice(0, index)];
  const drawn = others
    .slice(0, SOURCES + (index < 4 ? 1 : 0))
    .map((_, turn) => others[(index * 5 + turn * 3) % 11] as string);
  test.serial(`${to}, from itself and ${drawn.join('; ')}`, async (t) => {
    const [own, ...pairs] = await runs.resume(to, [to, ...drawn]);
    t.true(own?.isSame);
    t.is(own?.difference, 0);
    for (const { from, difference } of pairs) t.true(difference <= TOLERANCE, `${from}: ${difference}`);
  });
}
