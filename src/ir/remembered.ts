/**
 * @file Values that are made once: for a key of a map, and for an immutable object, as long as the object exists. Graphs,
 * operators and layouts never change, and many callers need the same results.
 */

/** The value at a key; where there is none, the one that `make` returns, which is stored there. */
export function madeOnce<Key, Value>(
  known: { get(key: Key): Value | undefined; set(key: Key, value: Value): unknown },
  key: Key,
  make: () => Value,
): Value {
  const found = known.get(key);
  if (found !== undefined) return found;
  const value = make();
  known.set(key, value);
  return value;
}

/** A function of immutable objects that is computed once per object. */
export function remembered<Of extends object, Value>(find: (of: Of) => Value): (of: Of) => Value {
  const known = new WeakMap<Of, Value>();
  return (of) => {
    const found = known.get(of);
    if (found !== undefined || known.has(of)) return found as Value;
    const value = find(of);
    known.set(of, value);
    return value;
  };
}
