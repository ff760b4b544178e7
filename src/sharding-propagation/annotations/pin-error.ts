/**
 * @file Errors of a pin that does not fit the graph or the mesh: each begins with the pin as the user wrote it, and has its
 * file and line.
 */
import { AutoparError } from '../../ir/error.js';
import { offer } from '../../ir/nearest.js';
import { type Mesh, subAxes } from '../mesh.js';
import type { PinSource } from '../pin.js';

/** The file and line of an error that a pin causes. */
export function pinPlace(source: PinSource): { readonly file?: string; readonly line?: number } {
  return {
    ...(source.file === null ? {} : { file: source.file }),
    ...(source.line === null ? {} : { line: source.line }),
  };
}

/** `sentence` ends what the pin's own text begins: `pins[2]: split [3, 1] on w: nothing divides 64 by 3`. */
export function doesNotFit(source: PinSource, sentence: string, hint: string): AutoparError {
  return new AutoparError('pin-does-not-fit', 'input', `${source.text}: ${sentence}`, pinPlace(source), hint);
}

/** The mesh in words: `dp=2, tp=4`. */
export function meshText(mesh: Mesh): string {
  return mesh.axes.map(({ name, size }) => `${name}=${size}`).join(', ');
}

/** The error for an axis that the mesh lacks; it names the nearest one. */
export function unknownAxis(source: PinSource, name: string, mesh: Mesh): AutoparError {
  return doesNotFit(source, `the mesh (${meshText(mesh)}) has no axis '${name}'`, offer(name, axisNames(mesh)));
}

/** Names of axes, then of sub-axes where they differ. */
export function axisNames(mesh: Mesh): readonly string[] {
  return [...new Set([...mesh.axes.map(({ name }) => name), ...subAxes(mesh).map(({ name }) => name)])];
}
