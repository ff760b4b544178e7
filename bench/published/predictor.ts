/**
 * @file Predicts published runs as the product does, and adds multi-token prediction for the runs that use it.
 */
import { Predictor } from '../../src/api/calibration/predictor.js';
import type { ModelWork } from '../../src/cost-model/step/work.js';
import { withPredictions } from './multi-token.js';
import type { PublishedRun } from './run.js';

export class PublishedPredictor extends Predictor {
  override async work(run: PublishedRun): Promise<ModelWork> {
    return withPredictions(await super.work(run), run.sizes, run.configuration.degrees.tp, run.predictions);
  }
}
