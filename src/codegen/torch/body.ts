/**
 * @file The statements of a method, some of them under a header: `if` the rank is the first of some, `with` another device.
 */
import { deletion, statement } from './python.js';

/** Indentation of a method's statements. */
export const INDENT = '        ';

/** A statement without its place. */
export interface Statement {
  readonly text: string;
  readonly comment: string;
}

/** The line above indented statements. Ranks that skip these with `otherwise` have None for what they assign. */
export interface Header {
  readonly text: string;
  readonly otherwise?: true;
}

interface Entry {
  readonly within: readonly Header[];
  readonly statements: readonly Statement[];
  /** Names that the statements assign. */
  readonly makes: readonly string[];
  /** Names that they delete, in the place of statements. */
  readonly deletes: readonly string[];
}

/** Collects statements in order. */
export class StatementBody {
  private readonly entries: Entry[] = [];

  add(statements: readonly Statement[], within: readonly Header[] = [], makes: readonly string[] = []): void {
    this.entries.push({ within, statements, makes, deletes: [] });
  }

  delete(names: readonly string[], within: readonly Header[] = []): void {
    if (names.length > 0) this.entries.push({ within, statements: [], makes: [], deletes: names });
  }

  lines(): readonly string[] {
    return written(this.entries, INDENT);
  }
}

/** Consecutive entries with the same header are written under it together. */
function written(entries: readonly Entry[], indent: string): readonly string[] {
  const lines: string[] = [];
  for (let at = 0; at < entries.length; ) {
    const { within, statements, deletes } = entries[at] as Entry;
    const [header] = within;
    if (!header) {
      lines.push(...statements.flatMap(({ text, comment }) => statement(text, indent, comment)));
      lines.push(...deletion(deletes, indent));
      at++;
      continue;
    }
    let end = at + 1;
    while (entries[end]?.within[0]?.text === header.text) end++;
    const inner = entries.slice(at, end).map((entry) => ({ ...entry, within: entry.within.slice(1) }));
    lines.push(`${indent}${header.text}:`, ...written(inner, `${indent}    `));
    const gone = new Set(inner.flatMap((entry) => entry.deletes));
    const left = [...new Set(inner.flatMap(({ makes }) => makes))].filter((name) => !gone.has(name));
    if (header.otherwise && left.length > 0)
      lines.push(`${indent}else:`, ...left.flatMap((name) => statement(`${name} = None`, `${indent}    `)));
    at = end;
  }
  return lines;
}
