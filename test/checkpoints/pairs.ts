/**
 * @file `npm run checkpoints:pairs`: every plan of plans.ts goes on from the checkpoint of every other. A line per pair that
 * differs by more than 1e-6, totals at the end. Exit code 1 where one does.
 */
import { type Pair, PLANS, PlanRuns } from './plans.js';

const runs = new PlanRuns();
try {
  await runs.runAll((name) => console.error(`ran ${name}`));
  const names = Object.keys(PLANS);
  const pairs: Pair[] = [];
  for (const to of names) pairs.push(...(await runs.resume(to, names)));
  const bad = pairs.filter(({ from, to, difference, isSame }) => (from === to ? !isSame : !(difference <= 1e-6)));
  for (const { from, to, difference } of bad) console.log(`${to} from ${from}: ${difference.toExponential(1)}`);
  const worst = Math.max(...pairs.map(({ difference }) => difference));
  console.log(
    `${pairs.length} pairs of ${names.length} plans: ${pairs.length - bad.length} go on as they were, ${bad.length} do not;`,
    `largest difference of a loss ${worst.toExponential(1)}; losses at least ` +
      `${(100 * runs.leastProgress).toFixed(0)} % from the first`,
  );
  process.exitCode = bad.length > 0 ? 1 : 0;
} finally {
  runs.close();
}
