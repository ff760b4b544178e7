import { existsSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';
import { missing } from '../missing.js';
import { findCases } from './find-cases.js';
import { runCases } from './pool.js';
import { caseLines, overLimit, verdictOf } from './report.js';

const FOLDER = join(process.env['AUTOPAR_SHARED'] ?? join(ROOT, '..', 'shared'), 'models');

if (existsSync(FOLDER)) {
  for (const reference of findCases([FOLDER])) {
    test.serial(`exported model ${reference.name}: unsharded, by dp, by tp, as searched`, async (t) => {
      const [result] = await runCases([reference], { jobs: 1 });
      if (!result) throw new Error('there is no result');
      t.log(caseLines(result).join('\n'));
      t.is(verdictOf(result), 'passed', caseLines(result).join('\n'));
      t.deepEqual(overLimit([result]), [], 'replicated instead of sharded');
    });
  }
} else {
  missing(true, `exported models by every degree (${FOLDER} is absent; AUTOPAR_SHARED names another folder)`);
  test.skip('exported models', (t) => t.pass());
}
