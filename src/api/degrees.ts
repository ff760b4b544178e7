/**
 * @file Degrees of parallelism as options: whether they fit each other and the devices, and which ones programs have.
 */
import { AutoparError } from '../ir/error.js';

export interface DegreeOptions {
  readonly devices?: number;
  readonly dp?: number;
  readonly tp?: number;
  readonly pp?: number;
  readonly sp?: number;
  readonly ep?: number;
}

export type Axis = 'dp' | 'tp' | 'pp' | 'sp' | 'ep';

/** Axes that programs are not sharded over yet: any degree above 1 is refused, with what plans over it. */
export function refuseAxes(options: DegreeOptions, axes: readonly Axis[]): void {
  for (const axis of axes) {
    if ((options[axis] ?? 1) > 1) {
      throw new AutoparError(
        'not-there-yet',
        'usage',
        `--${axis} above 1 is not there yet; this version runs over pp, dp and tp.`,
        {},
        `add --plan-only --cluster NxM:ID to have whole steps planned over ${axis}, without a program; or leave out --${axis}`,
      );
    }
  }
}

/**
 * Refuses degrees that cannot make up `devices`: with all of `axes` given their product must be the device count, with
 * some of them it must divide it. Returns nothing where no device count was given.
 */
export function checkDegrees(options: DegreeOptions, axes: readonly Axis[]): void {
  const { devices } = options;
  const given = axes.filter((axis) => options[axis] !== undefined);
  if (devices === undefined || given.length === 0) return;
  const product = given.reduce((total, axis) => total * (options[axis] ?? 1), 1);
  const written = given.map((axis) => `${axis} ${options[axis]}`).join(' · ');
  if (given.length === axes.length ? product === devices : devices % product === 0) return;
  const must = given.length === axes.length ? 'multiply to' : 'divide';
  throw new AutoparError(
    'degrees-do-not-match-devices',
    'usage',
    `${given.length === 1 ? written : `${written} is ${product}, which`} does not ${must === 'divide' ? 'divide' : 'make'} the ${devices} devices`,
    {},
    `degrees must ${must} --devices; leave out --devices to use as many as the degrees need`,
  );
}
