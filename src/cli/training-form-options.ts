/**
 * @file Options of the form that a model is trained in: the parts that are switched to training, and tied weights.
 */
import type { BatchStatistics, TrainingFormOptions } from '../api/index.js';
import { BATCH_STATISTICS } from '../api/words.js';
import type { CommandOption } from './command.js';
import { choiceAmong, integerParser, repeatedValues } from './values.js';

const TRAIN_MODES = ['training', 'as-exported'] as const;

/** Their values, by the names that the parser gives them. */
export interface TrainingFormFlags {
  readonly trainMode?: (typeof TRAIN_MODES)[number];
  readonly batchStatistics?: BatchStatistics;
  readonly freezeBatchStatistics?: boolean;
  readonly dropoutSeed?: number;
  readonly tie?: readonly string[];
  readonly untie?: readonly string[];
  readonly trainable?: readonly string[];
  readonly frozen?: readonly string[];
}

/** Options that define the parameters: `inspect` shows their effect, `compile --train` trains accordingly. */
export const parameterOptions: readonly CommandOption[] = [
  { flags: '--tie <a=b>', says: 'tie two parameters; repeatable', parse: repeatedValues, repeats: true },
  {
    flags: '--untie <a>',
    says: 'give each user of this parameter its own copy; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
  {
    flags: '--trainable <glob>',
    says: 'parameters to train; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
  {
    flags: '--frozen <glob>',
    says: 'parameters not to train, unless --trainable matches; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
];

export const trainingFormOptions: readonly CommandOption[] = [
  {
    flags: '--train-mode <mode>',
    says: 'training (default): batch statistics and active Dropout; as-exported: unchanged',
    parse: choiceAmong('--train-mode', TRAIN_MODES),
  },
  {
    flags: '--batch-statistics <whose>',
    says: 'scope of BatchNormalization statistics: batch (default), micro-batch, or dp shard',
    parse: choiceAmong('--batch-statistics', BATCH_STATISTICS),
  },
  { flags: '--freeze-batch-statistics', says: "use BatchNormalization's running statistics unchanged" },
  {
    flags: '--dropout-seed <n>',
    says: 'seed of Dropout (default: 0)',
    parse: integerParser('--dropout-seed', 0),
  },
];

/** Those that were given. */
export function trainingFormOf(flags: TrainingFormFlags): TrainingFormOptions {
  const { trainMode, batchStatistics, freezeBatchStatistics, dropoutSeed, tie, untie, trainable, frozen } = flags;
  return {
    ...(trainMode === undefined ? {} : { trainMode }),
    ...(batchStatistics === undefined ? {} : { batchStatistics }),
    ...(freezeBatchStatistics === undefined ? {} : { freezeBatchStatistics }),
    ...(dropoutSeed === undefined ? {} : { dropoutSeed }),
    ...(tie ? { tie } : {}),
    ...(untie ? { untie } : {}),
    ...(trainable ? { trainable } : {}),
    ...(frozen ? { frozen } : {}),
  };
}
