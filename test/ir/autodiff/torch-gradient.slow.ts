/**
 * @file Every gradient of the registry is PyTorch's, on all sample operators that PyTorch has an equivalent of.
 */
import test from 'ava';
import { missing } from '../../missing.js';
import { startTorch, type Torch, TorchLacks, torchAbsence } from '../../reference/torch.js';
import { GRADIENT_SAMPLES, NOT_IN_TORCH } from './gradient-samples.js';
import { checkGradientInTorch } from './torch-gradient.js';

const absence = torchAbsence();

const QUANTISED = /^MatMul(NBits|Bnb4)$/;

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always(() => torch.close());

  test.serial('every gradient that PyTorch has an equivalent of, on all samples', async (t) => {
    const lacking = new Map<string, string>();
    const compared = new Set<string>();
    const faults: string[] = [];
    const errors = new Map<string, number>();
    for (const [number, [sample, options]] of GRADIENT_SAMPLES.entries()) {
      const name = sample.domain === '' ? sample.op : `${sample.domain}.${sample.op}`;
      const text = `${number} ${name} ${JSON.stringify(sample.attributes)}`;
      try {
        // Scales and zero points of quantised weights have no gradients.
        // The tolerance that finite differences need is not granted here.
        const { tolerance: _, ...asked } = options;
        const error = await checkGradientInTorch(
          torch,
          sample,
          QUANTISED.test(sample.op) ? { ...asked, wanted: [true] } : asked,
        );
        compared.add(name);
        if (!sample.inputs.some((input) => input?.dtype === 'float16')) errors.set(text, error);
      } catch (error) {
        if (error instanceof TorchLacks) lacking.set(name, error.message);
        else faults.push(`${text}: ${(error as Error).message}`);
      }
    }
    const [worst] = [...errors].sort(([, a], [, b]) => b - a);
    t.log(`${errors.size} samples in float32, the worst relative error ${worst?.[1].toExponential(1)} (${worst?.[0]})`);
    t.log(`without an equivalent, or some form of it: ${[...lacking.values()].join('; ')}`);
    t.deepEqual(faults, []);
    const never = [...lacking.keys()].filter((name) => !compared.has(name));
    t.deepEqual(never.sort(), [...NOT_IN_TORCH].sort());
  });
}
