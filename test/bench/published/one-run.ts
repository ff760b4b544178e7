/**
 * @file A row of a table of published runs, for tests of how tables are read.
 */
import { type PublishedRun, publishedRun } from '../../../bench/published/run.js';

export const ROW = {
  gpu_type: 'A100-SXM-80GB',
  gpus: '16',
  model: 'gpt-x',
  layers: '4',
  hidden: '512',
  heads: '8',
  seq: '512',
  tp: '2',
  pp: '2',
  dp: '4',
  microbatch: '2',
  global_batch: '32',
  iteration_time_s: '0.5',
};

/** The run of a row like `ROW`. */
export function runOf(also: Readonly<Record<string, string>>): PublishedRun {
  const found = publishedRun({ ...ROW, ...also }, '');
  if (typeof found === 'string') throw new Error(found);
  return found;
}
