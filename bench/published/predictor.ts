/**
 * @file Predicts published runs. What depends on the model alone is read off its graph once; constants may then vary.
 */
import { modelWork } from '../../src/api/layer-classes.js';
import type { StepConstants } from '../../src/cost-model/step/constants.js';
import { priceStep, type StepPrice } from '../../src/cost-model/step/step-price.js';
import type { ModelWork } from '../../src/cost-model/step/work.js';
import type { PublishedRun } from './run.js';

export class Predictor {
  private readonly works = new Map<string, ModelWork>();

  /** Number of layer classes that were generated. */
  get classes(): number {
    return this.works.size;
  }

  work({ sizes, configuration, cluster }: PublishedRun): ModelWork {
    // Counts of layers do not change a class; they are put in afterwards.
    const { layers, experts, ...rest } = sizes;
    const { tp } = configuration.degrees;
    const dense = experts ? Math.min(experts.dense, layers) : layers;
    const key = JSON.stringify([rest, experts, dense > 0, tp]);
    const known = this.works.get(key) ?? modelWork(sizes, tp, cluster);
    this.works.set(key, known);
    const counts = experts ? [...(dense > 0 ? [dense] : []), layers - dense] : [layers];
    return { ...known, layers: known.layers.map(({ part }, index) => ({ part, count: counts[index] ?? 0 })) };
  }

  price(run: PublishedRun, constants: StepConstants): StepPrice {
    return priceStep(this.work(run), run.configuration, run.cluster, constants);
  }
}
