/**
 * @file `npm run bench:canonical -- FILES.csv…`: published tables in the columns that `autopar calibrate` reads, each row with
 * the words that it was read from (`why`). Rows that are not runs are counted on the standard error, by reason.
 */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { COLUMNS } from '../../src/api/calibration/columns.js';
import { csvText } from '../../src/api/calibration/csv.js';
import { publishedRun } from './run.js';
import { tableRows } from './table.js';

try {
  const files = process.argv.slice(2);
  if (files.length === 0) throw new Error('no files: npm run bench:canonical -- FILES.csv…');
  const read = files.flatMap((file) =>
    tableRows(readFileSync(file, 'utf8')).map((row) => {
      const run = publishedRun(row, basename(file));
      return typeof run === 'string' ? run : (run.assumed ?? (run.formatStated ? run : 'the format is left open'));
    }),
  );
  const names = COLUMNS.map(({ name }) => name);
  const rows = read.flatMap((run) => (typeof run === 'string' ? [] : [run.canonical]));
  process.stdout.write(csvText(names, rows));
  const reasons = read.filter((run): run is string => typeof run === 'string');
  for (const reason of new Set(reasons))
    console.error(`skipped ${reasons.filter((other) => other === reason).length}: ${reason}`);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
