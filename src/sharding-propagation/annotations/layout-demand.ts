/**
 * @file A layout in text as a demand on a tensor: all notations that name axes become layouts here, so that axes, ranks and
 * sizes are checked in one place.
 */
import { AutoparError } from '../../ir/error.js';
import { parseLayout } from '../layout-text.js';
import { type Mesh, type SubAxis, subAxesNamed } from '../mesh.js';
import type { LayoutDemand, PinSource } from '../pin.js';
import { axisNames, doesNotFit, unknownAxis } from './pin-error.js';

/** A tensor with a demand on it; `says` names it in errors: `operand 1 (x)`. */
export interface DemandSubject {
  readonly says: string;
  readonly shape: readonly number[];
}

/** A layout in text. The axes are checked first, so that the error for a misspelt one names the nearest. */
export function demandOfLayout(text: string, tensor: DemandSubject, mesh: Mesh, source: PinSource): LayoutDemand {
  const known = new Set([...axisNames(mesh), ...WORDS]);
  const unknown = (text.match(/[A-Za-z_][\w.]*/g) ?? []).find(
    (name) => !known.has(name) && subAxesNamed(mesh, name).length === 0,
  );
  if (unknown !== undefined) throw unknownAxis(source, unknown, mesh);
  try {
    return { kind: 'layout', layout: parseLayout(text, tensor.shape, mesh) };
  } catch (error) {
    if (!(error instanceof AutoparError)) throw error;
    const sentence = error.message.replace(/^layout '[^']*': /, '');
    throw doesNotFit(source, `${tensor.says}: ${sentence}`, error.hint ?? '');
  }
}

const WORDS = ['partial', 'sum', 'max', 'min'];

/** A dimension's pieces with their axes; sizes are needed where there are several. */
export type AxesOfPieces = readonly { readonly size: number; readonly axes: readonly SubAxis[] }[];

/** The layout whose dimensions are cut so. */
export function demandOfAxes(
  dims: readonly AxesOfPieces[],
  tensor: DemandSubject,
  mesh: Mesh,
  source: PinSource,
): LayoutDemand {
  const axesText = (axes: readonly SubAxis[]) => `(${axes.join(',')})`;
  const texts = dims.map((pieces) => {
    const [first] = pieces;
    if (first && pieces.length === 1) return first.axes.length === 0 ? '-' : axesText(first.axes);
    return `(${pieces.map(({ size, axes }) => (axes.length === 0 ? `${size}` : `${size}:${axesText(axes)}`)).join(' | ')})`;
  });
  return demandOfLayout(`[${texts.join(', ')}]`, tensor, mesh, source);
}
