/**
 * @file Options of the form that a model is trained in: the parts that are switched to training, and tied weights.
 */
import type { TrainingFormOptions } from '../api/index.js';
import { BATCH_STATISTICS, withoutUndefined } from '../api/words.js';
import type { CommandOption } from './command.js';
import { choiceAmong, integerParser, repeatedValues } from './values.js';

const TRAIN_MODES = ['training', 'as-exported'];

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
    parse: choiceAmong(TRAIN_MODES),
  },
  {
    flags: '--batch-statistics <whose>',
    says: 'scope of BatchNormalization statistics: batch (default), micro-batch, or dp shard',
    parse: choiceAmong(BATCH_STATISTICS),
  },
  { flags: '--freeze-batch-statistics', says: "use BatchNormalization's running statistics unchanged" },
  {
    flags: '--dropout-seed <n>',
    says: 'seed of Dropout (default: 0)',
    parse: integerParser(0),
  },
];

/** Those that were given. */
export function trainingFormOf(flags: TrainingFormOptions): TrainingFormOptions {
  const { trainMode, batchStatistics, freezeBatchStatistics, dropoutSeed, tie, untie, trainable, frozen } = flags;
  const modes = { trainMode, batchStatistics, freezeBatchStatistics, dropoutSeed };
  return withoutUndefined({ ...modes, tie, untie, trainable, frozen });
}
