/**
 * @file Few of many choices in which every pair of values that occurs together in some choice does.
 */

/** By taking the choice with most new pairs, again and again. */
export function pairwise<Choice extends object>(all: readonly Choice[]): readonly Choice[] {
  const pairsOf = (choice: Choice) => {
    const values = Object.entries(choice).map(([key, value]) => `${key}=${value}`);
    return values.flatMap((left, index) => values.slice(index + 1).map((right) => `${left} ${right}`));
  };
  const missing = new Set(all.flatMap(pairsOf));
  const taken: Choice[] = [];
  while (missing.size > 0) {
    const fresh = (choice: Choice) => pairsOf(choice).filter((pair) => missing.has(pair)).length;
    const [first] = [...all].sort((a, b) => fresh(b) - fresh(a));
    if (!first) break;
    taken.push(first);
    for (const pair of pairsOf(first)) missing.delete(pair);
  }
  return taken;
}
