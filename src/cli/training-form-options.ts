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
  { flags: '--tie <a=b>', says: 'these two parameters are one; repeatable', parse: repeatedValues, repeats: true },
  {
    flags: '--untie <a>',
    says: 'what shares this parameter has one of its own; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
  {
    flags: '--trainable <glob>',
    says: 'parameters of these names are trained; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
  {
    flags: '--frozen <glob>',
    says: 'parameters of these names are not, unless --trainable has them; repeatable',
    parse: repeatedValues,
    repeats: true,
  },
];

export const trainingFormOptions: readonly CommandOption[] = [
  {
    flags: '--train-mode <mode>',
    says: 'training: batch statistics and active Dropout, as model.train() has them (default); as-exported: as the file is',
    parse: choiceAmong('--train-mode', TRAIN_MODES),
  },
  {
    flags: '--batch-statistics <whose>',
    says: 'BatchNormalization takes statistics of the whole batch (default: batch), of each micro-batch, or of each shard of dp',
    parse: choiceAmong('--batch-statistics', BATCH_STATISTICS),
  },
  { flags: '--freeze-batch-statistics', says: 'BatchNormalization keeps its running statistics and uses them' },
  {
    flags: '--dropout-seed <n>',
    says: 'what Dropout draws from (default: 0)',
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
