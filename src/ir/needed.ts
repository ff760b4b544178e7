/**
 * @file Operators whose results are read, by what leads to the results that are asked for.
 */

/** The nodes of a list in topological order that lead to `ends`, in the same order. */
export function needed<N>(
  nodes: readonly N[],
  ends: Iterable<string>,
  readsOf: (node: N) => readonly (string | null)[],
  resultsOf: (node: N) => readonly (string | null)[],
): readonly N[] {
  const wanted = new Set<string | null>(ends);
  const kept = nodes.toReversed().filter((node) => {
    const isRead = resultsOf(node).some((name) => name !== null && wanted.has(name));
    if (isRead) for (const name of readsOf(node)) wanted.add(name);
    return isRead;
  });
  return kept.reverse();
}
