/**
 * @file Predictions of `bench:accuracy --calibrated`: each run is predicted from the runs of all other models of its table on the
 * same device, without those of its own model.
 */

import { fitLayers } from '../../src/cost-model/measured-layers/fit-layers.js';
import { crossValidatedSeconds } from '../../src/cost-model/measured-layers/left-out.js';
import { groupBy } from '../../src/ir/group-by.js';
import type { PublishedPredictor } from './predictor.js';
import type { PublishedRun } from './run.js';

/** Step seconds by run; there are none for devices with a single model and for runs without a time. */
export async function calibratedSeconds(
  runs: readonly PublishedRun[],
  predictor: PublishedPredictor,
): Promise<ReadonlyMap<PublishedRun, number>> {
  const found = new Map<PublishedRun, number>();
  const timed = runs.filter(({ seconds }) => seconds !== null);
  for (const own of groupBy(timed, ({ cluster }) => cluster.device.id).values()) {
    const measured = own.map(async (run) => ({
      ...run,
      work: await predictor.work(run),
      seconds: run.seconds ?? Number.NaN,
    }));
    const fit = fitLayers(await Promise.all(measured));
    const seconds = crossValidatedSeconds(fit, (_, index) => own[index]?.row['model'] ?? '');
    for (const [index, run] of own.entries()) if (seconds) found.set(run, seconds[index] as number);
  }
  return found;
}
