/**
 * @file A smallest set of things that leaves nothing, from things that together leave nothing (deletion filter, Chinneck and
 * Dravnieks 1991).
 */

/**
 * One thing that alone leaves nothing, where there is one. Otherwise each in turn is left out, and stays out where the others
 * still leave nothing: the resulting set leaves nothing, and without any one of its things there is something. Calls
 * `leavesNone` at most twice for each thing, and once without any.
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
