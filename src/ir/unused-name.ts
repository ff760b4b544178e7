/**
 * @file A name for something new in a graph: the wanted one, with an ordinal where that is taken.
 */

/** `wanted`, or the first of `wanted.2`, `wanted.3`, … that is not taken. */
export function unusedName(taken: { has(name: string): boolean }, wanted: string): string {
  let name = wanted;
  for (let ordinal = 2; taken.has(name); ordinal++) name = `${wanted}.${ordinal}`;
  return name;
}
