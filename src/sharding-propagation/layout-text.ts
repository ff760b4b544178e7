/**
 * @file Layouts as text, the one notation of messages, plan.json and documentation (docs/layouts.md).
 *
 *     layout := '[' (dim (',' dim)*)? ']' ('+' partial)*
 *     dim    := '-' | axes | '(' piece ('|' piece)* ')'
 *     piece  := SIZE (':' axes)?
 *     axes   := AXIS | '(' AXIS (',' AXIS)* ')'
 *     partial:= 'partial(' AXIS (',' AXIS)* (',' 'sum' | 'max' | 'min')? ')'
 *
 * AXIS is a mesh axis (`tp`: all its sub-axes, major to minor) or one sub-axis (`tp.0`).
 */
import { AutoparError } from '../ir/error.js';
import type { Reduction } from '../ir/factor-rule.js';
import { type Layout, normalise, type PartialAxis, type Piece } from './layout.js';
import { axesSize, type Mesh, type SubAxis, subAxes } from './mesh.js';

/** The layout in text; `parseLayout` of it with the tensor's shape gives the layout back. */
export function layoutText(layout: Layout, mesh: Mesh): string {
  const dims = layout.dims.map((pieces) => dimensionText(pieces, mesh));
  return [`[${dims.join(', ')}]`, ...partialTexts(layout.partial, mesh)].join(' + ');
}

/**
 * The layout that a text describes for a tensor of `shape` on `mesh`, in merged form.
 *
 * Throws AutoparError `bad-layout` where the text does not parse, names an axis that the mesh lacks, uses an axis twice,
 * has another number of dimensions than the tensor, or cuts a size that its axes do not divide.
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
  return normalise(dims, partial, mesh);
}

/** A dimension as written: pieces with sizes, or axes that cut the whole dimension. */
type DimensionSpec = { readonly pieces: readonly Piece[] } | { readonly axes: readonly SubAxis[] };

const REDUCTIONS: readonly Reduction[] = ['sum', 'max', 'min'];

function dimensionText(pieces: readonly Piece[], mesh: Mesh): string {
  const [first] = pieces;
  if (pieces.length === 1 && first) return first.axes.length === 0 ? '-' : axesText(first.axes, mesh);
  const parts = pieces.map(({ size, axes }) => (axes.length === 0 ? `${size}` : `${size}:${axesText(axes, mesh)}`));
  return `(${parts.join(' | ')})`;
}

function axesText(axes: readonly SubAxis[], mesh: Mesh): string {
  const names = shortNames(axes, mesh);
  return names.length === 1 ? (names[0] ?? '') : `(${names.join(',')})`;
}

function partialTexts(partial: readonly PartialAxis[], mesh: Mesh): readonly string[] {
  return REDUCTIONS.flatMap((reduction) => {
    const held = new Set(partial.filter((entry) => entry.reduction === reduction).map((entry) => entry.axis));
    const inOrder = subAxes(mesh).flatMap((sub) => (held.has(sub.name) ? [sub.name] : []));
    const mark = reduction === 'sum' ? '' : `, ${reduction}`;
    return shortNames(inOrder, mesh).map((name) => `partial(${name}${mark})`);
  });
}

/** The axes, with all sub-axes of an axis that stand together in order written as the axis. */
function shortNames(axes: readonly SubAxis[], mesh: Mesh): readonly string[] {
  const names: string[] = [];
  for (let index = 0; index < axes.length; ) {
    const whole = mesh.axes.find(
      ({ subAxes: subs }) => subs.length > 1 && subs.every((sub, offset) => sub.name === axes[index + offset]),
    );
    names.push(whole ? whole.name : (axes[index] ?? ''));
    index += whole ? whole.subAxes.length : 1;
  }
  return names;
}

function piecesOfSpec(
  spec: DimensionSpec,
  size: number,
  dimension: number,
  reader: LayoutReader,
  mesh: Mesh,
): readonly Piece[] {
  const pieces = 'axes' in spec ? [{ size, axes: spec.axes }] : spec.pieces;
  const product = pieces.reduce((total, piece) => total * piece.size, 1);
  if (product !== size) {
    throw reader.error(`the pieces of dimension ${dimension} multiply to ${product}, the dimension is ${size}`);
  }
  for (const piece of pieces) {
    const shards = axesSize(mesh, piece.axes);
    if (piece.size % shards === 0) continue;
    const axes = axesText(piece.axes, mesh);
    throw reader.error(
      `${axes} cuts into ${shards} parts, which does not divide ${piece.size} (dimension ${dimension})`,
    );
  }
  return pieces;
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
      'write one entry per dimension, such as [dp, (3 | 64:tp), -] + partial(tp); docs/layouts.md has the notation',
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

  private piece(): Piece {
    const token = this.next('a size');
    if (!isNumber(token) || Number(token) < 1) throw this.error(`a piece begins with its size, not with '${token}'`);
    return { size: Number(token), axes: this.accept(':') ? this.axes() : [] };
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
    const axis = this.mesh.axes.find((candidate) => candidate.name === name);
    if (axis) return axis.subAxes.map((sub) => sub.name);
    if (subAxes(this.mesh).some((sub) => sub.name === name)) return [name];
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
