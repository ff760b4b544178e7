/**
 * @file `npm run checkpoints:kills -- [N] [--seed S]`: N kills (100) of trainings, each of which is resumed. Exit code 1 where a
 * resumed training differs from one that nobody killed.
 */
import { parseArgs } from 'node:util';
import { killTrainings } from './kills.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: 'string', default: '1' } },
});
const { kills, whileWriting, runs, differences } = await killTrainings(
  Number(positionals[0] ?? 100),
  Number(values.seed),
);
for (const difference of differences) console.log(difference);
console.log(
  `${kills} kills of ${runs} trainings, ${whileWriting} while a checkpoint was written: ${differences.length} differences`,
);
process.exitCode = differences.length > 0 ? 1 : 0;
