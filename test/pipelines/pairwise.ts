/**
 * @file Few of many choices in which every pair of values that occurs together in some choice does.
 */

/** By taking the first choice with most new pairs, again and again. */
export function pairwise<Choice extends object>(all: readonly Choice[]): readonly Choice[] {
  const missing = new Set<string>();
  const left = all.map((choice) => ({ choice, pairs: pairsOf(choice) }));
  for (const { pairs } of left) for (const pair of pairs) missing.add(pair);
  const taken: Choice[] = [];
  while (missing.size > 0) {
    for (const one of left) one.pairs = one.pairs.filter((pair) => missing.has(pair));
    const best = left.reduce((most, one) => (one.pairs.length > most.pairs.length ? one : most));
    taken.push(best.choice);
    for (const pair of best.pairs) missing.delete(pair);
  }
  return taken;
}

function pairsOf(choice: object): readonly string[] {
  const values = Object.entries(choice).map(([key, value]) => `${key}=${value}`);
  return values.flatMap((one, index) => values.slice(index + 1).map((other) => `${one} ${other}`));
}
