/**
 * @file A word of a command that a message shows, as a shell takes it.
 */

/** In quotes where it has more than letters, digits and the like: `x=4`, `'x[0]=4'`. */
export function shellWord(text: string): string {
  return /^[\w.=,/:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
