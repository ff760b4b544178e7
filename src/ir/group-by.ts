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
    if (own !== null) appendTo(groups, own, item);
  }
  return groups;
}

/** Adds an item to the items of a key. */
export function appendTo<Key, Item>(groups: Map<Key, Item[]>, key: Key, item: Item): void {
  const list = groups.get(key);
  if (list) list.push(item);
  else groups.set(key, [item]);
}
