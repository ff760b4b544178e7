/**
 * @file Of things that together leave nothing, a smallest set that does (deletion filter, Chinneck and Dravnieks 1991).
 */

/**
 * One that alone leaves nothing, where there is one. Else each in turn is left out, and stays out where the others still leave
 * none: the set leaves none, and without any one of it there is something. Asks twice for each at most, and once for none of
 * them.
 * @param given all of them, which leave nothing
 * @param leavesNone whether these alone leave nothing
 * @returns empty where there is nothing without them either
 */
export async function smallestConflict<Thing>(
  given: readonly Thing[],
  leavesNone: (kept: ReadonlySet<Thing>) => Promise<boolean>,
): Promise<readonly Thing[]> {
  const kept = new Set(given);
  if (given.length === 0 || (await leavesNone(new Set()))) return [];
  if (given.length > 1) for (const one of given) if (await leavesNone(new Set([one]))) return [one];
  for (const one of given) {
    kept.delete(one);
    if (!(await leavesNone(kept))) kept.add(one);
  }
  return [...kept];
}

/** Things as a list in words: `a`, `a and b`, `a, b and c`. */
export function listInWords(things: readonly string[]): string {
  return things.length < 2 ? things.join('') : `${things.slice(0, -1).join(', ')} and ${things.at(-1)}`;
}
