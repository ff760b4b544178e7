/**
 * @file 16-bit recipes of the models of PyTorch's exporters: every one is lowered, and its results are as near as so few digits
 * let them be.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { heldInFloat32 } from '../../../src/ir/autodiff/held-in-float32.js';
import { inMixedPrecision } from '../../../src/ir/autodiff/mixed-precision.js';
import { isFloating } from '../../../src/ir/dtype.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { ABSENT, dimsOf, sharedCases } from '../../api/shared-models.js';
import { missing } from '../../missing.js';

const MODELS = sharedCases();
/** Norm-wise tolerances of results: about ten roundings. */
const TOLERANCES = { float16: 5e-3, bfloat16: 4e-2 } as const;

if (missing(MODELS.length === 0, ABSENT) !== null) test.skip(ABSENT, () => undefined);
for (const shared of MODELS)
  test.serial(`${shared.name} in 16 bit`, async (t) => {
    const { graph } = await importModel(shared.file, { dims: await dimsOf(shared) });
    const exact = await runGraph(graph, shared.inputs);
    for (const low of ['float16', 'bfloat16'] as const) {
      const lowered = inMixedPrecision(graph, low);
      t.deepEqual(
        lowered.outputs.map((name) => lowered.tensors.get(name)),
        graph.outputs.map((name) => graph.tensors.get(name)),
      );
      const results = await runGraph(heldInFloat32(lowered, low), shared.inputs);
      for (const name of graph.outputs) {
        const [wanted, got] = [exact[name], results[name]];
        if (!wanted || !got || !isFloating(wanted.dtype)) continue;
        const [left, right] = [numbersOf(wanted), numbersOf(got)];
        const away = Math.sqrt(
          left.reduce((sum, value, index) => sum + (value - (right[index] ?? Number.NaN)) ** 2, 0),
        );
        const size = Math.sqrt(left.reduce((sum, value) => sum + value ** 2, 0));
        t.log(`${name} in ${low}: ${(away / size).toExponential(1)}`);
        t.true(away <= TOLERANCES[low] * size, `${name} in ${low}: off by ${away / size}`);
      }
    }
  });
