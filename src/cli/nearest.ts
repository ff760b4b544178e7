/**
 * @file The name that a mistyped one was probably meant to be.
 */
import { closest, distance } from 'fastest-levenshtein';

/** The nearest of `names`, if it differs in at most a third of its letters (two letters at least). */
export function nearest(text: string, names: readonly string[]): string | undefined {
  if (names.length === 0) return undefined;
  const found = closest(text, names);
  return distance(text, found) <= Math.max(2, Math.floor(text.length / 3)) ? found : undefined;
}

/** The hint that offers it: `did you mean --devices?`, or all names where none is near. */
export function offer(text: string, names: readonly string[]): string {
  const found = nearest(text, names);
  return found ? `did you mean ${found}?` : `there is ${names.join(', ')}`;
}
