/**
 * @file Globs over names: `*` stands for any characters, `?` for one.
 */

/** Whether the whole name fits the glob. */
export function matchesGlob(glob: string, name: string): boolean {
  const pattern = glob
    .replace(/[.+^${}()|[\]\\]/g, '\\$&')
    .replace(/\*+/g, '.*')
    .replaceAll('?', '.');
  return new RegExp(`^${pattern}$`, 's').test(name);
}

/** Whether the name fits one of the globs. */
export function matchesAny(globs: readonly string[], name: string): boolean {
  return globs.some((glob) => matchesGlob(glob, name));
}
