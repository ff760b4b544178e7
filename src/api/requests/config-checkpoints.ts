/**
 * @file The strategy checkpoints that a configuration names: strategy_ckpt_load_file is read as pins before planning,
 * strategy_ckpt_save_file is written from the plan. Both are MindSpore's files: JSON or protobuf, by their names.
 */
import { AutoparError } from '../../ir/error.js';
import type { ParallelConfig } from '../parallel-config/parallel-config.js';
import type { ModelOptions } from '../strategies/forms.js';
import { convertStrategy, strategyPins } from '../strategy.js';
import { type Annotations, annotationsOf } from './annotations.js';

/**
 * The pins for the model from the configuration's checkpoint; null where it names none.
 * @throws AutoparError (usage) `two-sources-of-pins` where annotations are given as well; also the errors of reading it
 */
export async function loadedPins(
  config: ParallelConfig | undefined,
  annotations: Annotations | undefined,
  model: ModelOptions,
): Promise<Annotations | null> {
  const from = config?.strategyLoadFile;
  if (!config || !from) return null;
  if (annotations)
    throw new AutoparError(
      'two-sources-of-pins',
      'usage',
      `the configuration loads ${from}, and annotations are given as well`,
      { ...(config.file === null ? {} : { file: config.file }) },
      'convert the checkpoint to annotations with autopar strategy import, and edit those',
    );
  const { dataParallel: dp, contextParallel: sp, modelParallel: tp } = config;
  const pins = await strategyPins({ ...model, from, degrees: { dp, sp, tp } });
  return { ...annotationsOf(pins), file: from };
}

/** Writes the checkpoint that the configuration asks for; returns its file, or null where it asks for none. */
export async function saveStrategy(
  config: ParallelConfig | undefined,
  directory: string,
  model: ModelOptions,
): Promise<string | null> {
  const output = config?.strategySaveFile;
  if (!output) return null;
  const to = /\.json$/i.test(output) ? 'mindspore-json' : 'mindspore';
  await convertStrategy({ ...model, from: directory, output, to });
  return output;
}
