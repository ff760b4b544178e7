/**
 * @file Costs of a model's parts under the configurations of a search: priced once for all configurations that share them,
 * whatever their schedule, chunks, and layers that recompute.
 */
import type { Cluster } from '../../cost-model/cluster.js';
import type { MeshOrder, Offload, StepConfiguration } from '../../cost-model/step/configuration.js';
import { STEP_CONSTANTS } from '../../cost-model/step/constants.js';
import { type PartsBytes, partBytes } from '../../cost-model/step/part-bytes.js';
import { type PartPrices, priceParts } from '../../cost-model/step/part-price.js';
import type { ModelWork } from '../../cost-model/step/work.js';
import { LAYER_RECOMPUTE_KINDS } from '../../ir/autodiff/recompute-names.js';
import { madeOnce } from '../../ir/remembered.js';
import type { PhasesOfStep } from './phases-of-step.js';

/** Remembers one combination and micro-batch at a time: a search looks at all variants of one before the next. */
export class PartsOfStep {
  private degrees: StepConfiguration['degrees'] | null = null;
  private microBatch = 0;
  private meshOrder: MeshOrder | undefined;
  private readonly knownBytes = new Map<number, PartsBytes>();
  private readonly knownPrices = new Map<Cluster, Map<number, PartPrices>>();

  constructor(
    private readonly workOf: (configuration: StepConfiguration) => ModelWork,
    private readonly phasesOf: PhasesOfStep,
  ) {}

  prices(configuration: StepConfiguration, cluster: Cluster): PartPrices {
    const key = this.keyOf(configuration);
    const onCluster = madeOnce(this.knownPrices, cluster, () => new Map<number, PartPrices>());
    return madeOnce(onCluster, key, () =>
      priceParts(this.workOf(configuration), configuration, cluster, STEP_CONSTANTS, {
        phases: this.phasesOf(configuration, cluster),
        bytes: this.bytes(configuration),
      }),
    );
  }

  bytes(configuration: StepConfiguration): PartsBytes {
    const key = this.keyOf(configuration);
    return madeOnce(this.knownBytes, key, () => partBytes(this.workOf(configuration), configuration));
  }

  /** The key of a configuration; drops entries of other degrees, another micro-batch or order. */
  private keyOf(configuration: StepConfiguration): number {
    const {
      degrees,
      microBatch,
      meshOrder,
      tpSequence,
      virtualStages,
      offload = 'none',
      recompute,
      zero,
    } = configuration;
    if (degrees !== this.degrees || microBatch !== this.microBatch || meshOrder !== this.meshOrder) {
      this.knownBytes.clear();
      this.knownPrices.clear();
      this.degrees = degrees;
      this.microBatch = microBatch;
      this.meshOrder = meshOrder;
    }
    const host = OFFLOADS.indexOf(offload) * LAYER_RECOMPUTE_KINDS.length + LAYER_RECOMPUTE_KINDS.indexOf(recompute);
    return ((host * ZERO_LEVELS + zero) * 2 + (tpSequence ? 1 : 0)) * 2 + (virtualStages > 1 ? 1 : 0);
  }
}

const OFFLOADS: readonly Offload[] = ['none', 'optimizer', 'activations', 'all'];
const ZERO_LEVELS = 4;
