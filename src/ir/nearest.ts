/**
 * @file The name that was probably meant by a mistyped one.
 */
import { closest, distance } from 'fastest-levenshtein';

/** Names listed in full where none is near. */
const LISTED = 20;

/** The nearest of `names`, if it differs in at most a third of its letters (two letters at least). */
export function nearest(text: string, names: readonly string[]): string | undefined {
  if (names.length === 0) return undefined;
  const found = closest(text, names);
  return distance(text, found) <= Math.max(2, Math.floor(text.length / 3)) ? found : undefined;
}

/** The hint that offers it: `did you mean --devices?`, or the names where none is near. */
export function offer(text: string, names: readonly string[]): string {
  const found = nearest(text, names);
  if (found) return `did you mean ${found}?`;
  if (names.length === 0) return 'none is available';
  const rest = names.length - LISTED;
  return `available: ${names.slice(0, LISTED).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`;
}
