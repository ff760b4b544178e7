/**
 * @file Options of training: which loss, which optimizer, which weights, in which precision.
 */
import type { Training } from '../api/index.js';
import {
  badOption,
  camelCase,
  checkTraining,
  dashed,
  GRADIENT_REDUCTIONS,
  LOSSES,
  OPTIMIZERS,
  withoutUndefined,
} from '../api/words.js';
import type { CommandOption } from './command.js';
import { trainingFormOf, trainingFormOptions } from './training-form-options.js';
import { choiceAmong, integer, integerParser, nonNegative, numbers, repeatedValues } from './values.js';

const SCHEDULES = ['constant', 'linear', 'cosine'] as const;
const PRECISIONS = ['fp32', 'fp16', 'bf16'];

/** Their values, by the names that the parser gives them. */
export interface TrainingFlags
  extends Omit<Training, 'loss' | 'optimizer' | 'lossAlone' | 'isHeldInFloat32'>,
    Partial<Omit<Training['optimizer'], 'kind' | 'betas' | 'schedule'>> {
  readonly train?: boolean;
  readonly loss?: (typeof LOSSES)[number];
  readonly lossOutput?: string;
  readonly ignoreIndex?: number;
  readonly classWeights?: string;
  readonly labelSmoothing?: number;
  readonly moeBalance?: number;
  readonly optimizer?: (typeof OPTIMIZERS)[number];
  readonly betas?: readonly number[];
  readonly scheduleLr?: (typeof SCHEDULES)[number];
  readonly warmup?: number;
  readonly totalSteps?: number;
  readonly minLrRatio?: number;
  readonly microBatch?: number;
}

export const trainingOptions: readonly CommandOption[] = [
  { flags: '--train', says: 'plan a training step with loss, gradients and optimizer' },
  {
    flags: '--loss <kind>',
    says: 'cross_entropy (default), mse, or model-output: an existing loss output',
    parse: choiceAmong(LOSSES),
  },
  { flags: '--loss-output <name>', says: 'output to take the loss of, if there are several' },
  {
    flags: '--ignore-index <n>',
    says: 'label value to ignore (default: -100)',
    parse: integer,
  },
  { flags: '--class-weights <file>', says: '.npy or .npz weight of each class (default: 1)' },
  {
    flags: '--label-smoothing <e>',
    says: 'target share spread over all classes (default: 0)',
    parse: nonNegative,
  },
  {
    flags: '--moe-balance <w>',
    says: 'weight of the load-balancing loss of experts (default: none)',
    parse: nonNegative,
  },
  {
    flags: '--optimizer <kind>',
    says: 'sgd, adam, adamw or lamb (default: adamw)',
    parse: choiceAmong(OPTIMIZERS),
  },
  { flags: '--learning-rate <r>', says: 'default: 1e-3', parse: nonNegative },
  { flags: '--momentum <m>', says: "sgd's momentum (default: 0)", parse: nonNegative },
  { flags: '--nesterov', says: "sgd with Nesterov's momentum" },
  {
    flags: '--betas <a,b>',
    says: 'moment decay of adam, adamw and lamb (default: 0.9,0.999)',
    parse: numbers(2, '0.9,0.95'),
  },
  {
    flags: '--epsilon <e>',
    says: 'epsilon of adam, adamw and lamb (default: 1e-8; lamb 1e-6)',
    parse: nonNegative,
  },
  {
    flags: '--weight-decay <w>',
    says: 'weight decay of matrices only (default: 0; adamw 0.01)',
    parse: nonNegative,
  },
  {
    flags: '--decayed <glob>',
    says: 'further weights that decay, besides matrices; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
  { flags: '--undecayed <glob>', says: 'weights that do not decay; repeatable', parse: repeatedValues, repeats: true },
  { flags: '--clip-norm <n>', says: 'scale gradients to this global norm at most', parse: nonNegative },
  {
    flags: '--schedule-lr <shape>',
    says: 'learning-rate decay after --warmup: constant (default), linear or cosine',
    parse: choiceAmong(SCHEDULES),
  },
  {
    flags: '--warmup <steps>',
    says: 'warm-up steps of the learning rate',
    parse: integerParser(1),
  },
  {
    flags: '--total-steps <n>',
    says: 'steps until linear and cosine reach their minimum',
    parse: integerParser(1),
  },
  {
    flags: '--min-lr-ratio <r>',
    says: 'their minimum as a share of the rate (default: 0)',
    parse: nonNegative,
  },
  {
    flags: '--precision <recipe>',
    says: 'fp32 (default); fp16 or bf16, with fp32 weights in training',
    parse: choiceAmong(PRECISIONS),
  },
  {
    flags: '--loss-scale <s|dynamic>',
    says: 'loss scale for gradients (default: dynamic for fp16, else 1)',
    parse: (text, name) => (text === 'dynamic' ? text : nonNegative(text, name)),
  },
  {
    flags: '--gradient-reduction <how>',
    says: 'mean (default) or sum of the gradients of dp ranks',
    parse: choiceAmong(GRADIENT_REDUCTIONS),
  },
  {
    flags: '--micro-batches <count>',
    says: 'number of micro-batches with accumulated gradients (default: 1)',
    parse: integerParser(1),
  },
  {
    flags: '--micro-batch <samples>',
    says: 'samples per dp rank and micro-batch: batch = dp · micro-batch · micro-batches',
    parse: integerParser(1),
  },
  ...trainingFormOptions,
];

/** The requested training. @throws AutoparError (usage) for options of training without --train, or contradictory ones */
export async function trainingOf(
  flags: TrainingFlags,
): Promise<{ readonly training?: Training; readonly microBatch?: number }> {
  const form = trainingFormOf(flags);
  // Inference has a precision too.
  const { precision, ...others } = flags;
  if (!flags.train) return refuseStray({ ...trainingFlagsIn(others), ...form });
  const { decayed, undecayed, lossScale, gradientReduction, microBatches, microBatch } = flags;
  const training: Training = {
    loss: await lossOf(flags),
    optimizer: optimizerOf(flags),
    ...withoutUndefined({ decayed, undecayed, precision, lossScale, gradientReduction, microBatches }),
    ...form,
  };
  checkTraining(training);
  return { training, ...withoutUndefined({ microBatch }) };
}

/** @throws AutoparError (usage) for an option of training without --train, but for those that say which parameters there are */
export function refuseTraining(flags: TrainingFlags): void {
  refuseStray(trainingFlagsIn(flags));
}

/** The options of training that were given. */
function trainingFlagsIn(flags: TrainingFlags): Partial<TrainingFlags> {
  const names = trainingOptions.map(({ flags: text }) => camelCase(/--([\w-]+)/.exec(text)?.[1] ?? ''));
  const own = new Set(names.filter((name) => name !== 'train'));
  return Object.fromEntries(Object.entries(flags).filter(([name]) => own.has(name)));
}

function refuseStray(found: object): Record<string, never> {
  const [stray] = Object.entries(found).filter(([, value]) => value !== undefined);
  if (!stray) return {};
  throw badOption(`--${dashed(stray[0])} applies to training only`, 'add --train');
}

async function lossOf(flags: TrainingFlags): Promise<Training['loss']> {
  const {
    loss = 'cross_entropy',
    lossOutput: output,
    ignoreIndex,
    classWeights: file,
    labelSmoothing,
    moeBalance,
  } = flags;
  const classWeights = file === undefined ? undefined : await (await import('../api/index.js')).readNumbers(file);
  return { kind: loss, ...withoutUndefined({ output, ignoreIndex, classWeights, labelSmoothing, moeBalance }) };
}

function optimizerOf(flags: TrainingFlags): Training['optimizer'] {
  const { optimizer = 'adamw', learningRate = 1e-3, momentum, nesterov, epsilon, weightDecay, clipNorm } = flags;
  const { betas: [first, second] = [], warmup, scheduleLr: shape, totalSteps: total, minLrRatio: floor } = flags;
  const betas = first === undefined || second === undefined ? undefined : ([first, second] as const);
  const schedule = withoutUndefined({ warmup, shape, total, floor });
  return {
    kind: optimizer,
    learningRate,
    ...withoutUndefined({ momentum, nesterov, betas, epsilon, weightDecay, clipNorm }),
    ...(Object.keys(schedule).length > 0 ? { schedule } : {}),
  };
}
