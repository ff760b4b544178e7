/**
 * @file A function of an immutable object that is computed once per object and cached as long as the object exists: graphs, views
 * of operators and layouts never change, and many callers need the same results.
 */
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
