/**
 * @file Things in the order of their bounds, of which the closer is worked out for no more than may come next.
 */

export interface Bounded<Item> {
  readonly item: Item;
  readonly least: number;
}

/**
 * Each item when those before it have been looked at.
 * @param rough at most what `closer` says, and cheap
 */
export function* byBound<Item>(
  all: readonly Item[],
  rough: (item: Item) => number,
  closer: (item: Item) => number,
): Generator<Bounded<Item>> {
  const waiting = all.map((item) => ({ item, least: rough(item) })).sort((a, b) => a.least - b.least);
  const ready: Bounded<Item>[] = [];
  for (let next = 0; next < waiting.length || ready.length > 0; ) {
    const first = ready.reduce<Bounded<Item> | undefined>(
      (best, one) => (best && best.least <= one.least ? best : one),
      undefined,
    );
    const other = waiting[next];
    if (other && (!first || other.least <= first.least)) {
      next++;
      const { item, least } = other;
      ready.push({ item, least: least === Number.POSITIVE_INFINITY ? least : closer(item) });
    } else if (first) {
      ready.splice(ready.indexOf(first), 1);
      yield first;
    }
  }
}
