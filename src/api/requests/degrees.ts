/**
 * @file Degrees of parallelism as options: whether they fit each other and the devices.
 */
import { usageError } from '../../ir/error.js';
import { AXIS_ORDER } from '../../sharding-propagation/mesh.js';
import type { ParallelAxis } from '../../sharding-propagation/roles.js';

export type { ParallelAxis };

export interface DegreeOptions {
  readonly devices?: number;
  readonly dp?: number;
  readonly tp?: number;
  readonly pp?: number;
  readonly sp?: number;
  readonly ep?: number;
}

/** Degrees that multiply to the devices; ep uses ranks of dp · sp. */
export const MULTIPLIED = AXIS_ORDER;

/**
 * Rejects degrees that do not fit `devices`: if all of `axes` are given, their product must be the device count; if some of
 * them are given, it must divide it. Checks nothing if no device count is given.
 */
export function checkDegrees(options: DegreeOptions, axes: readonly ParallelAxis[]): void {
  const { devices } = options;
  const given = axes.filter((axis) => options[axis] !== undefined);
  if (devices === undefined || given.length === 0) return;
  const product = given.reduce((total, axis) => total * (options[axis] ?? 1), 1);
  const written = given.map((axis) => `${axis} ${options[axis]}`).join(' · ');
  if (given.length === axes.length ? product === devices : devices % product === 0) return;
  const must = given.length === axes.length ? 'multiply to' : 'divide';
  throw usageError(
    'degrees-do-not-match-devices',
    `${given.length === 1 ? written : `${written} is ${product}, which`} does not ` +
      `${must === 'divide' ? 'divide' : 'make'} the ${devices} devices`,
    `degrees must ${must} --devices; leave out --devices to use as many as the degrees need`,
  );
}
