/**
 * @file Sorting of a few things, again and again: elimination sorts the handful of tables around each variable, and the library's
 * sort, which is made for many, takes more room for itself than they do.
 */

/** A sorted copy: ascending by `key`, equal ones in the order in which they came (insertion sort). */
export function inOrder<Item>(items: Iterable<Item>, key: (item: Item) => number): Item[] {
  const sorted = [...items];
  if (sorted.length > MANY) return sorted.sort((a, b) => key(a) - key(b));
  for (let from = 1; from < sorted.length; from++) {
    const item = sorted[from] as Item;
    const own = key(item);
    let at = from;
    for (; at > 0 && key(sorted[at - 1] as Item) > own; at--) sorted[at] = sorted[at - 1] as Item;
    sorted[at] = item;
  }
  return sorted;
}

/** Beyond so many the library is faster. */
const MANY = 16;
