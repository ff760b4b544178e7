/**
 * @file Predicts measured runs. What depends on the model alone is read off its graph once; constants may then vary.
 */
import { layerClasses } from '../../../models/layer-kinds.js';
import type { StepConstants } from '../../cost-model/step/constants.js';
import { priceStepExactly, type StepPrice } from '../../cost-model/step/step-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { modelWork } from '../planning/layer-classes.js';
import type { MeasuredRow } from './run.js';

export class Predictor {
  private readonly works = new Map<string, ModelWork>();

  /** Number of layer classes that were generated. */
  get classes(): number {
    return this.works.size;
  }

  work({ sizes, configuration, cluster }: Pick<MeasuredRow, 'sizes' | 'configuration' | 'cluster'>): ModelWork {
    // Counts of layers do not change a class; they are put in afterwards.
    const { layers: _, pattern, experts, ...rest } = sizes;
    const { classes, order } = layerClasses(sizes);
    const kinds = classes.map(({ kind }) => kind);
    const { tp } = configuration.degrees;
    const key = JSON.stringify([rest, experts && { ...experts, dense: 0 }, kinds, tp]);
    const known = this.works.get(key) ?? modelWork(sizes, tp, cluster);
    this.works.set(key, known);
    return {
      ...known,
      layers: known.layers.map(({ part }, index) => ({ part, count: classes[index]?.count ?? 0 })),
      ...(known.order ? { order } : {}),
    };
  }

  price(run: MeasuredRow, constants: StepConstants): StepPrice {
    return priceStepExactly(this.work(run), run.configuration, run.cluster, constants);
  }
}
