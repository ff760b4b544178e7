/**
 * @file The request for training. Options that contradict each other are rejected without looking at a model; no option is
 * ignored.
 */
import type { LossOptions } from '../../ir/autodiff/append-loss.js';
import { completeOptimizer, type OptimizerOptions } from '../../ir/autodiff/optimizer-options.js';
import type { TrainingPrecision } from '../../ir/autodiff/training-graph.js';
import { badOption } from '../../ir/error.js';
import type { GradientReduction } from '../models/gradient-reduction.js';
import type { TrainingFormOptions } from '../models/training-form.js';

/** Options of a training step. */
export interface Training extends TrainingFormOptions {
  readonly loss: LossOptions;
  readonly optimizer: OptimizerOptions;
  /** Globs of weights that decay besides matrices, and of weights that do not. */
  readonly decayed?: readonly string[];
  readonly undecayed?: readonly string[];
  /** fp32 by default. */
  readonly precision?: TrainingPrecision;
  /** The loss scale; dynamic for fp16, 1 for the others. */
  readonly lossScale?: number | 'dynamic';
  /**
   * `mean` (the default): gradients are those of the loss of the whole batch. `sum`: each data-parallel rank has the mean loss of
   * its samples, and gradients of ranks are summed: they are `shards` times as large.
   */
  readonly gradientReduction?: GradientReduction;
  /** Micro-batches of a step, which run one after the other with gradient accumulation; 1 by default. */
  readonly microBatches?: number;
  /** Devices lack 16-bit types: values of these types are held in float32, and rounded. */
  readonly isHeldInFloat32?: boolean;
  /** The step returns only its loss, and none of the model's outputs. */
  readonly lossAlone?: boolean;
}

export const LOSSES = ['cross_entropy', 'mse', 'model-output'] as const satisfies readonly LossOptions['kind'][];
export const OPTIMIZERS = ['sgd', 'adam', 'adamw', 'lamb'] as const satisfies readonly OptimizerOptions['kind'][];

/** @throws AutoparError (usage) `bad-option` naming the option of the command line */
export function checkTraining(training: Training): void {
  const wrong = RULES.find(({ holds }) => !holds(training));
  if (!wrong) return;
  const message = typeof wrong.says === 'string' ? wrong.says : wrong.says(training);
  throw badOption(message, wrong.hint);
}

interface TrainingRule {
  readonly holds: (training: Training) => boolean;
  readonly says: string | ((training: Training) => string);
  readonly hint: string;
}

const isSgd = ({ optimizer }: Training) => optimizer.kind === 'sgd';
const isFalling = ({ optimizer: { schedule } }: Training) => (schedule?.shape ?? 'constant') !== 'constant';
const isEntropy = ({ loss }: Training) => loss.kind === 'cross_entropy';
const isShare = (value: number | undefined) => value === undefined || (value >= 0 && value <= 1);

/** The rule of an option that is valid only with certain choices. */
function only(
  flag: string,
  given: (training: Training) => unknown,
  fits: (training: Training) => boolean,
  says: (training: Training) => string,
  hint: string,
): TrainingRule {
  return {
    holds: (training) => given(training) === undefined || fits(training),
    says: (training) => `${flag} ${says(training)}`,
    hint,
  };
}

const ofSgd = ({ optimizer }: Training) => `applies to sgd only, and the optimizer is ${optimizer.kind}`;
const ofAdam = () => 'applies to adam, adamw and lamb only, and the optimizer is sgd';
const ofEntropy = ({ loss }: Training) => `applies to cross_entropy only, and the loss is ${loss.kind}`;
const LEAVE = 'leave one of the two out';

const RULES: readonly TrainingRule[] = [
  {
    holds: ({ loss, optimizer }: Partial<Training>) => loss?.kind !== undefined && optimizer?.kind !== undefined,
    says: 'training needs a loss and an optimizer',
    hint: "training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } }",
  },
  {
    holds: ({ loss: { moeBalance = 1 } }) => moeBalance > 0 && Number.isFinite(moeBalance),
    says: ({ loss }) => `--moe-balance ${loss.moeBalance}: expected a number above 0`,
    hint: '0.01 is usual; leave it out for none',
  },
  only('--ignore-index', ({ loss }) => loss.ignoreIndex, isEntropy, ofEntropy, LEAVE),
  only('--class-weights', ({ loss }) => loss.classWeights, isEntropy, ofEntropy, LEAVE),
  only('--label-smoothing', ({ loss }) => loss.labelSmoothing, isEntropy, ofEntropy, LEAVE),
  {
    holds: ({ loss }) => isShare(loss.labelSmoothing),
    says: ({ loss }) => `--label-smoothing ${loss.labelSmoothing}: expected a share from 0 to 1`,
    hint: '0.1 is usual',
  },
  {
    holds: ({ loss }) => loss.classWeights?.every((weight) => Number.isFinite(weight) && weight >= 0) ?? true,
    says: '--class-weights: expected finite numbers that are not negative',
    hint: 'correct the file',
  },
  only('--momentum', ({ optimizer }) => optimizer.momentum, isSgd, ofSgd, '--betas has the moments of the others'),
  only('--nesterov', ({ optimizer }) => optimizer.nesterov, isSgd, ofSgd, LEAVE),
  {
    holds: ({ optimizer: { nesterov, momentum = 0 } }) => !nesterov || momentum > 0,
    says: '--nesterov needs a momentum',
    hint: 'add --momentum 0.9',
  },
  only(
    '--betas',
    ({ optimizer }) => optimizer.betas,
    (training) => !isSgd(training),
    ofAdam,
    '--momentum is that of sgd',
  ),
  {
    holds: ({ optimizer: { betas = [0, 0] } }) => betas.every((beta) => beta >= 0 && beta < 1),
    says: ({ optimizer }) => `--betas ${optimizer.betas}: expected two numbers of at least 0 and below 1`,
    hint: '0.9,0.999 is usual',
  },
  only(
    '--epsilon',
    ({ optimizer }) => optimizer.epsilon,
    (training) => !isSgd(training),
    ofAdam,
    LEAVE,
  ),
  {
    holds: ({ optimizer }) => optimizer.clipNorm !== 0,
    says: '--clip-norm 0 would set all gradients to zero',
    hint: '1 is usual; leave it out for none',
  },
  {
    holds: ({ optimizer, decayed, undecayed }) =>
      (decayed === undefined && undecayed === undefined) || completeOptimizer(optimizer).weightDecay > 0,
    says: ({ decayed }) => `--${decayed ? 'decayed' : 'undecayed'} selects weights that decay, and --weight-decay is 0`,
    hint: 'add --weight-decay',
  },
  {
    holds: (training) => !isFalling(training) || training.optimizer.schedule?.total !== undefined,
    says: ({ optimizer }) => `--schedule-lr ${optimizer.schedule?.shape} needs the number of steps`,
    hint: 'add --total-steps',
  },
  only(
    '--total-steps',
    ({ optimizer }) => optimizer.schedule?.total,
    isFalling,
    () => 'needs a decay of the learning rate',
    'add --schedule-lr cosine or linear',
  ),
  only(
    '--min-lr-ratio',
    ({ optimizer }) => optimizer.schedule?.floor,
    isFalling,
    () => 'needs a decay of the learning rate',
    'add --schedule-lr cosine or linear',
  ),
  {
    holds: ({ optimizer: { schedule } }) => isShare(schedule?.floor),
    says: ({ optimizer }) => `--min-lr-ratio ${optimizer.schedule?.floor}: expected a share from 0 to 1`,
    hint: '0.1 is usual',
  },
  {
    holds: ({ optimizer: { schedule: { warmup = 0, total = Number.POSITIVE_INFINITY } = {} } }) => warmup < total,
    says: ({ optimizer }) =>
      `--warmup ${optimizer.schedule?.warmup} leaves no steps of --total-steps ${optimizer.schedule?.total}`,
    hint: 'give more steps, or a shorter warm-up',
  },
  only(
    '--batch-statistics',
    ({ batchStatistics }) => batchStatistics,
    ({ freezeBatchStatistics, trainMode }) => freezeBatchStatistics !== true && trainMode !== 'as-exported',
    ({ freezeBatchStatistics }) =>
      'sets the scope of batch statistics, and ' +
      `${freezeBatchStatistics ? '--freeze-batch-statistics' : '--train-mode as-exported'} takes none`,
    LEAVE,
  ),
  only(
    '--dropout-seed',
    ({ dropoutSeed }) => dropoutSeed,
    ({ trainMode }) => trainMode !== 'as-exported',
    () => 'applies to active Dropout, which --train-mode as-exported removes',
    LEAVE,
  ),
  only(
    '--loss-scale',
    ({ lossScale }) => lossScale,
    ({ precision = 'fp32' }) => precision !== 'fp32',
    () => 'applies to 16-bit precisions only, and the precision is fp32',
    'add --precision fp16',
  ),
  {
    holds: ({ lossScale }) => lossScale !== 0,
    says: '--loss-scale 0 would set all gradients to zero',
    hint: 'dynamic, or a power of 2 such as 1024',
  },
];
