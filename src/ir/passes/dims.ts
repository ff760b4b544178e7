/**
 * @file Named dimensions: `--dim N=4` binds names, and expressions over them (`s0 + 1`, `2*N`) get their values. Dimensions
 * that are bound by place (input-dimensions.ts) have their sizes already.
 *
 *     sum     := product (('+' | '-') product)*
 *     product := factor (('*' | '/' | '//' | '%') factor)*
 *     factor  := number | name | '(' sum ')' | '-' factor | ('floor' | 'max' | 'min' | …) '(' sum, … ')'
 */
import { AutoparError } from '../error.js';
import { MOST_DIMENSIONS } from '../graph.js';
import { appendTo } from '../group-by.js';
import type { SourceDimension, SourceValue } from '../onnx/model.js';
import { shellWord } from '../shell-word.js';

/** The sizes of an input or value; null where one is not bound or not stated. */
export function boundShape(
  shape: readonly SourceDimension[] | null,
  dims: ReadonlyMap<string, number>,
): readonly number[] | null {
  if (!shape) return null;
  const sizes = shape.map((dimension) => dimensionSize(dimension, dims));
  return sizes.every((size) => size !== null) ? sizes : null;
}

/**
 * Checks that the dimensions of all `inputs` are bound. Throws `unbound-dimension` listing every free name with the
 * inputs it occurs in, `bad-dimension` for a size that is not a positive integer, `unknown-dimension` for an unknown name.
 */
export function checkDims(inputs: readonly SourceValue[], dims: ReadonlyMap<string, number>, file: string): void {
  const named = new Set(
    inputs.flatMap((input) =>
      (input.shape ?? []).flatMap((item) => (typeof item === 'string' ? [item, ...namesOf(item)] : [])),
    ),
  );
  for (const [name, size] of dims) {
    if (!Number.isSafeInteger(size) || size < 1) {
      throw new AutoparError('bad-dimension', 'usage', `--dim ${name}=${size}: a size must be a positive integer`, {
        file,
      });
    }
    if (!named.has(name)) {
      const known = [...named].sort();
      throw new AutoparError(
        'unknown-dimension',
        'usage',
        `--dim ${name}=${size}: the model's inputs have no dimension '${name}'`,
        { file },
        known.length > 0 ? `its named dimensions are ${known.join(', ')}` : 'all its dimensions are fixed',
      );
    }
  }
  for (const input of inputs) {
    const rank = input.shape?.length ?? 0;
    if (rank > MOST_DIMENSIONS) throw tooManyDimensions(input, rank, file);
  }
  for (const input of inputs)
    if (!input.shape) throw input.dtype === null ? noTensor(input, file) : unranked(input, file);
  const free = freeDimensions(inputs, dims);
  if (free.size > 0) throw unbound(free, file);
}

/** Where a dimension occurs: axis `axis` of an input. */
export interface DimensionPlace {
  readonly input: SourceValue;
  readonly axis: number;
}

/**
 * Dimensions that `dims` does not bind, as `--dim` names them (by place, `ids[0]`, where they have no name), with where they
 * occur.
 */
export function freeDimensions(
  inputs: readonly SourceValue[],
  dims: ReadonlyMap<string, number>,
): ReadonlyMap<string, readonly DimensionPlace[]> {
  const free = new Map<string, DimensionPlace[]>();
  for (const input of inputs) {
    input.shape?.forEach((dimension, axis) => {
      if (dimensionSize(dimension, dims) !== null) return;
      const names = typeof dimension === 'string' ? unboundNames(dimension, dims) : [placeKey(input.name, axis)];
      for (const name of names) {
        appendTo(free, name, { input, axis });
      }
    });
  }
  return free;
}

/** How dimension `axis` of an input is named where it has no name of its own: `ids[0]`. */
export function placeKey(input: string, axis: number): string {
  return `${input}[${axis}]`;
}

/** `ids [batch, 12] axis 0`. */
export function placeText({ input, axis }: DimensionPlace): string {
  return `${input.name} [${(input.shape ?? []).map((item) => item ?? '?').join(', ')}] axis ${axis}`;
}

/** The value of a dimension expression; null where a name in it is not bound or it is not an expression that is understood. */
export function evaluateDimension(text: string, dims: ReadonlyMap<string, number>): number | null {
  const whole = dims.get(text.trim());
  if (whole !== undefined) return whole;
  const tokens = tokensOf(text);
  if (!tokens) return null;
  const parser = new ExpressionParser(tokens, dims);
  const value = parser.sum();
  return value !== null && parser.atEnd() && Number.isSafeInteger(value) && value >= 0 ? value : null;
}

function dimensionSize(dimension: SourceDimension, dims: ReadonlyMap<string, number>): number | null {
  return typeof dimension === 'string' ? evaluateDimension(dimension, dims) : dimension;
}

/** Whether a dimension's text is a name, which stands for one size wherever it occurs, and not an expression over names. */
export function isDimensionName(text: string): boolean {
  const tokens = tokensOf(text);
  return tokens === null || (tokens.length === 1 && !/^\d/.test(text.trim()));
}

/** Evaluates while it parses; null spreads from unbound names and malformed text. */
class ExpressionParser {
  private position = 0;

  constructor(
    private readonly tokens: readonly string[],
    private readonly dims: ReadonlyMap<string, number>,
  ) {}

  atEnd(): boolean {
    return this.position === this.tokens.length;
  }

  sum(): number | null {
    return this.chain(() => this.product(), ['+', '-']);
  }

  private product(): number | null {
    return this.chain(() => this.factor(), ['*', '/', '//', '%']);
  }

  private chain(operand: () => number | null, operators: readonly string[]): number | null {
    let value = operand();
    while (operators.includes(this.peek())) {
      const apply = OPERATORS[this.next()];
      const right = operand();
      value = value === null || right === null || !apply ? null : apply(value, right);
    }
    return value;
  }

  private factor(): number | null {
    const token = this.next();
    if (token === '-') {
      const value = this.factor();
      return value === null ? null : -value;
    }
    if (token === '(') {
      const value = this.sum();
      return this.next() === ')' ? value : null;
    }
    if (/^\d/.test(token)) return Number(token);
    if (this.peek() === '(') return this.call(token);
    return this.dims.get(token) ?? null;
  }

  private call(name: string): number | null {
    const values: (number | null)[] = [];
    do {
      this.next();
      values.push(this.sum());
    } while (this.peek() === ',');
    const apply = Object.hasOwn(FUNCTIONS, name) ? FUNCTIONS[name] : undefined;
    if (this.next() !== ')' || !apply) return null;
    return values.every((value) => value !== null) ? apply(...values) : null;
  }

  private peek(): string {
    return this.tokens[this.position] ?? '';
  }

  private next(): string {
    return this.tokens[this.position++] ?? '';
  }
}

const OPERATORS: Readonly<Record<string, (left: number, right: number) => number>> = {
  '+': (left, right) => left + right,
  '-': (left, right) => left - right,
  '*': (left, right) => left * right,
  '/': (left, right) => left / right,
  '//': (left, right) => Math.floor(left / right),
  '%': (left, right) => left % right,
};

const FUNCTIONS: Readonly<Record<string, (...values: number[]) => number>> = {
  floor: (value = 0) => Math.floor(value),
  ceil: (value = 0) => Math.ceil(value),
  ceiling: (value = 0) => Math.ceil(value),
  max: Math.max,
  Max: Math.max,
  min: Math.min,
  Min: Math.min,
};

/** Longer texts are not expressions, and may be nested deeper than a parser should go. */
const LONGEST_EXPRESSION = 4096;

function tokensOf(text: string): readonly string[] | null {
  if (text.length > LONGEST_EXPRESSION) return null;
  const tokens = text.match(/\d+|[A-Za-z_][\w.]*|\/\/|[-+*/%(),]/g) ?? [];
  return tokens.length > 0 && tokens.join('') === text.replace(/\s+/g, '') ? tokens : null;
}

function namesOf(text: string): readonly string[] {
  return (tokensOf(text) ?? []).filter((token) => /^[A-Za-z_]/.test(token) && !Object.hasOwn(FUNCTIONS, token));
}

/** The names to bind: those inside an expression, else the whole text. */
function unboundNames(text: string, dims: ReadonlyMap<string, number>): readonly string[] {
  const names = namesOf(text).filter((name) => !dims.has(name));
  return names.length > 0 ? names : [text];
}

/** The first places, and how many more there are. */
function placesText(places: readonly DimensionPlace[]): string {
  const shown = places.slice(0, 8).map(placeText).join('; ');
  return places.length > 8 ? `${shown}; and ${places.length - 8} more` : shown;
}

function unbound(free: ReadonlyMap<string, readonly DimensionPlace[]>, file: string): AutoparError {
  const lines = [...free].map(([name, places]) => `${name} (${placesText(places)})`);
  const whole = [...free].flatMap(([name, places]) =>
    places.filter(({ input, axis }) => placeKey(input.name, axis) === name),
  );
  const [first] = whole;
  const sizes = first?.input.shape?.map((size) => (typeof size === 'number' ? size : 'SIZE'));
  return new AutoparError(
    'unbound-dimension',
    'input',
    `the model leaves dimensions open: ${lines.join(', ')}`,
    { file },
    `bind them: ${[...free.keys()].map((name) => `--dim ${shellWord(`${name}=SIZE`)}`).join(' ')}${
      first && sizes ? `; or a whole shape: --shape ${shellWord(`${first.input.name}=${sizes}`)}` : ''
    }`,
  );
}

export function tooManyDimensions({ name }: SourceValue, rank: number, file: string): AutoparError {
  return new AutoparError(
    'tensor-size',
    'input',
    `input '${name}' has ${rank} dimensions; ${MOST_DIMENSIONS} is the maximum`,
    { file, tensor: name },
    'the file is damaged, or its exporter is wrong; reshape the input',
  );
}

function noTensor({ name }: SourceValue, file: string): AutoparError {
  return new AutoparError(
    'unsupported-input',
    'input',
    `input '${name}' is a sequence, an optional or a map, or has no type at all`,
    { file, tensor: name },
    'autopar takes tensors: give the elements as separate inputs',
  );
}

function unranked(input: SourceValue, file: string): AutoparError {
  return new AutoparError(
    'unbound-dimension',
    'input',
    `input '${input.name}' has no shape`,
    { file, tensor: input.name },
    `give it: --shape ${shellWord(`${input.name}=SIZE,SIZE`)}, or its dimensions: --dim ` +
      `${shellWord(`${placeKey(input.name, 0)}=SIZE`)} …`,
  );
}
