/**
 * @file `npm run fuzz:plans -- N [--seed S]`: N drawn plans of pipelines, each compiled for ranks of this machine and verified
 * against its unsharded model. Plan i has the seed S + i; a line for each that fails, totals at the end. Exit code 1 where one
 * fails.
 */
import { parseArgs } from 'node:util';
import { drawnPlan, type Outcome, tryPlan } from './drawn-plan.js';

const USAGE = 'usage: npm run fuzz:plans -- N [--seed S] [--verbose]';

/** After so many seconds a plan counts as hanging. */
const MOST_SECONDS = 240;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: 'string', default: '1' }, verbose: { type: 'boolean', default: false } },
});
const [count, first] = [Number(positionals[0]), Number(values.seed)];
if (positionals.length !== 1 || !Number.isInteger(count) || !Number.isInteger(first) || count < 1) {
  console.error(USAGE);
  process.exit(2);
}

const outcomes: Outcome[] = [];
const refusals = new Map<string, number>();
for (let seed = first; seed < first + count; seed++) {
  const drawn = drawnPlan(seed);
  if (values.verbose) console.error(`${seed} ${JSON.stringify(drawn)}`);
  const outcome = await tryPlan(drawn, AbortSignal.timeout(MOST_SECONDS * 1e3));
  outcomes.push(outcome);
  const { code } = outcome;
  if (code !== undefined) refusals.set(code, (refusals.get(code) ?? 0) + 1);
  if (values.verbose) console.error(`  ${outcome.verdict} ${outcome.why}`);
  if (outcome.verdict === 'failed')
    console.log(`npm run fuzz:plans -- 1 --seed ${seed}   ${outcome.why.split('\n')[0]}   ${JSON.stringify(drawn)}`);
}
const counted = (verdict: Outcome['verdict']) => outcomes.filter((outcome) => outcome.verdict === verdict).length;
const reasons = [...refusals].map(([code, times]) => `${code} ${times}`).join(', ');
console.log(
  `${count} plans drawn: ${counted('verified')} verified, ${counted('refused')} refused${reasons && ` (${reasons})`}, ${counted('failed')} failed`,
);
process.exitCode = counted('failed') > 0 ? 1 : 0;
