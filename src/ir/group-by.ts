/**
 * @file Items by a key.
 */

/** Items by their `key`, in their order; items whose key is null are left out. */
export function groupBy<Item, Key>(
  items: Iterable<Item>,
  key: (item: Item) => Key | null,
): ReadonlyMap<Key, readonly Item[]> {
  const groups = new Map<Key, Item[]>();
  for (const item of items) {
    const own = key(item);
    if (own === null) continue;
    const list = groups.get(own);
    if (list) list.push(item);
    else groups.set(own, [item]);
  }
  return groups;
}
