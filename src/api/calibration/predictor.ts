/**
 * @file Predicts measured runs. The work of a model is read from its graph once; constants may then vary.
 */
import type { StepConstants } from '../../cost-model/step/constants.js';
import { priceStepExactly, type StepPrice } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { modelWork } from '../planning/step-works.js';
import type { MeasuredRow } from './run.js';

type PredictedRun = Pick<MeasuredRow, 'sizes' | 'configuration' | 'cluster'>;

export class Predictor {
  private readonly works = new Map<string, Promise<ModelWork>>();

  /** Number of models that were read; a model counts once per degree of tp. */
  get models(): number {
    return this.works.size;
  }

  work({ sizes, configuration: { degrees }, cluster }: PredictedRun): Promise<ModelWork> {
    const key = JSON.stringify([sizes, degrees.tp]);
    const known = this.works.get(key) ?? modelWork(sizes, degrees.tp, cluster);
    this.works.set(key, known);
    return known;
  }

  async price(run: MeasuredRow, constants: StepConstants): Promise<StepPrice> {
    return priceStepExactly(await this.work(run), run.configuration, run.cluster, constants);
  }
}
