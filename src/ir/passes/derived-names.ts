/**
 * @file Names for the operators that replace a subgraph: `PREFIX/NAME`, where no other name in the model begins so.
 */

/** Returns prefixes, each once. */
export class DerivedNames {
  /** The beginnings of names up to each '/'; made when the first prefix is needed. */
  private taken: Set<string> | null = null;

  /** `names` lists all names of the model. */
  constructor(private readonly names: () => readonly (string | null)[]) {}

  /** A prefix made from `base`. */
  prefix(base: string): string {
    this.taken ??= beginnings(this.names());
    let prefix = base;
    for (let ordinal = 2; this.taken.has(prefix); ordinal++) prefix = `${base}.${ordinal}`;
    this.taken.add(prefix);
    return prefix;
  }
}

function beginnings(names: readonly (string | null)[]): Set<string> {
  const found = new Set<string>();
  for (const name of names) {
    if (name === null) continue;
    for (let end = name.indexOf('/'); end >= 0; end = name.indexOf('/', end + 1)) found.add(name.slice(0, end));
  }
  return found;
}
