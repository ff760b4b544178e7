/**
 * @file Drawn plans of one to eight ranks in the torch target, over some steps of training: against the bundled runtime under
 * the same plan, and against the unsharded model.
 */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import type { CompileOptions } from '../../../src/api/index.js';
import { AutoparError } from '../../../src/ir/error.js';
import { missing } from '../../missing.js';
import { type DrawnPlan, drawnPlan, optionsOf } from '../../pipelines/drawn-plan.js';
import { writeModel } from '../../pipelines/models.js';
import { torchAbsence } from '../../reference/torch.js';
import { shortened, thinned } from '../../selection.js';
import { checkRun } from './check-run.js';
import { type Emitted, emitted, type Ran, ranHere, runForked, unshardedOptions } from './emitted.js';

const absence = torchAbsence('numpy', 'safetensors');

/** So many plans, the first that are not refused: some take a minute. */
const PLANS = thinned(Array.from({ length: 16 }), 8).length;
const MOST_RANKS = 8;
const STEPS = shortened(20);
/** The gradients of keys and routers cancel: those of the first step alone are up to 5e-6 apart. */
const TOLERANCE = 2e-5;
/**
 * As the fuzzer draws them, but for the optimizer: its state is linear in gradients, and it is so slow that steps do not
 * multiply rounding. Unrolled experts without clipping are 1.2e-4 apart after three steps at a rate of 0.01, 2.8e-5 after
 * twenty at 0.001, and 1e-5 at this one.
 */
const LEARNING_RATE = 0.0001;

interface DrawnProgram {
  readonly seed: number;
  readonly trains: boolean;
  readonly program: Emitted;
  readonly unsharded: Emitted;
}

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-torch-drawn-'));
  const drawn: DrawnProgram[] = [];
  let ran: ReadonlyMap<string, Ran> = new Map();
  test.before(async () => {
    for (let seed = 1; drawn.length < PLANS; seed++) {
      const plan = drawnPlan(seed);
      if (plan.dp * plan.tp * plan.sp * plan.pp > MOST_RANKS) continue;
      const program = await compiled(seed, linear(plan)).catch((error: unknown) => {
        if (!isRefusal(error)) throw error;
      });
      if (program) drawn.push(program);
    }
    ran = runForked(drawn.map(({ program }) => program));
  });

  for (let index = 0; index < PLANS; index++)
    test.serial(`drawn plan ${index} in torch, in the bundled runtime and on one rank`, async (t) => {
      const { seed, trains, program, unsharded } = drawn[index] as DrawnProgram;
      t.log(`seed ${seed}, ${program.ranks} ranks`);
      const got = ran.get(program.folder);
      t.truthy(got, 'the program did not run');
      if (!got) return;
      const limits = { steps: trains ? STEPS : 0, tolerance: TOLERANCE };
      checkRun(t, await ranHere(program), got, limits);
      checkRun(t, await ranHere(unsharded), got, limits);
    });

  async function compiled(seed: number, plan: DrawnPlan): Promise<DrawnProgram> {
    // The name says what the options of a model are.
    const model = join(folder, `${plan.model}-${seed}.onnx`);
    writeModel(plan.model, model);
    const { seed: _, ...drawnOptions } = await optionsOf(plan, model, '');
    const options = { ...drawnOptions, ...trainingOf(drawnOptions) };
    const steps = plan.training ? STEPS : 1;
    return {
      ...{ seed, trains: plan.training !== null },
      program: await emitted(join(folder, `${seed}`), steps, options),
      unsharded: await emitted(join(folder, `${seed}-unsharded`), steps, { ...unshardedOptions(options), model }),
    };
  }
}

/** Of what is the user's to mend, or has no operator in torch. */
function isRefusal(error: unknown): boolean {
  return error instanceof AutoparError && ['usage', 'input', 'noPlan', 'backendAbsent'].includes(error.exit);
}

function linear(plan: DrawnPlan): DrawnPlan {
  return plan.training ? { ...plan, training: { ...plan.training, optimizer: 'sgd', precision: 'fp32' } } : plan;
}

function trainingOf({ training }: CompileOptions): Pick<CompileOptions, 'training'> {
  return training
    ? { training: { ...training, optimizer: { ...training.optimizer, learningRate: LEARNING_RATE } } }
    : {};
}
