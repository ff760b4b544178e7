/**
 * @file A function of something immutable that is worked out once for each, and kept as long as that is there: graphs, views of
 * operators and layouts never change, and many ask the same of them.
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
