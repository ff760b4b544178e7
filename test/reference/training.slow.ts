/**
 * @file The reference trains as it should: its optimizers are held against the arithmetic of their papers on a product of two
 * matrices, and it takes gradients and steps on the models of PyTorch's exporters.
 */
import test from 'ava';
import { isFloating } from '../../src/ir/dtype.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';
import { ABSENT, sharedCases } from '../api/shared-models.js';
import { randomValues } from '../ir/ops/values.js';
import { missing } from '../missing.js';
import { operatorModel } from './one-operator.js';
import { type Arrays, startTorch, type Torch, type TorchLoss, type TorchOptimizer, torchAbsence } from './torch.js';

const absence = torchAbsence();
const MODELS = sharedCases();
const [ROWS, INNER, COLUMNS] = [4, 6, 3];

const SETTINGS: readonly TorchOptimizer[] = [
  { name: 'sgd', learningRate: 0.1 },
  { name: 'sgd', learningRate: 0.1, momentum: 0.9, weightDecay: 0.01 },
  { name: 'sgd', learningRate: 0.1, momentum: 0.9, nesterov: true },
  { name: 'adam', learningRate: 0.05, weightDecay: 0.1 },
  { name: 'adamw', learningRate: 0.05, betas: [0.8, 0.9], epsilon: 1e-6, weightDecay: 0.1 },
  { name: 'adamw', learningRate: 0.05, weightDecay: 0.1, undecayed: ['x1'] },
  { name: 'lamb', learningRate: 0.05, weightDecay: 0.1 },
];

if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else {
  let torch: Torch;
  test.before(async () => {
    torch = await startTorch();
  });
  test.after.always(() => torch.close());

  for (const optimizer of SETTINGS) {
    test.serial(`five steps of ${JSON.stringify(optimizer)}`, async (t) => {
      const [left, right, target] = [drawn([ROWS, INNER], 1), drawn([INNER, COLUMNS], 2), drawn([ROWS, COLUMNS], 3)];
      const clipNorm = 0.5;
      const learningRates = [1, 0.8, 0.6, 0.4, 0.2].map((part) => part * optimizer.learningRate);
      const trained = await torch.train({
        model: operatorModel({
          op: 'MatMul',
          domain: '',
          attributes: {},
          inputs: [left, right],
          outputs: [target],
        }),
        batches: [{ x0: left, x1: right, target }],
        parameters: ['x1'],
        loss: { kind: 'mse', output: 'y0', labels: 'target' },
        steps: 5,
        optimizer,
        learningRates,
        clipNorm,
      });
      const expected = byHand(optimizer, learningRates, clipNorm, [left, right, target].map(numbersOf));
      const near = (got: readonly number[], wanted: readonly number[]) =>
        got.length === wanted.length &&
        got.every((value, index) => Math.abs(value - (wanted[index] ?? Number.NaN)) < 1e-6);
      t.true(near(trained.losses, expected.losses), `${trained.losses} / ${expected.losses}`);
      const final = trained.parameters['x1'];
      t.true(final && near(numbersOf(final), expected.parameter));
    });
  }

  if (missing(MODELS.length === 0, ABSENT) !== null) test.skip(ABSENT, () => undefined);
  for (const { name, file, inputs, outputs } of MODELS) {
    test.serial(`gradients and steps of ${name}`, async (t) => {
      const [weights, loss] = weightedLoss(outputs);
      const job = { model: file, dtype: 'float64', parameters: 'all', loss } as const;
      const { gradients, loss: value } = await torch.evaluate({ ...job, arrays: { ...inputs, ...weights } });
      if (value === null) return t.fail('no loss');
      t.true(Number.isFinite(value));
      const norms = Object.values(gradients).map((gradient) =>
        Math.sqrt(numbersOf(gradient).reduce((sum, value) => sum + value * value, 0)),
      );
      t.true(norms.every(Number.isFinite) && norms.some((norm) => norm > 0));
      const optimizer: TorchOptimizer = { name: 'sgd', learningRate: 1e-5 };
      const { losses } = await torch.train({ ...job, batches: [{ ...inputs, ...weights }], steps: 2, optimizer });
      t.true(Math.abs((losses[0] ?? Number.NaN) - value) <= 1e-9 * Math.abs(value));
      t.true((losses[1] ?? Number.NaN) < (losses[0] ?? Number.NaN), 'a small step goes down');
    });
  }
}

function drawn(shape: readonly number[], seed: number) {
  return constant('float64', randomValues({ shape, dtype: 'float64', low: -1, high: 1 }, seed).data, shape);
}

/** Random weights of all floating-point outputs, and the loss that they make. */
function weightedLoss(outputs: Arrays): readonly [Arrays, TorchLoss] {
  const floating = Object.entries(outputs).filter(([, { dtype }]) => isFloating(dtype));
  const weights = floating.map(([name, { shape }], seed) => [`weight of ${name}`, drawn(shape, seed)] as const);
  const pairs = floating.map(([name]) => [name, `weight of ${name}`] as const);
  return [Object.fromEntries(weights), { kind: 'weighted', weights: Object.fromEntries(pairs) }];
}

/** The mean square of left · w − target, trained. */
function byHand(
  {
    name,
    momentum = 0,
    nesterov = false,
    betas = [0.9, 0.999],
    epsilon,
    weightDecay = 0,
    undecayed = [],
  }: TorchOptimizer,
  rates: readonly number[],
  clipNorm: number,
  [left = [], right = [], target = []]: readonly (readonly number[])[],
): { readonly losses: readonly number[]; readonly parameter: readonly number[] } {
  const decay = undecayed.length > 0 ? 0 : weightDecay;
  const tiny = epsilon ?? (name === 'lamb' ? 1e-6 : 1e-8);
  let w = [...right];
  let [first, second] = [w.map(() => 0), w.map(() => 0)];
  const losses: number[] = [];
  for (const [step, rate] of rates.entries()) {
    const errors = target.map((wanted, place) => {
      const [row, column] = [Math.floor(place / COLUMNS), place % COLUMNS];
      const made = Array.from(
        { length: INNER },
        (_, k) => (left[row * INNER + k] ?? 0) * (w[k * COLUMNS + column] ?? 0),
      );
      return made.reduce((sum, part) => sum + part, 0) - wanted;
    });
    losses.push(errors.reduce((sum, error) => sum + error * error, 0) / errors.length);
    const slopes = w.map((_, place) => {
      const [k, column] = [Math.floor(place / COLUMNS), place % COLUMNS];
      const parts = Array.from(
        { length: ROWS },
        (_row, row) => (left[row * INNER + k] ?? 0) * (errors[row * COLUMNS + column] ?? 0),
      );
      return (2 / errors.length) * parts.reduce((sum, part) => sum + part, 0);
    });
    const scale = Math.min(1, clipNorm / (Math.hypot(...slopes) + 1e-6));
    const clipped = slopes.map((slope) => slope * scale);
    if (name === 'sgd') {
      const decayed = clipped.map((slope, at) => slope + decay * (w[at] ?? 0));
      first = decayed.map((slope, at) => momentum * (first[at] ?? 0) + slope);
      const moved = nesterov ? decayed.map((slope, at) => slope + momentum * (first[at] ?? 0)) : first;
      w = w.map((value, at) => value - rate * (moved[at] ?? 0));
      continue;
    }
    // Adam takes decay into the gradient, AdamW off the parameter, LAMB into the direction.
    const slope = clipped.map((value, at) => value + (name === 'adam' ? decay * (w[at] ?? 0) : 0));
    first = slope.map((value, at) => betas[0] * (first[at] ?? 0) + (1 - betas[0]) * value);
    second = slope.map((value, at) => betas[1] * (second[at] ?? 0) + (1 - betas[1]) * value * value);
    const directions = w.map((value, at) => {
      const mean = (first[at] ?? 0) / (1 - betas[0] ** (step + 1));
      const root = Math.sqrt((second[at] ?? 0) / (1 - betas[1] ** (step + 1)));
      return mean / (root + tiny) + (name === 'adam' ? 0 : decay * value);
    });
    const trust = name === 'lamb' ? Math.hypot(...w) / Math.hypot(...directions) : 1;
    w = w.map((value, at) => value - rate * trust * (directions[at] ?? 0));
  }
  return { losses, parameter: w };
}
