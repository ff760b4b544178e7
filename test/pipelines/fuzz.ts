/**
 * @file `npm run fuzz:plans -- N [--seed S]`: N drawn plans of pipelines, each compiled for ranks of this machine and verified
 * against its unsharded model. Plan i has the seed S + i; a line for each that fails as soon as it does,
 * totals at the end or where it is interrupted. Exit code 1 where one fails.
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

const verdicts: Record<Outcome['verdict'], number> = { verified: 0, refused: 0, failed: 0 };
const refusals = new Map<string, number>();

/** How many plans ended how so far. */
function totals(): string {
  const { verified, refused, failed } = verdicts;
  const reasons = [...refusals].map(([code, times]) => `${code} ${times}`).join(', ');
  return (
    `${verified + refused + failed} plans drawn: ${verified} verified, ${refused} ` +
    `refused${reasons && ` (${reasons})`}, ${failed} failed`
  );
}

for (const [signal, code] of [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)
  process.once(signal, () => {
    console.log(totals());
    process.exit(code);
  });

for (let seed = first; seed < first + count; seed++) {
  const drawn = drawnPlan(seed);
  if (values.verbose) console.error(`${seed} ${JSON.stringify(drawn)}`);
  const { verdict, code, why } = await tryPlan(drawn, AbortSignal.timeout(MOST_SECONDS * 1e3));
  verdicts[verdict]++;
  if (code !== undefined) refusals.set(code, (refusals.get(code) ?? 0) + 1);
  if (values.verbose) console.error(`  ${verdict} ${why}`);
  if (verdict === 'failed')
    console.log(`npm run fuzz:plans -- 1 --seed ${seed}   ${why.split('\n')[0]}   ${JSON.stringify(drawn)}`);
}
console.log(totals());
process.exitCode = verdicts.failed > 0 ? 1 : 0;
