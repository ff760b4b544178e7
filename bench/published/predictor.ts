/**
 * @file Predicts published runs: as the product does, with the tokens beyond the next that some of them predict.
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
