/**
 * @file The order in which reports list what was compared and not taken.
 */

/** Rulings in the order of their kinds, those of a kind by their figure, least first. */
export function kindByKind<Ruling extends { readonly kind: string }>(
  rulings: readonly Ruling[],
  kinds: readonly Ruling['kind'][],
  figure: (ruling: Ruling) => number,
): readonly Ruling[] {
  return [...rulings].sort((a, b) => kinds.indexOf(a.kind) - kinds.indexOf(b.kind) || figure(a) - figure(b));
}
