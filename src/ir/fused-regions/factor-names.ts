/**
 * @file Names for a region's factors, as the field has them: an attention's are b, h, s, t, e, f.
 */
import type { Graph } from '../graph.js';
import type { RegionKind } from '../operator.js';
import { REGION_KINDS } from './fused-region.js';

/**
 * Every atom's name, unique in the region. Parts of one dimension beyond the first take the letter that follows heads (`g`)
 * or a number. `dims` gives a tensor's dimensions, each as atoms from major to minor.
 */
export function regionFactorNames<Atom extends object>(
  kind: string,
  body: Graph,
  dims: (tensor: string) => readonly (readonly Atom[])[],
  all: ReadonlySet<Atom>,
): ReadonlyMap<Atom, string> {
  const names = new Map<Atom, string>();
  const taken = new Set<string>();
  const give = (atom: Atom, wanted: string): void => {
    if (names.has(atom)) return;
    let name = wanted;
    for (let ordinal = 2; taken.has(name); ordinal++) name = `${wanted}${ordinal}`;
    taken.add(name);
    names.set(atom, name);
  };
  // A gradient reads what its region reads; its results are in the operands' shapes.
  const wanted = REGION_KINDS[kind.replace(/Gradient$/, '') as RegionKind].factors;
  if (!wanted) {
    for (const name of body.inputs)
      for (const [axis, atoms] of dims(name).entries()) for (const atom of atoms) give(atom, `a${axis}`);
  }
  for (const operand of kind.endsWith('Gradient') ? body.inputs.keys() : [-1, ...body.inputs.keys()]) {
    const tensor = operand < 0 ? body.outputs[0] : body.inputs[operand];
    const list = wanted?.[operand];
    if (tensor === undefined || !list) continue;
    const shape = dims(tensor);
    shape.forEach((atoms, axis) => {
      const name = list[shape.length - 1 - axis] ?? 'b';
      for (const [position, atom] of atoms.entries()) give(atom, position > 0 && name === 'h' ? 'g' : name);
    });
  }
  for (const atom of all) give(atom, 'x');
  return names;
}
