/**
 * @file Dynamic programming and the integer program agree on the models of PyTorch's exporters, and recursive programming stays
 * above them.
 */
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { ABSENT, dimsOf, sharedCases } from '../api/shared-models.js';
import { missing } from '../missing.js';
import { checkModes } from './check-modes.js';

const CASES = sharedCases();

if (missing(CASES.length === 0, `search modes on ${ABSENT}`) !== null)
  test.skip(`search modes on ${ABSENT}`, () => undefined);

for (const item of CASES) {
  test.serial(item.name, async (t) => {
    const { graph } = await importModel(item.file, { dims: await dimsOf(item) });
    await checkModes(t, graph, parseCluster('1x4:a100-sxm-80', undefined), { degrees: { dp: 1, tp: 4 } });
  });
}
