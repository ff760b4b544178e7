import { existsSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ROOT } from '../cli/autopar.js';
import { missing } from '../missing.js';
import { thinned } from '../selection.js';
import { findCases } from './find-cases.js';
import { runCases } from './pool.js';
import { caseLines, isSharded, overLimit, verdictOf } from './report.js';

const FOLDER = join(process.env['AUTOPAR_SHARED'] ?? join(ROOT, '..', 'shared'), 'models');

/** QuantizeLinear and DequantizeLinear around every operator. */
const QUANTISED = [
  'mobilenet-v2-int8-qdq.onnx',
  'qdq_with_multi_consumer_dq_nodes.fixed.onnx',
  'qdq_with_multi_consumer_dq_nodes.fixed.qdq16.onnx',
];

if (existsSync(FOLDER)) {
  for (const reference of thinned(findCases([FOLDER]), 6)) {
    test.serial(`exported model ${reference.name}: unsharded, by dp, by tp, as searched`, async (t) => {
      const [result] = await runCases([reference], { jobs: 1 });
      if (!result) throw new Error('there is no result');
      t.log(caseLines(result).join('\n'));
      t.is(verdictOf(result), 'passed', caseLines(result).join('\n'));
      t.deepEqual(overLimit([result]), [], 'replicated instead of sharded');
    });
  }
  for (const name of QUANTISED) {
    const file = join(FOLDER, 'findings', name);
    if (missing(!existsSync(file), `quantised model ${name} (${file} is absent)`) !== null) {
      test.skip(`quantised model ${name}`, (t) => t.pass());
      continue;
    }
    test.serial(`quantised model ${name}: unsharded, by dp, by tp`, async (t) => {
      const [result] = await runCases(findCases([file]), { jobs: 1 });
      if (!result) throw new Error('there is no result');
      t.is(verdictOf(result), 'passed', caseLines(result).join('\n'));
      t.true(isSharded(result));
    });
  }
} else {
  missing(true, `exported models by every degree (${FOLDER} is absent; AUTOPAR_SHARED names another folder)`);
  test.skip('exported models', (t) => t.pass());
}
