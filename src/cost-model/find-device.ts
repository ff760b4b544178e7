/**
 * @file Devices by their names: those of the catalogue, and a rank of this machine's own processor.
 */
import { distance } from 'fastest-levenshtein';
import { CPU_RANK, type DeviceSpec } from './device.js';
import { HARDWARE } from './hardware.js';

const DEVICES: readonly DeviceSpec[] = [...HARDWARE, CPU_RANK];

/** The record of an id, in upper or lower case; undefined where there is no such device. */
export function findDevice(id: string): DeviceSpec | undefined {
  const wanted = id.toLowerCase();
  return DEVICES.find((device) => device.id === wanted);
}

/** The hint for a name that no device has: the devices that it is the beginning of ("h100"), else the nearest one. */
export function offerDevices(name: string): string {
  const wanted = name.toLowerCase();
  const ids = DEVICES.map(({ id }) => id);
  const begun = ids.filter((id) => wanted !== '' && id.startsWith(wanted));
  const away = new Map(ids.map((id) => [id, distance(wanted, id)] as const));
  const near = [...ids].sort((a, b) => (away.get(a) ?? 0) - (away.get(b) ?? 0) || (a < b ? -1 : 1)).slice(0, 1);
  return `did you mean ${(begun.length > 0 ? begun : near).join(' or ')}? autopar hardware lists all`;
}
