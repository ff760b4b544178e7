/**
 * @file Every gradient of the registry is PyTorch's, on all sample operators that PyTorch has an equivalent of.
 */
import test from 'ava';
import { isFloating } from '../../../src/ir/dtype.js';
import { AutoparError } from '../../../src/ir/error.js';
import { missing } from '../../missing.js';
import { startTorch, type Torch, TorchLacks, torchAbsence } from '../../reference/torch.js';
import { CASES, viewOfCase } from '../ops/cases.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradientInTorch } from './torch-gradient.js';

const absence = torchAbsence();

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always(() => torch.close());

  test.serial('every gradient that PyTorch has an equivalent of', async (t) => {
    const lacking = new Map<string, string>();
    const refused = new Set<string>();
    const faults: string[] = [];
    const errors = new Map<string, number>();
    for (const [number, sample] of CASES.entries()) {
      const entry = needEntry(sample.op, sample.domain);
      const floating = [sample.inputs, viewOfCase(sample).outputs].every((types) =>
        types.some((type) => type && isFloating(type.dtype)),
      );
      if (typeof entry.gradient !== 'function' || !floating) continue;
      const name = `${sample.domain}:${sample.op}`;
      try {
        const error = await checkGradientInTorch(torch, sample);
        const half = sample.inputs.some((input) => input?.dtype === 'float16');
        if (!half) errors.set(`${number} ${name}`, error);
      } catch (error) {
        if (error instanceof TorchLacks) lacking.set(name, error.message);
        else if (error instanceof AutoparError) refused.add(`${name} (${error.message})`);
        else faults.push(`${number} ${name} ${JSON.stringify(sample.attributes)}: ${(error as Error).message}`);
      }
    }
    const [worst] = [...errors].sort(([, a], [, b]) => b - a);
    t.log(`${errors.size} samples in float32, the worst relative error ${worst?.[1].toExponential(1)} (${worst?.[0]})`);
    if (lacking.size > 0) t.log(`without an equivalent: ${[...lacking.values()].join('; ')}`);
    if (refused.size > 0) t.log(`forms without a gradient: ${[...refused].join('; ')}`);
    t.deepEqual(faults, []);
  });
}
