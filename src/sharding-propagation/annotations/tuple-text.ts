/**
 * @file Python's tuples as text, as MindSpore's strategies are written: `((4,1),(1,2))`, `(("dp","mp"),"None")`.
 */

/** Numbers, texts (with or without quotes), null (`None` without quotes, `_`), and tuples or lists of them. */
export type TupleValue = number | string | null | readonly TupleValue[];

/** The values that follow each other in the text; null where it is not a sequence of values. */
export function tupleValues(text: string): readonly TupleValue[] | null {
  const tokens = text.match(TOKEN) ?? [];
  if (tokens.join('').replace(/\s/g, '') !== text.replace(/\s/g, '')) return null;
  const reader = new TupleReader(tokens);
  const values: TupleValue[] = [];
  while (!reader.atEnd()) {
    const value = reader.value(0);
    if (value === undefined) return null;
    values.push(value);
  }
  return values;
}

const TOKEN = /"[^"]*"|'[^']*'|[-+]?\d+|[A-Za-z_][\w.]*|[()[\],]/g;
const CLOSING: Readonly<Record<string, string>> = { '(': ')', '[': ']' };
/** Deeper than any strategy; a text of nothing but parentheses ends here. */
const DEEPEST = 16;

class TupleReader {
  private position = 0;

  constructor(private readonly tokens: readonly string[]) {}

  atEnd(): boolean {
    return this.position >= this.tokens.length;
  }

  /** The next value; undefined if none. */
  value(depth: number): TupleValue | undefined {
    const token = this.tokens[this.position];
    if (token === undefined || depth > DEEPEST) return undefined;
    this.position += 1;
    const closing = CLOSING[token];
    if (closing !== undefined) return this.items(closing, depth);
    if (/^[-+]?\d+$/.test(token)) return Number(token);
    if (/^["']/.test(token)) return token.slice(1, -1);
    if (token === '_' || token === 'None') return null;
    return /^\w/.test(token) ? token : undefined;
  }

  private items(closing: string, depth: number): readonly TupleValue[] | undefined {
    const items: TupleValue[] = [];
    while (this.tokens[this.position] !== closing) {
      const item = this.value(depth + 1);
      if (item === undefined) return undefined;
      items.push(item);
      if (this.tokens[this.position] === ',') this.position += 1;
      else if (this.tokens[this.position] !== closing) return undefined;
    }
    this.position += 1;
    return items;
  }
}
