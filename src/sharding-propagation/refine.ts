/**
 * @file Factors seen as pieces. Exporters fuse projections: one MatMul makes q, k and v side by side, and its n is really
 * (3 | 64). An axis on n would shard [q k v] into halves that hold q and half of k; an axis on the second piece gives every
 * rank its shard of each. A strategy with `pieces: {n: [3, 64]}` may put axes on `n.0` and `n.1`.
 */
import type { Factor, FactorKind, FactorRule } from '../ir/factor-rule.js';

/** Sizes that multiply to the factor's, major to minor, by factor. */
export type FactorPieces = Readonly<Record<string, readonly number[]>>;

/** Name of a factor's piece. */
export function pieceName(factor: string, index: number): string {
  return `${factor}.${index}`;
}

/** The rule with each factor of `pieces` replaced by its pieces, wherever it stands. */
export function refineRule(rule: FactorRule, pieces: FactorPieces | undefined): FactorRule {
  if (!pieces || Object.keys(pieces).length === 0) return rule;
  const factors = new Map<string, Factor>();
  for (const factor of rule.factors.values()) {
    const sizes = pieces[factor.name];
    if (!sizes) factors.set(factor.name, factor);
    else {
      sizes.forEach((size, index) => {
        const name = pieceName(factor.name, index);
        factors.set(name, { ...factor, name, size });
      });
    }
  }
  const refine = (tensors: FactorRule['inputs']) =>
    tensors.map(
      (dims) =>
        dims?.map((names) =>
          names.flatMap((name) => pieces[name]?.map((_, index) => pieceName(name, index)) ?? [name]),
        ) ?? null,
    );
  return { factors, inputs: refine(rule.inputs), outputs: refine(rule.outputs), text: rule.text };
}

/** Kinds of factors that mean the same for a part of a factor as for the whole; an expansion's dimensions are refined too. */
const CAN_BE_PIECES: ReadonlySet<FactorKind> = new Set(['pass', 'contracting', 'expanded']);

/** Why factors cannot be seen as these pieces, as a sentence's end; null where they can. */
export function piecesProblem(rule: FactorRule, pieces: FactorPieces | undefined): string | null {
  for (const [name, sizes] of Object.entries(pieces ?? {})) {
    const factor = rule.factors.get(name);
    if (!factor) return `pieces: the operator has no factor ${name}`;
    if (!CAN_BE_PIECES.has(factor.kind)) return `pieces: factor ${name} is ${factor.kind}`;
    if ([...rule.factors.values()].some(({ halo }) => halo?.of === name)) return `pieces: windows make factor ${name}`;
    const product = sizes.reduce((all, size) => all * size, 1);
    if (product !== factor.size) return `pieces: ${sizes.join(' · ')} is not the size ${factor.size} of factor ${name}`;
  }
  return null;
}
