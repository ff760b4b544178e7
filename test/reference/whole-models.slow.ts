/**
 * @file Whole models train as PyTorch trains them: the shipped models and those of PyTorch's exporters. Loss and all parameter
 * gradients of the training graph, run whole by ONNX Runtime; then ten steps each of SGD and AdamW by `compile --train` and
 * `run`. PyTorch starts from the same file (onnx_in_torch.py) and computes in float64 what autopar computes in float32.
 */
import test, { type ExecutionContext } from 'ava';
import { type ConstantTensor, elementCount } from '../../src/ir/graph.js';
import { numbersOf } from '../../src/ir/ops/constants.js';
import { ABSENT } from '../api/shared-models.js';
import { missing } from '../missing.js';
import { ownGradients, ownSteps, trainedWeights } from './own-training.js';
import { type Arrays, startTorch, type Torch, type TorchModel, torchAbsence } from './torch.js';
import {
  type CaseSource,
  importedCase,
  placedCase,
  sharedSources,
  shippedSources,
  type TrainingCase,
  transposed,
} from './training-cases.js';

const STEPS = 10;

/** Norm-wise, relative tolerance per parameter; of the loss too. */
const TOLERANCE = 1e-4;
/** In a model of half precision, whose numbers have eleven bits. */
const HALF_TOLERANCE = 5e-3;

/** Gradients so much smaller than all together are zero but for rounding: those of an attention's key bias. */
const NOTHING = 1e-6;

const OPTIMIZERS = [
  { kind: 'sgd', learningRate: 1e-2 },
  { kind: 'adamw', learningRate: 1e-3 },
] as const;

/**
 * AdamW moves every element by about the rate, whatever its gradient is, and a step across the kinks of many ReLUs is another one
 * after each rounding: PyTorch's own float32 strays from its float64 by 12 % of the loss in ten steps of 1e-3.
 */
const SMALL_STEPS = /resnet/;

const absence = torchAbsence();
const SHARED = sharedSources();

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  const worst: string[] = [];
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always((t) => {
    torch.close();
    t.log(['model · parameters · worst gradient', ...worst].join('\n'));
  });
  if (missing(SHARED.length === 0, ABSENT) !== null) test.skip(ABSENT, () => undefined);

  for (const source of [...shippedSources(), ...SHARED]) {
    test.serial(`gradients of ${source.name}`, async (t) => {
      worst.push(await compareGradients(t, torch, source));
    });
    for (const optimizer of OPTIMIZERS)
      test.serial(`ten steps of ${optimizer.kind}: ${source.name}`, (t) => compareSteps(t, torch, source, optimizer));
  }
}

async function compareGradients(t: ExecutionContext, torch: Torch, source: CaseSource): Promise<string> {
  const item = await source.open();
  const wanted = trainedWeights(item.imported.graph);
  const { loss, gradients } = await ownGradients(item, wanted);
  const { model, turned } = importedCase(item, wanted);
  const expected = await torch.evaluate({ ...jobOf(item, wanted), model, dtype: 'float64', arrays: item.arrays });
  const tolerance = item.half ? HALF_TOLERANCE : TOLERANCE;
  t.true(apart(loss, expected.loss ?? Number.NaN) <= tolerance, `loss ${loss}, expected ${expected.loss}`);
  const norms = wanted.map((name) => norm(numbersOf(needed(expected.gradients, name))));
  const whole = norm(norms);
  t.true(whole > 0);
  const errors = wanted.map((name, at) => {
    const distance = distanceOf(needed(gradients, name), inOrder({ turned }, name, expected.gradients));
    return { name, error: distance / Math.max(norms[at] ?? 0, NOTHING * whole) };
  });
  const [largest] = [...errors].sort((left, right) => right.error - left.error);
  const text = `${item.name} · ${wanted.length} · ${largest?.error.toExponential(1)} (${largest?.name})`;
  t.log(text);
  t.deepEqual(
    errors.filter(({ error }) => !(error <= tolerance)),
    [],
  );
  return text;
}

async function compareSteps(
  t: ExecutionContext,
  torch: Torch,
  source: CaseSource,
  optimizer: (typeof OPTIMIZERS)[number],
): Promise<void> {
  const item = await source.open();
  const placed = placedCase(item);
  const wanted = placed.parameters;
  const { kind } = optimizer;
  const small = kind === 'adamw' && SMALL_STEPS.test(item.name);
  const settings = {
    learningRate: small ? optimizer.learningRate / 10 : optimizer.learningRate,
  };
  const own = await ownSteps(item, { optimizer: { kind, ...settings } }, STEPS);
  const job = {
    ...jobOf(item, wanted),
    model: placed.model,
    batches: [item.arrays],
    steps: STEPS,
    optimizer: {
      name: kind,
      ...settings,
      weightDecay: kind === 'adamw' ? 0.01 : 0,
      undecayed: wanted.filter((name) => placed.shapeOf(name).length < 2),
    },
  } as const;
  const fine = await torch.train({ ...job, dtype: 'float64' });
  // The error of PyTorch's own float32 (or of the file's precision): where a gradient is zero but for rounding, Adam's
  // steps are those of the rounding.
  const coarse = await torch.train(job);
  const tolerance = item.half ? HALF_TOLERANCE : TOLERANCE;
  /** Half precision has no 1e-8: as PyTorch's divisor it is zero, and its parameters are NaN. */
  const given = (rounding: number) => (item.half && Number.isNaN(rounding) ? 0 : rounding);
  t.is(own.losses.length, STEPS);
  for (const [step, loss] of fine.losses.entries()) {
    const open = given(apart(coarse.losses[step] ?? Number.NaN, loss));
    const error = apart(own.losses[step] ?? Number.NaN, loss);
    t.true(error <= Math.max(tolerance, 2 * open), `step ${step}: ${own.losses[step]}, expected ${loss}`);
  }
  const open: string[] = [];
  const off: string[] = [];
  let worst = 0;
  for (const name of wanted) {
    const expected = inOrder(placed, name, fine.parameters);
    const size = norm(numbersOf(expected));
    const own32 = distanceOf(needed(own.parameters, name), expected) / size;
    const torch32 = given(distanceOf(inOrder(placed, name, coarse.parameters), expected) / size);
    // Probabilities that are computed again round otherwise than those that are kept.
    if (!(own32 <= Math.max(tolerance, 4 * torch32))) off.push(`${name}: ${own32}`);
    else if (own32 > tolerance) open.push(`${name} ${own32.toExponential(1)} (PyTorch ${torch32.toExponential(1)})`);
    else worst = Math.max(worst, own32);
  }
  t.log(
    `losses ${own.losses[0]?.toPrecision(4)} … ${own.losses.at(-1)?.toPrecision(4)}, parameters ${worst.toExponential(1)}`,
  );
  if (open.length > 0) t.log(`rounding leaves open: ${open.join(', ')}`);
  t.deepEqual(off, []);
  t.true(item.half || open.length * 4 <= wanted.length, 'most parameters do not hang on rounding');
}

function jobOf({ file, torchLoss }: TrainingCase, parameters: readonly string[]) {
  return { model: file, loss: torchLoss, parameters } satisfies TorchModel & Record<'loss', unknown>;
}

/** PyTorch's tensor, dimensions as autopar holds them. */
function inOrder({ turned }: Pick<TrainingCase, 'turned'>, name: string, arrays: Arrays): ConstantTensor {
  const tensor = needed(arrays, name);
  return turned.has(name) ? transposed(tensor) : tensor;
}

function needed(arrays: Arrays, name: string): ConstantTensor {
  const tensor = arrays[name];
  if (!tensor) throw new Error(`${name} is missing`);
  return tensor;
}

function apart(got: number, expected: number): number {
  return Math.abs(got - expected) / Math.abs(expected);
}

/** ‖got − expected‖; NaN where shapes differ. */
function distanceOf(got: ConstantTensor, expected: ConstantTensor): number {
  if (got.shape.join() !== expected.shape.join() || elementCount(got.shape) === 0) return Number.NaN;
  const own = numbersOf(got);
  return norm(numbersOf(expected).map((value, at) => (own[at] ?? Number.NaN) - value));
}

function norm(values: readonly number[]): number {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}
