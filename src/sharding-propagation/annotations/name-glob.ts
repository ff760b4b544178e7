/**
 * @file Globs over dotted names and paths, as PyTorch's tp_plan and file systems have them:
 *
 *     *        any characters but dots and slashes      h.*.mlp      fits h.3.mlp, not h.3.attn.mlp
 *     **       any characters                           **.mlp       fits h.3.mlp
 *     ?        one character but a dot or slash         [0-3], [!0]  one of a set, one that is not in it
 *     {a,b}    either                                   \*           the character itself
 *
 * A bracket or brace that is not closed stands for itself. Matching follows all positions that the glob can have reached
 * at once, so no glob takes longer than its length times the name's squared.
 */

type GlobPart =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'one'; readonly fits: (character: string) => boolean }
  | { readonly kind: 'many'; readonly crosses: boolean }
  | { readonly kind: 'either'; readonly options: readonly (readonly GlobPart[])[] };

/** Names that a glob fits; the glob as a plain name fits too, whatever characters it has. */
export function globMatcher(glob: string): (name: string) => boolean {
  const parts = new GlobReader(glob).read();
  if (parts.every((part) => part.kind === 'text')) {
    const text = parts.map((part) => part.text).join('');
    return (name) => name === glob || name === text;
  }
  const [first] = parts;
  const prefix = first?.kind === 'text' ? first.text : '';
  return (name) => name === glob || (name.startsWith(prefix) && advance(parts, new Set([0]), name).has(name.length));
}

/** Whether the text is more than a plain name. */
export function isGlob(text: string): boolean {
  return new GlobReader(text).read().some((part) => part.kind !== 'text');
}

/** The glob with every `*` allowed to cross dots: for telling that this was meant. */
export function loosened(glob: string): string {
  return glob.replace(/\*+/g, '**');
}

const SEPARATORS = './';

/** Positions in `name` that can be reached from `positions` by all of `parts`. */
function advance(parts: readonly GlobPart[], positions: ReadonlySet<number>, name: string): ReadonlySet<number> {
  let reached = positions;
  for (const part of parts) {
    if (reached.size === 0) return reached;
    reached = step(part, reached, name);
  }
  return reached;
}

function step(part: GlobPart, positions: ReadonlySet<number>, name: string): ReadonlySet<number> {
  const next = new Set<number>();
  if (part.kind === 'either') {
    for (const option of part.options) for (const position of advance(option, positions, name)) next.add(position);
    return next;
  }
  for (const position of positions) {
    if (part.kind === 'text') {
      if (name.startsWith(part.text, position)) next.add(position + part.text.length);
    } else if (part.kind === 'one') {
      const character = name[position];
      if (character !== undefined && part.fits(character)) next.add(position + 1);
    } else {
      for (let end = position; !next.has(end); end++) {
        next.add(end);
        const character = name[end];
        if (character === undefined || (!part.crosses && SEPARATORS.includes(character))) break;
      }
    }
  }
  return next;
}

/** Reads a glob from left to right. */
class GlobReader {
  private position = 0;
  /** Where braces were found to stay open: they are not tried again. */
  private readonly open = new Set<number>();

  constructor(private readonly glob: string) {}

  read(): readonly GlobPart[] {
    return this.parts('');
  }

  /** Parts up to one of the characters of `until`, which is left standing. */
  private parts(until: string): readonly GlobPart[] {
    const parts: GlobPart[] = [];
    const put = (part: GlobPart): void => {
      const last = parts.at(-1);
      if (part.kind === 'text' && last?.kind === 'text')
        parts[parts.length - 1] = { kind: 'text', text: last.text + part.text };
      else parts.push(part);
    };
    for (;;) {
      const character = this.glob[this.position];
      if (character === undefined || until.includes(character)) return parts;
      put(this.part(character));
    }
  }

  private part(character: string): GlobPart {
    this.position += 1;
    if (character === '*') {
      const start = this.position;
      while (this.glob[this.position] === '*') this.position += 1;
      return { kind: 'many', crosses: this.position > start };
    }
    if (character === '?') return { kind: 'one', fits: (found) => !SEPARATORS.includes(found) };
    if (character === '[') return this.set() ?? { kind: 'text', text: character };
    if (character === '{') return this.either() ?? { kind: 'text', text: character };
    if (character === '\\') {
      const literal = this.glob[this.position] ?? '\\';
      this.position += 1;
      return { kind: 'text', text: literal };
    }
    return { kind: 'text', text: character };
  }

  /** `[abc]`, `[a-z]`, `[!abc]`; null where it is not closed. */
  private set(): GlobPart | null {
    const end = this.glob.indexOf(']', this.position + 1);
    if (end < 0) return null;
    const inside = this.glob.slice(this.position, end);
    this.position = end + 1;
    const negated = inside.startsWith('!') || inside.startsWith('^');
    const ranges = [...(negated ? inside.slice(1) : inside).matchAll(/(.)-(.)|(.)/gs)].map(
      ([, low, high, one = '']) => [low ?? one, high ?? one] as const,
    );
    const held = (found: string): boolean => ranges.some(([low, high]) => found >= low && found <= high);
    return { kind: 'one', fits: negated ? (found) => !held(found) && !SEPARATORS.includes(found) : held };
  }

  /** `{a,b}`, nested as well; null where it is not closed. */
  private either(): GlobPart | null {
    const start = this.position;
    if (this.open.has(start)) return null;
    const options = [this.parts(',}')];
    while (this.glob[this.position] === ',') {
      this.position += 1;
      options.push(this.parts(',}'));
    }
    if (this.glob[this.position] !== '}') {
      this.open.add(start);
      this.position = start;
      return null;
    }
    this.position += 1;
    return { kind: 'either', options };
  }
}
