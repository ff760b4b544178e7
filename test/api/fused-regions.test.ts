import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { plan } from '../../src/api/plan.js';
import { ROOT } from '../cli/autopar.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

slow(
  'regions leave the best plan where operators are priced one by one, and a cheaper one where they are kernels',
  async (t) => {
    for (const name of ['llama-tiny', 'gpt-tiny']) {
      const file = join(ROOT, 'models', `${name}.onnx`);
      const [regions, plain] = [await importModel(file), await importModel(file, { fusedRegions: false })];
      t.true(regions.graph.nodes.length < plain.graph.nodes.length);
      for (const degrees of [
        { dp: 2, tp: 2 },
        { dp: 1, tp: 4 },
      ]) {
        const cost = async (imported: typeof regions, cluster: string) =>
          (await plan(imported, { degrees, cluster, devices: 4 })).found.costNanoseconds;
        t.is(await cost(regions, 'local'), await cost(plain, 'local'), `${name} ${JSON.stringify(degrees)}`);
        t.true((await cost(regions, '1x4:h100-sxm-80')) < (await cost(plain, '1x4:h100-sxm-80')));
      }
    }
  },
);
