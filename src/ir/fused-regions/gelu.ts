/**
 * @file GELU in all the orders that people and exporters write it:
 *
 *     none    x·½·(1 + erf(x / √2))
 *     tanh    x·½·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
 *     quick   x·sigmoid(1.702·x)
 *
 * The argument of the function is read as a polynomial of x; the operators after it as slope·f + offset, both
 * polynomials of x, until the form is the one above.
 */
import type { Node } from '../graph.js';
import { type DraftMatch, type GraphIndex, operandOf, resultOf, soleReader, typeIn, withCasts } from './matching.js';
import { type Affine, applied, near, type Polynomial, polynomialOf } from './polynomial.js';

interface GeluForm {
  readonly approximate: 'none' | 'tanh' | 'quick';
  readonly argument: Polynomial;
  readonly slope: Polynomial;
  readonly offset: Polynomial;
}

const TANH_SLOPE = Math.sqrt(2 / Math.PI);

const FORMS: Readonly<Record<string, GeluForm>> = {
  Erf: { approximate: 'none', argument: [0, Math.SQRT1_2], slope: [0, 0.5], offset: [0, 0.5] },
  Tanh: {
    approximate: 'tanh',
    argument: [0, TANH_SLOPE, 0, TANH_SLOPE * 0.044715],
    slope: [0, 0.5],
    offset: [0, 0.5],
  },
  Sigmoid: { approximate: 'quick', argument: [0, 1.702], slope: [0, 1], offset: [] },
};

/** Operators at which a Gelu is found. */
export const GELU_ANCHORS: readonly string[] = Object.keys(FORMS);

/** More steps than any way of writing it takes after the function. */
const MAX_STEPS = 6;

/** The Gelu around an Erf, a Tanh or a Sigmoid. */
export function findGelu(index: GraphIndex, anchor: Node): DraftMatch | null {
  const form = FORMS[anchor.op];
  const argument = polynomialOf(index, operandOf(anchor), null);
  if (!form || !argument?.variable) return null;
  const { variable } = argument;
  const { dtype } = typeIn(index, variable);
  if (!near(argument.coefficients, form.argument, dtype)) return null;
  let tensor = resultOf(anchor);
  let affine: Affine | null = { slope: [1], offset: [], nodes: [] };
  for (let step = 0; step < MAX_STEPS && affine; step++) {
    const reader = soleReader(index, tensor);
    affine = reader && applied(index, reader, tensor, affine, variable);
    if (!affine || !reader) return null;
    tensor = resultOf(reader);
    if (!near(affine.slope, form.slope, dtype) || !near(affine.offset, form.offset, dtype)) continue;
    return withCasts(index, {
      kind: 'Gelu',
      nodes: [...argument.nodes, anchor, ...affine.nodes],
      inputs: [variable],
      output: tensor,
      attributes: { approximate: form.approximate },
    });
  }
  return null;
}
