/**
 * @file Which dimensions a region sums over at its end, so that it leaves its results partial: whatever follows the sum inside
 * is linear, and every result has the dimension or is such a sum.
 *
 *     dy, x̂ (rows, features) → dy · x̂ → sum over rows → scale's gradient, partial over rows
 *                             → …                     → data's gradient, which has rows
 */
import type { Graph, Node } from '../graph.js';

/** An operator of the body. */
export interface BodyOperator {
  readonly node: Node;
  /** Operand sets in which it is linear, as in its entry. */
  readonly linear: readonly (readonly number[])[];
}

interface Summing<Atom> extends BodyOperator {
  readonly sums: ReadonlySet<Atom>;
}

/** The summed atoms that are summed last. `dims` gives a tensor's dimensions as atoms. */
export function summedLast<Atom extends object>(
  body: Graph,
  operators: readonly Summing<Atom>[],
  dims: (tensor: string) => readonly (readonly Atom[])[],
): ReadonlySet<Atom> {
  const candidates = new Set(operators.flatMap(({ sums }) => [...sums]));
  const has = (tensor: string | null, atom: Atom) =>
    tensor !== null && dims(tensor).some((part) => part.includes(atom));
  /** Candidates that cannot be summed last, given the current set of candidates. */
  const refused = (): ReadonlySet<Atom> => {
    const bad = new Set<Atom>();
    const partial = new Map<string, ReadonlySet<Atom>>();
    for (const { node, linear, sums } of operators) {
      const own = [...sums].filter((atom) => candidates.has(atom));
      // The sums of one operator are reduced together or left partial together.
      if (own.length < sums.size) for (const atom of own) bad.add(atom);
      const arriving = node.inputs.map((name) => (name === null ? undefined : partial.get(name)));
      const arrivingAtoms = new Set(arriving.flatMap((atoms) => [...(atoms ?? [])]));
      const operands = arriving.flatMap((atoms, index) => (atoms && atoms.size > 0 ? [index] : []));
      const isLinear = linear.some((set) => set.join() === operands.join());
      for (const atom of arrivingAtoms) {
        const everywhere = operands.every((index) => arriving[index]?.has(atom));
        const besides = [...node.inputs, ...node.outputs].some((name) => has(name, atom));
        if (!isLinear || !everywhere || besides) bad.add(atom);
      }
      const left = new Set([...arrivingAtoms, ...own]);
      if (left.size > 0) for (const name of node.outputs) if (name !== null) partial.set(name, left);
    }
    for (const output of body.outputs) {
      for (const atom of candidates) if (has(output, atom) === (partial.get(output)?.has(atom) ?? false)) bad.add(atom);
    }
    return bad;
  };
  for (let bad = refused(); bad.size > 0; bad = refused()) for (const atom of bad) candidates.delete(atom);
  return candidates;
}
