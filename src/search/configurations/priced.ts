/**
 * @file A configuration with its price: seconds, and the bytes that it needs of devices and hosts.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';
import type { StepPrice } from '../../cost-model/step/step-price.js';

export interface StageNeed {
  readonly stage: number;
  readonly bytes: number;
  readonly host?: { readonly bytes: number; readonly memoryBytes: number };
}

/** Whether it fits the memory of devices and hosts. */
export function fitsIn({ bytes, host }: StageNeed, limitBytes: number | null): boolean {
  return (limitBytes === null || bytes <= limitBytes) && (host === undefined || host.bytes <= host.memoryBytes);
}

export interface PricedConfiguration extends StageNeed {
  readonly configuration: StepConfiguration;
  readonly seconds: number;
  /** Configurations that cannot be faster than the best are not simulated: their seconds are those of the closed form. */
  readonly priceLevel: StepPrice['priceLevel'];
}
