/**
 * @file Layouts as text, the one notation of messages, plan.json and documentation (docs/concepts.md).
 *
 *     layout := '[' (dim (',' dim)*)? ']' ('+' partial)*
 *     dim    := '-' | axes | '(' piece ('|' piece)* ')'
 *     piece  := SIZE ('~' PADDED)? (':' axes)?
 *     axes   := AXIS | '(' AXIS (',' AXIS)* ')'
 *     partial:= 'partial(' AXIS (',' AXIS)* (',' 'sum' | 'max' | 'min')? ')'
 *
 * A size that its axes do not divide is padded to the next that they do: `[tp]` for 10 over tp 4 is `[(10~12:tp)]`. PADDED is
 * only written where it is another.
 *
 * AXIS is a mesh axis (`tp`: all its sub-axes, major to minor) or one sub-axis (`tp.0`).
 */
import { AutoparError } from '../ir/error.js';
import type { Reduction } from '../ir/factor-rule.js';
import { type Digit, digitsOf, piecesOf } from './digits.js';
import { type Extent, type Layout, normalise, type PartialAxis, type Piece, paddedSize } from './layout.js';
import { axesSize, type Mesh, type SubAxis, subAxes, subAxesNamed } from './mesh.js';
import type { FactorAxes } from './strategy.js';

/** How lists of sub-axes are named. */
type AxisNames = (axes: readonly SubAxis[], mesh: Mesh) => readonly string[];

/**
 * The layout in text; `parseLayout` of it with the tensor's shape gives the layout back.
 * @param names other names of axes, for text that nobody parses
 */
export function layoutText(layout: Layout, mesh: Mesh, names: AxisNames = shortNames): string {
  const dims = layout.dims.map((pieces, axis) =>
    dimensionText(withExtents(pieces, layout.extents?.[axis] ?? null, mesh), mesh, names),
  );
  return [`[${dims.join(', ')}]`, ...partialTexts(layout.partial, mesh, names)].join(' + ');
}

/**
 * The layout that a text describes for a tensor of `shape` on `mesh`, in merged form.
 *
 * Throws AutoparError `bad-layout` where the text does not parse, names an axis that the mesh lacks, uses an axis twice,
 * has another number of dimensions than the tensor, or cuts into more parts than there are elements.
 */
export function parseLayout(text: string, shape: readonly number[], mesh: Mesh): Layout {
  const reader = new LayoutReader(text, mesh);
  const specs = reader.dimensions();
  const partial = reader.partials();
  if (specs.length !== shape.length) {
    throw reader.error(`it has ${specs.length} dimensions, the tensor [${shape.join(', ')}] has ${shape.length}`);
  }
  const dims = specs.map((spec, index) => piecesOfSpec(spec, shape[index] ?? 1, index, reader, mesh));
  checkUsedOnce([...dims.flat().flatMap((piece) => piece.axes), ...partial.map((entry) => entry.axis)], reader);
  return normalise(dims, partial, mesh, dims);
}

/** A dimension as written: pieces with sizes, or axes that shard the whole dimension. */
type DimensionSpec = { readonly pieces: readonly WrittenPiece[] } | { readonly axes: readonly SubAxis[] };

const REDUCTIONS: readonly Reduction[] = ['sum', 'max', 'min'];

/** A piece as it is written, with the size of its valid part. */
interface WrittenPiece extends Piece {
  readonly valid: number;
}

/**
 * Pieces with the padding of the dimension's extents, split where extents end: the padding of an extent is at the major end of
 * the part that it covers. Layouts in the middle of a resharding may shard across extents: they show padded sizes.
 */
function withExtents(pieces: readonly Piece[], extents: readonly Extent[] | null, mesh: Mesh): readonly WrittenPiece[] {
  const plain = pieces.map((piece) => ({ ...piece, valid: piece.size }));
  if (!extents) return plain;
  const digits = [...digitsOf(pieces, mesh)];
  const result: WrittenPiece[] = [];
  for (const { size, valid } of extents) {
    const covered: Digit[] = [];
    for (let rest = size; rest > 1; ) {
      const digit = digits.shift();
      if (!digit) return plain;
      const part = digit.axis === null && digit.size > rest ? rest : digit.size;
      if (rest % part !== 0 || digit.size % part !== 0) return plain;
      if (part < digit.size) digits.unshift({ axis: null, size: digit.size / part });
      covered.push({ axis: digit.axis, size: part });
      rest /= part;
    }
    const [first, ...others] = piecesOf(covered);
    const minor = others.reduce((product, piece) => product * piece.size, 1);
    if (!first || valid % minor !== 0) return plain;
    result.push({ ...first, valid: valid / minor }, ...others.map((piece) => ({ ...piece, valid: piece.size })));
  }
  return result;
}

function dimensionText(given: readonly WrittenPiece[], mesh: Mesh, names: AxisNames): string {
  const isPlain = ({ size, valid, axes }: WrittenPiece) => size === paddedSize(valid, axesSize(mesh, axes));
  // 384 of 512 over tp 4 are 6 of 8 times 64: written so, the padding is implied.
  const pieces = given.flatMap((piece): readonly WrittenPiece[] => {
    const { size, valid, axes } = piece;
    if (isPlain(piece)) return [piece];
    const fits = (minor: number) =>
      valid % minor === 0 && size % minor === 0 && paddedSize(valid / minor, axesSize(mesh, axes)) === size / minor;
    for (let minor = 2; minor * 2 <= valid; minor++)
      if (fits(minor))
        return [
          { size: size / minor, valid: valid / minor, axes },
          { size: minor, valid: minor, axes: [] },
        ];
    return [piece];
  });
  const [first] = pieces;
  if (pieces.length === 1 && first && isPlain(first))
    return first.axes.length === 0 ? '-' : axesText(names(first.axes, mesh));
  const parts = pieces.map((piece) => {
    const size = isPlain(piece) ? `${piece.valid}` : `${piece.valid}~${piece.size}`;
    return piece.axes.length === 0 ? size : `${size}:${axesText(names(piece.axes, mesh))}`;
  });
  return `(${parts.join(' | ')})`;
}

function axesText(names: readonly string[]): string {
  return names.length === 1 ? (names[0] ?? '') : `(${names.join(',')})`;
}

function partialTexts(partial: readonly PartialAxis[], mesh: Mesh, names: AxisNames): readonly string[] {
  return REDUCTIONS.flatMap((reduction) => {
    const held = new Set(partial.filter((entry) => entry.reduction === reduction).map((entry) => entry.axis));
    const inOrder = subAxes(mesh).flatMap((sub) => (held.has(sub.name) ? [sub.name] : []));
    const mark = reduction === 'sum' ? '' : `, ${reduction}`;
    return names(inOrder, mesh).map((name) => `partial(${name}${mark})`);
  });
}

/** The axes, with all sub-axes of an axis that are adjacent in order written as the axis. */
export function shortNames(axes: readonly SubAxis[], mesh: Mesh): readonly string[] {
  const names: string[] = [];
  for (let index = 0; index < axes.length; ) {
    const whole = mesh.axes.find(
      ({ subAxes: subs }) => subs.length > 0 && subs.every((sub, offset) => sub.name === axes[index + offset]),
    );
    names.push(whole ? whole.name : (axes[index] ?? ''));
    index += whole ? whole.subAxes.length : 1;
  }
  return names;
}

/** The axes in the mesh's order; an axis with all of its sub-axes is written as the axis. */
export function namesInMeshOrder(axes: readonly SubAxis[], mesh: Mesh): readonly string[] {
  return mesh.axes.flatMap(({ name, subAxes: subs }) => {
    const used = subs.map((sub) => sub.name).filter((sub) => axes.includes(sub));
    return used.length > 0 && used.length === subs.length ? [name] : used;
  });
}

/** The axes for people; an axis with only some of its sub-axes is written with the ranks that these make: `tp 2 of 8`. */
export function rankNames(axes: readonly SubAxis[], mesh: Mesh): readonly string[] {
  const used = new Map<string, number>();
  const sizes = new Map<string, number>();
  for (const sub of axes) {
    const axis = mesh.axes.find(({ subAxes: subs }) => subs.some(({ name }) => name === sub));
    const name = axis?.name ?? sub;
    sizes.set(name, axis?.size ?? 1);
    used.set(name, (used.get(name) ?? 1) * (axis ? axesSize(mesh, [sub]) : 1));
  }
  return [...used].map(([name, ranks]) =>
    ranks === sizes.get(name) ? name : `${name} ${ranks} of ${sizes.get(name)}`,
  );
}

/**
 * Factors and their axes for people. A factor in pieces is written like a dimension of a layout, `n: (3 | 64:tp)`, and like one
 * without pieces where the shards are the same: `(2:dp | 4:tp)` on dp 2 is `dp,tp`.
 */
export function shownStrategy({ axes, pieces = {} }: FactorAxes, mesh: Mesh): string {
  const text = (own: readonly SubAxis[] = []) => rankNames(own, mesh).join(',');
  const isPiece = (factor: string) => Object.keys(pieces).some((own) => factor.startsWith(`${own}.`));
  const whole = Object.keys(axes).filter((factor) => (axes[factor] ?? []).length > 0 && !isPiece(factor));
  const inPieces = Object.entries(pieces).map(([factor, sizes]) => {
    const written = sizes.map((size, index): Piece => ({ size, axes: axes[`${factor}.${index}`] ?? [] }));
    const isEven = written.every(({ size, axes: own }) => size % axesSize(mesh, own) === 0);
    const merged = (isEven ? normalise([written], [], mesh).dims[0] : null) ?? written;
    if (merged.length === 1) return `${factor}: ${text(merged[0]?.axes)}`;
    const parts = merged.map(({ size, axes: own }) => (own.length > 0 ? `${size}:${text(own)}` : `${size}`));
    return `${factor}: (${parts.join(' | ')})`;
  });
  return [...whole.map((factor) => `${factor}: ${text(axes[factor])}`), ...inPieces].join(', ') || 'replicated';
}

/** A text that names axes, such as a layout, for people: `[(tp.0,tp.1), -]` on tp 8 is `[tp 4 of 8, -]`. */
export function shownAxes(text: string, mesh: Mesh): string {
  const parts = new Map<string, readonly SubAxis[]>([
    ...subAxes(mesh).map(({ name }) => [name, [name]] as const),
    ...mesh.axes.map(({ name, subAxes: subs }) => [name, subs.map((sub) => sub.name)] as const),
  ]);
  const ranks = (list: string) =>
    list.includes('.')
      ? rankNames(
          list.split(',').flatMap((name) => parts.get(name) ?? [name]),
          mesh,
        )
      : list.split(',');
  const name = `(?:${mesh.axes.map((axis) => axis.name).join('|')})(?:\\.\\d+)?`;
  // Parentheses of a list go where one name is left, those of `partial(tp)` and `all-gather(tp)` stay.
  const inParentheses = new RegExp(`(?<![\\w-])\\((${name}(?:,${name})+)\\)`, 'g');
  const bare = new RegExp(`\\b${name}(?:,${name})*\\b`, 'g');
  return text
    .replace(inParentheses, (_, list: string) => axesText(ranks(list)))
    .replace(bare, (list) => ranks(list).join(','));
}

function piecesOfSpec(
  spec: DimensionSpec,
  size: number,
  dimension: number,
  reader: LayoutReader,
  mesh: Mesh,
): readonly WrittenPiece[] {
  const pieces = 'axes' in spec ? [{ size, valid: size, axes: spec.axes }] : spec.pieces;
  const product = pieces.reduce((total, piece) => total * piece.valid, 1);
  if (product !== size) {
    throw reader.error(`the pieces of dimension ${dimension} multiply to ${product}, the dimension is ${size}`);
  }
  return pieces.map((piece) => {
    const shards = axesSize(mesh, piece.axes);
    const axes = axesText(shortNames(piece.axes, mesh));
    if (piece.valid < shards && piece.valid > 0)
      throw reader.error(`${axes} cuts the ${piece.valid} elements of dimension ${dimension} into ${shards} parts`);
    const padded = paddedSize(Math.max(piece.size, piece.valid), shards);
    if (piece.size > piece.valid && padded !== piece.size)
      throw reader.error(
        `${axes} cuts into ${shards} parts, which does not divide ${piece.size} (dimension ${dimension})`,
      );
    return { ...piece, size: padded };
  });
}

function checkUsedOnce(axes: readonly SubAxis[], reader: LayoutReader): void {
  const twice = axes.find((axis, index) => axes.indexOf(axis) !== index);
  if (twice !== undefined) throw reader.error(`axis ${twice} is used twice`);
}

/** Reads a layout text from left to right. */
class LayoutReader {
  private readonly tokens: readonly string[];
  private position = 0;

  constructor(
    private readonly text: string,
    private readonly mesh: Mesh,
  ) {
    this.tokens = text.match(/[A-Za-z_][\w.]*|\d+|\S/g) ?? [];
  }

  dimensions(): readonly DimensionSpec[] {
    this.expect('[');
    if (this.accept(']')) return [];
    const dims = [this.dimension()];
    while (this.accept(',')) dims.push(this.dimension());
    this.expect(']');
    return dims;
  }

  partials(): readonly PartialAxis[] {
    const partial: PartialAxis[] = [];
    while (this.accept('+')) {
      this.expect('partial');
      this.expect('(');
      partial.push(...this.partialAxes());
    }
    if (this.position < this.tokens.length) throw this.error(`'${this.tokens[this.position]}' was not expected`);
    return partial;
  }

  error(reason: string): AutoparError {
    return new AutoparError(
      'bad-layout',
      'input',
      `layout '${this.text}': ${reason}`,
      {},
      'write one entry per dimension, such as [dp, (3 | 64:tp), -] + partial(tp); docs/concepts.md has the notation',
    );
  }

  private dimension(): DimensionSpec {
    if (this.accept('-')) return { axes: [] };
    if (!this.accept('(')) return { axes: this.axis() };
    if (!isNumber(this.tokens[this.position])) return { axes: this.restOfAxes() };
    const pieces = [this.piece()];
    while (this.accept('|')) pieces.push(this.piece());
    this.expect(')');
    return { pieces };
  }

  private piece(): WrittenPiece {
    const valid = this.size('a piece begins with its size');
    const size = this.accept('~') ? this.size('the padded size must follow ~') : valid;
    if (size < valid) throw this.error(`${valid} elements are not padded to ${size}`);
    return { size, valid, axes: this.accept(':') ? this.axes() : [] };
  }

  private size(expected: string): number {
    const token = this.next('a size');
    if (!isNumber(token) || Number(token) < 1) throw this.error(`${expected}, not '${token}'`);
    return Number(token);
  }

  private axes(): readonly SubAxis[] {
    return this.accept('(') ? this.restOfAxes() : this.axis();
  }

  private restOfAxes(): readonly SubAxis[] {
    const axes = [...this.axis()];
    while (this.accept(',')) axes.push(...this.axis());
    this.expect(')');
    return axes;
  }

  private axis(): readonly SubAxis[] {
    const name = this.next('an axis');
    const found = subAxesNamed(this.mesh, name);
    if (found.length > 0 || this.mesh.axes.some((axis) => axis.name === name)) return found;
    const known = this.mesh.axes.map((candidate) => `${candidate.name}=${candidate.size}`).join(', ');
    throw this.error(`the mesh (${known}) has no axis '${name}'`);
  }

  private partialAxes(): readonly PartialAxis[] {
    const axes = [...this.axis()];
    let reduction: Reduction = 'sum';
    while (!this.accept(')')) {
      this.expect(',');
      const named = REDUCTIONS.find((candidate) => candidate === this.tokens[this.position]);
      if (named && this.tokens[this.position + 1] === ')') {
        reduction = named;
        this.position += 1;
      } else axes.push(...this.axis());
    }
    return axes.map((axis) => ({ axis, reduction }));
  }

  private accept(token: string): boolean {
    if (this.tokens[this.position] !== token) return false;
    this.position += 1;
    return true;
  }

  private expect(token: string): void {
    if (!this.accept(token)) {
      throw this.error(`expected '${token}', found ${this.found()}`);
    }
  }

  private next(what: string): string {
    const token = this.tokens[this.position];
    if (token === undefined) throw this.error(`expected ${what}, found the end`);
    this.position += 1;
    return token;
  }

  private found(): string {
    const token = this.tokens[this.position];
    return token === undefined ? 'the end' : `'${token}'`;
  }
}

function isNumber(token: string | undefined): boolean {
  return token !== undefined && /^\d+$/.test(token);
}
