/**
 * @file The text of factor rules: parsing, and binding to the shapes of one operator.
 *
 *     b (h g) s e!, b h t! e!, b h t! f -> b (h g) s f
 *
 * Commas separate operands, blanks separate dimensions. A dimension is a factor, `(major minor)`, `1` (no factor), or `*b`:
 * any number of leading dimensions, aligned at the right as in NumPy and named b0, b1, … An operand that is left out
 * is `_`. Marks after a factor's name give its kind; one occurrence with a mark is enough. `x~y` names the factor whose windows
 * read x.
 *
 * Binding finds every factor's size. A factor that stands alone in a dimension has that dimension's size; one in a
 * parenthesis has what the others leave. An operand's dimension of size 1 against larger factors is a broadcast: it
 * gets no factor. Sizes that the shapes leave open (an output-only group) can be passed in.
 */
import type { DimensionFactors, Factor, FactorRule, Window } from './factor-rule.js';
import type { Operator } from './operator.js';
import { madeOnce } from './remembered.js';

/** Kinds and reductions by mark. `!#` is whole and blocked, which is whole. */
const MARKS: Readonly<Record<string, Pick<Factor, 'kind' | 'reduction' | 'streams'>>> = {
  '': { kind: 'pass', reduction: 'sum' },
  '+': { kind: 'contracting', reduction: 'sum' },
  '+max': { kind: 'contracting', reduction: 'max' },
  '+min': { kind: 'contracting', reduction: 'min' },
  '+mask': { kind: 'mask', reduction: 'sum' },
  '!': { kind: 'whole', reduction: 'sum' },
  '!#': { kind: 'whole', reduction: 'sum' },
  '%': { kind: 'expanded', reduction: 'sum' },
  '@': { kind: 'indexed', reduction: 'sum' },
  '%>': { kind: 'expanded', reduction: 'sum', streams: true },
  '+>': { kind: 'contracting', reduction: 'sum', streams: true },
  '~': { kind: 'halo', reduction: 'sum' },
  '#': { kind: 'blocked', reduction: 'sum' },
};

/** A halo's mark names the factor that it follows. */
function markKey(mark: string): string {
  return mark.startsWith('~') ? '~' : mark;
}

/** The part of an operator that binding reads. */
type BindableOperator = Pick<Operator, 'name' | 'inputs' | 'outputs'>;

/**
 * Parses `text` and binds it to the operator's shapes. Operands beyond those of the text, and those that the operator
 * leaves out, are null. `sizes` fixes sizes that the shapes alone do not give; `windows` are those of factors written `x~y`.
 * Throws where shapes contradict the text: inference has checked them before, so that is an error in the entry.
 */
export function bindRule(
  text: string,
  operator: BindableOperator,
  sizes: Readonly<Record<string, number>> = {},
  windows: Readonly<Record<string, Window>> = {},
): FactorRule {
  const shapes = [...operator.inputs, ...operator.outputs].map((type) => (type ? type.shape.join() : '_')).join(';');
  const key = `${text}|${operator.inputs.length}|${shapes}|${Object.entries(sizes).join()}|${JSON.stringify(windows)}`;
  return madeOnce(BOUND_RULES, key, () => bind(text, operator, sizes, windows));
}

/** Binding depends only on the text and the shapes, and repeated layers have the same: each is bound once. */
const BOUND_RULES = new Map<string, FactorRule>();

function bind(
  text: string,
  operator: BindableOperator,
  sizes: Readonly<Record<string, number>>,
  windows: Readonly<Record<string, Window>>,
): FactorRule {
  const parsed = madeOnce(PARSED, text, () => parse(text));
  const widths = starWidths(parsed, operator, text);
  const inputs = operator.inputs.map((type, index) => spread(parsed.inputs[index] ?? null, type?.shape, widths));
  const outputs = operator.outputs.map((type, index) => spread(parsed.outputs[index] ?? null, type?.shape, widths));
  const known = solve([...inputs, ...outputs], new Map(Object.entries(sizes)), () => fault(operator, text));
  const factors = new Map<string, Factor>();
  const dimensionsOf = (operand: BoundOperand | null, broadcast: boolean): readonly DimensionFactors[] | null =>
    operand?.map(({ names, size }) => {
      const product = names.reduce((total, name) => total * (known.get(name) ?? 1), 1);
      if (product !== size && !(broadcast && size === 1)) throw fault(operator, text);
      return product === size ? names : [];
    }) ?? null;
  for (const operand of [...inputs, ...outputs])
    for (const { names } of operand ?? [])
      for (const name of names) {
        const mark = parsed.marks.get(name) ?? parsed.marks.get(starOf(name)) ?? '';
        const [window, of] = [windows[name], mark.startsWith('~') ? mark.slice(1) : ''];
        factors.set(name, {
          name,
          size: known.get(name) ?? 1,
          ...(MARKS[markKey(mark)] as (typeof MARKS)['']),
          ...(window && of !== '' ? { halo: { ...window, of } } : {}),
        });
      }
  return {
    factors,
    inputs: inputs.map((operand) => dimensionsOf(operand, true)),
    outputs: outputs.map((operand) => dimensionsOf(operand, false)),
    text,
  };
}

/** Size of a dimension: the product of its factors' sizes as `size` gives them; 1 for a dimension without factors. */
export function dimensionSize(names: DimensionFactors, size: (factor: string) => number): number {
  return names.reduce((product, name) => product * size(name), 1);
}

type ParsedDimension = { readonly star: string } | { readonly names: readonly string[] };
type ParsedOperand = readonly ParsedDimension[];

interface ParsedRule {
  readonly inputs: readonly (ParsedOperand | null)[];
  readonly outputs: readonly (ParsedOperand | null)[];
  /** By factor name; a star's mark under `*name`. */
  readonly marks: ReadonlyMap<string, string>;
}

/** Parsing is pure and the distinct texts are few, so each is parsed once. */
const PARSED = new Map<string, ParsedRule>();

function parse(text: string): ParsedRule {
  const sides = text.split('->');
  if (sides.length !== 2) throw new Error(`rule "${text}": exactly one -> is needed`);
  const marks = new Map<string, string>();
  const [inputs, outputs] = sides.map((side) =>
    side.trim() === '' ? [[]] : side.split(',').map((operand) => parseOperand(operand.trim(), marks, text)),
  );
  return { inputs: inputs ?? [], outputs: outputs ?? [], marks };
}

function parseOperand(operand: string, marks: Map<string, string>, text: string): ParsedOperand | null {
  if (operand === '_') return null;
  const dimensions: ParsedDimension[] = [];
  let group: string[] | null = null;
  for (const token of operand.match(/[()]|[^\s()]+/g) ?? []) {
    if (token === '(') {
      if (group) throw new Error(`rule "${text}": parentheses do not nest`);
      group = [];
    } else if (token === ')') {
      if (!group) throw new Error(`rule "${text}": ) without (`);
      dimensions.push({ names: group });
      group = null;
    } else if (token === '1' && !group) {
      dimensions.push({ names: [] });
    } else {
      const [, star = '', name = '', mark = ''] = /^(\*?)([A-Za-z_]\w*)(\W\w*[#>]?)?$/.exec(token) ?? [];
      if (name === '' || !Object.hasOwn(MARKS, markKey(mark)))
        throw new Error(`rule "${text}": cannot read "${token}"`);
      const key = star + name;
      const before = marks.get(key);
      if (before && mark && before !== mark) throw new Error(`rule "${text}": ${name} has two marks`);
      marks.set(key, mark || (before ?? ''));
      if (star && group) throw new Error(`rule "${text}": ${token} inside a parenthesis`);
      if (group) group.push(name);
      else dimensions.push(star ? { star: name } : { names: [name] });
    }
  }
  if (group) throw new Error(`rule "${text}": ( without )`);
  return dimensions;
}

/** `*b` for b0, b1, …: how the mark of a star is found again. */
function starOf(name: string): string {
  return `*${name.replace(/\d+$/, '')}`;
}

/** How many dimensions each star stands for: the most that any operand needs. */
function starWidths(parsed: ParsedRule, operator: BindableOperator, text: string): ReadonlyMap<string, number> {
  const widths = new Map<string, number>();
  const see = (operand: ParsedOperand | null | undefined, rank: number | undefined) => {
    const star = operand?.find((dimension) => 'star' in dimension);
    if (!operand || !star || rank === undefined || !('star' in star)) return;
    const width = rank - (operand.length - 1);
    if (width < 0) throw fault(operator, text);
    widths.set(star.star, Math.max(widths.get(star.star) ?? 0, width));
  };
  for (const [index, type] of operator.inputs.entries()) see(parsed.inputs[index], type?.shape.length);
  for (const [index, type] of operator.outputs.entries()) see(parsed.outputs[index], type?.shape.length);
  return widths;
}

type BoundOperand = readonly { readonly names: readonly string[]; readonly size: number }[];

/** An operand's dimensions with stars spread out and their sizes beside them. */
function spread(
  operand: ParsedOperand | null,
  shape: readonly number[] | undefined,
  widths: ReadonlyMap<string, number>,
): BoundOperand | null {
  if (!operand || !shape) return null;
  const dimensions = operand.flatMap((dimension): (readonly string[])[] => {
    if ('names' in dimension) return [dimension.names];
    const own = shape.length - (operand.length - 1);
    const first = (widths.get(dimension.star) ?? own) - own;
    return Array.from({ length: own }, (_, index) => [`${dimension.star}${first + index}`]);
  });
  if (dimensions.length !== shape.length)
    throw new Error(`rule operand with ${dimensions.length} dimensions against shape [${shape.join(', ')}]`);
  return dimensions.map((names, index) => ({ names, size: shape[index] ?? 1 }));
}

/**
 * Sizes of all factors. Certain ones first (alone in a dimension that is not 1), then what parentheses leave; a factor
 * seen alone in dimensions of size 1 only is taken for 1 when nothing else gives its size.
 */
function solve(
  operands: readonly (BoundOperand | null)[],
  known: Map<string, number>,
  contradiction: () => Error,
): ReadonlyMap<string, number> {
  const dimensions = operands.flatMap((operand) => operand ?? []);
  for (const { names, size } of dimensions) {
    const [name] = names;
    if (names.length === 1 && name !== undefined && size !== 1 && !known.has(name)) known.set(name, size);
  }
  for (;;) {
    let progress = false;
    for (const { names, size } of dimensions) {
      const open = names.filter((name) => !known.has(name));
      const [name] = open;
      if (open.length !== 1 || name === undefined || (names.length === 1 && size === 1)) continue;
      const rest = names.reduce((product, other) => product * (known.get(other) ?? 1), 1);
      if (size === 1 && rest > 1) continue;
      if (size % rest !== 0) throw contradiction();
      known.set(name, size / rest);
      progress = true;
    }
    if (progress) continue;
    const unit = dimensions.find(({ names: [name], size }) => size === 1 && name !== undefined && !known.has(name));
    if (!unit) break;
    for (const name of unit.names) if (!known.has(name)) known.set(name, 1);
  }
  if (dimensions.some(({ names }) => names.some((name) => !known.has(name)))) throw contradiction();
  return known;
}

function fault(operator: BindableOperator, text: string): Error {
  const shapes = (types: BindableOperator['inputs']) =>
    types.map((type) => (type ? `[${type.shape.join(', ')}]` : '_')).join(', ');
  return new Error(
    `${operator.name}: rule "${text}" does not fit ${shapes(operator.inputs)} -> ${shapes(operator.outputs)}`,
  );
}
