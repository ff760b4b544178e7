/**
 * @file The reference itself is checked: its forward equals ONNX Runtime's on every sample operator that it knows, and on the
 * models of PyTorch's exporters.
 */
import test from 'ava';
import { constant } from '../../src/ir/ops/constants.js';
import { runOnnx } from '../../src/runtime/reference.js';
import { ABSENT, sharedCases } from '../api/shared-models.js';
import { CASES, operatorOfCase } from '../ir/ops/cases.js';
import { makeRun, type Values } from '../ir/ops/one-node.js';
import { difference, randomValues } from '../ir/ops/values.js';
import { missing } from '../missing.js';
import { relativeError, valuesOf } from './norms.js';
import { operatorModel } from './one-operator.js';
import { type Arrays, startTorch, type Torch, TorchLacks, torchAbsence } from './torch.js';

const absence = torchAbsence();
const MODELS = sharedCases();
/** Random numbers are drawn by each runtime's own generator. */
const DRAWS = /^(Random|Bernoulli|Multinomial)/;

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always(() => torch.close());

  test.serial('every sample operator that the reference knows', async (t) => {
    const run = makeRun();
    const lacking = new Set<string>();
    const faults: string[] = [];
    let checked = 0;
    const seen = new Map<string, number>();
    for (const [number, sample] of CASES.entries()) {
      const name = `${sample.domain}:${sample.op}`;
      // A sample draws the same values whatever samples of other operators there are.
      const own = (seen.get(name) ?? 0) + 1;
      seen.set(name, own);
      if (DRAWS.test(sample.op)) continue;
      if (!torch.operators.has(name)) {
        lacking.add(name);
        continue;
      }
      const operator = operatorOfCase(sample);
      const inputs = sample.inputs.map((input, index) => (input ? randomValues(input, own * 16 + index) : null));
      const expected = await run(sample, inputs, operator.outputs);
      try {
        const { outputs } = await torch.evaluate({ model: operatorModel(operator), arrays: arraysOf(inputs) });
        for (const [index, value] of expected.entries()) {
          const found = outputs[`y${index}`];
          if (value === null || found === undefined) continue;
          const tolerance = value.dtype === 'float16' ? 5e-3 : 2e-4;
          const fault = difference(valuesOf(found), value, tolerance);
          if (fault) faults.push(`${number} ${name} ${JSON.stringify(sample.attributes)}, y${index}: ${fault}`);
        }
        checked++;
      } catch (error) {
        if (!(error instanceof TorchLacks)) faults.push(`${number} ${name}: ${(error as Error).message}`);
        else lacking.add(`${name} (${error.message})`);
      }
    }
    t.log(`${checked} samples; without an equivalent: ${[...lacking].join(', ')}`);
    t.deepEqual(faults, []);
    t.true(checked > 200);
  });

  if (missing(MODELS.length === 0, ABSENT) !== null) test.skip(ABSENT, () => undefined);
  for (const { name, file, inputs, tolerance } of MODELS) {
    test.serial(name, async (t) => {
      const expected = await runOnnx(file, inputs);
      const { outputs } = await torch.evaluate({ model: file, arrays: inputs });
      for (const [output, value] of Object.entries(expected)) {
        const own = outputs[output];
        if (!own) return t.fail(`no ${output}`);
        t.is(own.shape.join(), value.shape.join());
        // The models' own tolerances are of single elements (1e-3 in float32); norms are a tenth of that.
        const error = relativeError(own, value);
        t.true(error <= tolerance.rtol / 10, `${output}: off by ${error}`);
      }
    });
  }
}

function arraysOf(inputs: readonly (Values | null)[]): Arrays {
  return Object.fromEntries(
    inputs.flatMap((value, index) =>
      value ? [[`x${index}`, constant(value.dtype, value.data, value.shape)] as const] : [],
    ),
  );
}
