/**
 * @file Axes that pins name and that have one rank on a mesh. Such a pin is kept by doing nothing; where the planner chooses the
 * degrees, its author hardly means that, and such meshes are skipped.
 */
import { deviceCount, type Mesh } from '../mesh.js';
import { WEIGHT_AXIS } from '../roles.js';
import type { Annotations, PinAnnotation } from './annotation.js';
import { doesNotFit, meshText } from './pin-error.js';
import { sourceOf } from './resolve-annotations.js';

/**
 * Rejects a mesh of several devices on which an axis that a pin names has one rank. `given` are axes whose degree the user has
 * fixed: for these, 1 is meant.
 * @throws AutoparError `pin-does-not-fit`
 */
export function refuseIdleAxes(annotations: Annotations, mesh: Mesh, given: ReadonlySet<string>): void {
  if (deviceCount(mesh) === 1) return;
  const idle = mesh.axes.filter(({ name, size }) => size === 1 && !given.has(name)).map(({ name }) => name);
  for (const pin of annotations.pins) {
    const named = axesNamed(pin);
    const axis = idle.find((name) => named.has(name));
    if (axis === undefined) continue;
    throw doesNotFit(
      sourceOf(pin, annotations.file, ['layout', 'factors', 'style']),
      `${axis} has one rank on this mesh (${meshText(mesh)}) and shards nothing`,
      `--${axis} N, or mesh.${axis} in the annotations, fixes its ranks; ${axis} 1 there confirms one rank`,
    );
  }
}

/** Axes that any of the pins names. */
export function axesOfPins({ pins }: Annotations): ReadonlySet<string> {
  return new Set(pins.flatMap((pin) => [...axesNamed(pin)]));
}

/** Names in a pin's notations, sub-axes as their axes. */
function axesNamed({ layout, factors, style }: PinAnnotation): ReadonlySet<string> {
  const text = JSON.stringify([layout ?? null, Object.values(factors ?? {})]);
  const names = (text.match(/[A-Za-z_]\w*/g) ?? []).filter((name) => name !== 'in' && name !== 'out');
  return new Set(style === undefined || style === 'replicate' ? names : [...names, WEIGHT_AXIS]);
}
