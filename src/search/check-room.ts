/** @file Devices without room for any tensor are refused before anything is searched. */
import type { Cluster } from '../cost-model/cluster.js';
import { fixedBytes, usableBytes } from '../cost-model/predict.js';
import { AutoparError } from '../ir/error.js';
import { bytesWritten } from './figures.js';

/**
 * @param limitBytes the limit that was given for tensors: the device's memory then does not matter
 * @throws AutoparError (noPlan) `nothing-fits` where context and communication library take all of a device's memory
 */
export function checkRoom(cluster: Cluster, limitBytes: number | undefined): void {
  if (limitBytes !== undefined || (usableBytes(cluster) ?? 1) > 0) return;
  throw new AutoparError(
    'nothing-fits',
    'noPlan',
    `a device has ${bytesWritten(cluster.device.memoryBytes)}, and context and communication library take ` +
      `${bytesWritten(fixedBytes(cluster))}: nothing is left for tensors`,
    {},
    'take devices with more memory (--cluster), or give the memory of the tensors themselves, such as --memory 500MB',
  );
}
