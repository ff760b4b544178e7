/**
 * @file Models of PyTorch's two exporters train as their modules do in PyTorch: a twentieth of all runs, in which every file and
 * every optimizer on every mesh is once. `npm run training:exported` takes them all.
 */
import test from 'ava';
import { missing } from '../missing.js';
import { ExportedModels, runName, SAMPLE_RUNS } from './exported-training.js';
import { torchAbsence } from './torch.js';

const absence = torchAbsence('onnxscript');

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let models: ExportedModels;
  test.before(() => {
    models = new ExportedModels(SAMPLE_RUNS);
  });
  test.after.always(() => models.close());

  for (const run of SAMPLE_RUNS)
    test.serial(runName(run), async (t) => {
      const { loss, weights, compared, faults } = await models.compare(run);
      t.deepEqual(faults, []);
      t.true(compared >= 3);
      t.log(`losses ${loss.toExponential(1)}, ${compared} weights ${weights.toExponential(1)}`);
    });
}
