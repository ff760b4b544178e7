/**
 * @file A configuration with its price: seconds, and the bytes that it needs of devices and hosts.
 */
import type { StepConfiguration } from '../../cost-model/step/configuration.js';

export interface Need {
  readonly stage: number;
  readonly bytes: number;
  readonly host?: { readonly bytes: number; readonly memoryBytes: number };
}

/** Whether devices and hosts hold it. */
export function fitsIn({ bytes, host }: Need, limitBytes: number | null): boolean {
  return (limitBytes === null || bytes <= limitBytes) && (host === undefined || host.bytes <= host.memoryBytes);
}

export interface Priced extends Need {
  readonly configuration: StepConfiguration;
  readonly seconds: number;
  /**
   * With every action of its schedule simulated: of one that its closed form calls faster than the configuration that was taken.
   */
  readonly simulatedSeconds?: number;
}
