/**
 * @file Inputs that decide shapes (axes, sizes, pads, a trip count): a static plan wants their values, as `--const` gives
 * them. They are looked for only where import says that a shape or a loop depends on the data, among inputs of at most one
 * dimension, and no more are bound than it takes.
 */
import { importModel } from '../../src/api/models/import.js';
import { isFloating } from '../../src/ir/dtype.js';
import { AutoparError } from '../../src/ir/error.js';
import { elementCount } from '../../src/ir/graph.js';
import type { Arrays, DataSet } from './case-files.js';

const DEPENDS_ON_DATA: ReadonlySet<string> = new Set(['data-dependent-shape', 'control-flow']);

/** The inputs of `set` to bind; none where binding does not help. Throws what import throws for other reasons. */
export async function shapeInputs(
  model: string,
  { inputs }: DataSet,
  dims: Readonly<Record<string, number>>,
): Promise<Arrays> {
  if (await imports(model, {}, dims)) return {};
  let bound: Arrays = Object.fromEntries(Object.entries(inputs).filter(([, { shape }]) => shape.length <= 1));
  if (Object.keys(bound).length === 0 || !(await imports(model, bound, dims))) return {};
  for (const name of leastLikelyFirst(bound)) {
    const { [name]: _, ...fewer } = bound;
    if (await imports(model, fewer, dims)) bound = fewer;
  }
  return bound;
}

/** False where a shape or a loop depends on data. */
async function imports(model: string, constants: Arrays, dims: Readonly<Record<string, number>>): Promise<boolean> {
  try {
    await importModel(model, { constants, dims });
    return true;
  } catch (error) {
    if (error instanceof AutoparError && DEPENDS_ON_DATA.has(error.code)) return false;
    throw error;
  }
}

/** Numbers with a fraction are data more often than sizes, and so are long lists. */
function leastLikelyFirst(inputs: Arrays): readonly string[] {
  const weight = ({ dtype, shape }: Arrays[string]): number => (isFloating(dtype) ? 1e6 : 0) + elementCount(shape);
  return Object.entries(inputs)
    .sort(([, a], [, b]) => weight(b) - weight(a))
    .map(([name]) => name);
}
