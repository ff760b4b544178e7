/**
 * @file Options of training that contradict each other are refused, each with what to do; none is passed over.
 */
import test from 'ava';
import { parameterOptions } from '../../src/cli/training-form-options.js';
import { type TrainingFlags, trainingOf, trainingOptions } from '../../src/cli/training-options.js';
import { AutoparError } from '../../src/ir/error.js';

const REFUSALS: readonly { readonly flags: TrainingFlags; readonly says: RegExp }[] = [
  { flags: { optimizer: 'adam', nesterov: true }, says: /^--nesterov applies to sgd only, and the optimizer is adam/ },
  { flags: { optimizer: 'lamb', momentum: 0 }, says: /^--momentum applies to sgd only, and the optimizer is lamb/ },
  { flags: { optimizer: 'sgd', nesterov: true }, says: /^--nesterov needs a momentum.*--momentum 0\.9/s },
  { flags: { optimizer: 'sgd', nesterov: true, momentum: 0 }, says: /^--nesterov needs a momentum/ },
  { flags: { optimizer: 'sgd', betas: [0.9, 0.95] }, says: /^--betas applies to adam, adamw and lamb only/ },
  { flags: { optimizer: 'sgd', epsilon: 1e-6 }, says: /^--epsilon applies to adam, adamw and lamb only/ },
  { flags: { betas: [0.9, 1] }, says: /^--betas 0\.9,1: expected two numbers of at least 0 and below 1/ },
  {
    flags: { optimizer: 'adam', undecayed: ['*'] },
    says: /^--undecayed selects weights that decay, and .*--weight-decay/s,
  },
  { flags: { weightDecay: 0, decayed: ['*'] }, says: /^--decayed selects weights that decay, and --weight-decay is 0/ },
  { flags: { scheduleLr: 'cosine' }, says: /^--schedule-lr cosine needs the number of steps.*--total-steps/s },
  { flags: { totalSteps: 9 }, says: /^--total-steps needs a decay of the learning rate.*--schedule-lr/s },
  { flags: { scheduleLr: 'constant', minLrRatio: 0.1 }, says: /^--min-lr-ratio needs a decay of the learning rate/ },
  { flags: { scheduleLr: 'linear', totalSteps: 9, minLrRatio: 2 }, says: /^--min-lr-ratio 2: expected a share/ },
  { flags: { scheduleLr: 'linear', totalSteps: 9, warmup: 9 }, says: /^--warmup 9 leaves no steps of --total-steps 9/ },
  {
    flags: { loss: 'mse', ignoreIndex: 0 },
    says: /^--ignore-index applies to cross_entropy only, and the loss is mse/,
  },
  { flags: { loss: 'model-output', labelSmoothing: 0.1 }, says: /^--label-smoothing applies to cross_entropy only/ },
  { flags: { labelSmoothing: 1.5 }, says: /^--label-smoothing 1\.5: expected a share from 0 to 1/ },
  { flags: { lossScale: 1024 }, says: /^--loss-scale applies to 16-bit precisions only, and the precision is fp32/ },
  { flags: { precision: 'fp16', lossScale: 0 }, says: /^--loss-scale 0 would set all gradients to zero/ },
];

for (const { flags, says } of REFUSALS)
  test(`refused: ${JSON.stringify(flags)}`, async (t) => {
    const error = await t.throwsAsync(trainingOf({ train: true, ...flags }), { instanceOf: AutoparError });
    t.is(error?.code, 'bad-option');
    t.is(error?.exit, 'usage');
    t.regex(`${error?.message}\n${error?.hint}`, says);
  });

test('every option of training asks for --train', async (t) => {
  for (const { flags } of [...trainingOptions, ...parameterOptions]) {
    const flag = /--([\w-]+)/.exec(flags)?.[1] ?? '';
    // Inference has a precision too.
    if (flag === 'train' || flag === 'precision') continue;
    const name = flag.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
    const error = await t.throwsAsync(trainingOf({ [name]: 'x' }), { instanceOf: AutoparError });
    t.is(error?.message, `--${flag} applies to training only`);
  }
});

test('what is asked for is what training is told', async (t) => {
  const { training } = await trainingOf({
    ...{ train: true, optimizer: 'lamb', betas: [0.8, 0.9], epsilon: 1e-5, weightDecay: 0.1, undecayed: ['emb*'] },
    ...{ scheduleLr: 'cosine', totalSteps: 100, warmup: 10, minLrRatio: 0.1, precision: 'fp16', lossScale: 'dynamic' },
    ...{ ignoreIndex: 0, frozen: ['fc*'] },
  });
  t.deepEqual(training, {
    loss: { kind: 'cross_entropy', ignoreIndex: 0 },
    optimizer: {
      ...{ kind: 'lamb', learningRate: 1e-3, betas: [0.8, 0.9], epsilon: 1e-5, weightDecay: 0.1 },
      schedule: { shape: 'cosine', total: 100, warmup: 10, floor: 0.1 },
    },
    ...{ undecayed: ['emb*'], precision: 'fp16', lossScale: 'dynamic', frozen: ['fc*'] },
  });
});
