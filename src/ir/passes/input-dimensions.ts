/**
 * @file Dimensions that are bound by place: `--dim 'x[0]=4'` names dimension 0 of input x, `--shape x=4,8` all of them. A
 * dimension without a name can be bound in no other way, and an input without a shape gets its rank from them.
 */
import { AutoparError } from '../error.js';
import { MOST_DIMENSIONS } from '../graph.js';
import { offer } from '../nearest.js';
import type { SourceDimension, SourceValue } from '../onnx/model.js';
import { evaluateDimension, isDimensionName, placeKey, tooManyDimensions } from './dims.js';

export interface RequestedDimensions {
  /** By name, `batch`, or by place, `x[0]`. */
  readonly dims?: Readonly<Record<string, number>>;
  /** Whole shapes by input. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>;
}

export interface BoundDimensions {
  /** The inputs with the sizes of bound places where nothing else gives one. */
  readonly inputs: readonly SourceValue[];
  /** Sizes by name: those given, and those of named dimensions that were bound by place. */
  readonly named: ReadonlyMap<string, number>;
  /** All that was given, by name or place: binding it again gives the same, whatever was given as a shape. */
  readonly given: Readonly<Record<string, number>>;
}

/** One dimension of an input with the size given for it. */
interface BoundPlace {
  readonly key: string;
  readonly input: SourceValue;
  readonly axis: number;
  readonly size: number;
}

/** `x[]` of an input without a shape states that it is a scalar, whose one element is in no dimension. */
function scalarKey(input: string): string {
  return `${input}[]`;
}

/**
 * Binds the dimensions given by place; names are checked by `checkDims`.
 * @throws AutoparError (usage) `unknown-input`, `unknown-dimension`, `bad-dimension` for a place that the model lacks or a size
 *   that is not a positive integer, `dimension-contradiction` where two sizes are given for one dimension or the file fixes
 *   another
 */
export function bindDimensions(
  inputs: readonly SourceValue[],
  { dims = {}, shapes = {} }: RequestedDimensions,
  file: string,
): BoundDimensions {
  const texts = new Set(inputs.flatMap(({ shape }) => shape ?? []));
  const [named, byPlace] = parted(Object.entries(dims), ([key]) => texts.has(key) || placeOf(key) === null);
  const given = new Map(byPlace);
  for (const [key, size] of placesOfShapes(inputs, shapes, file)) {
    const before = given.get(key);
    if (before !== undefined && before !== size) throw contradiction(key, size, `--dim ${key}=${before}`, file);
    given.set(key, size);
  }
  const places = [...given].map(([key, size]) => boundPlace(key, size, inputs, file));
  const sizes = new Map(named);
  for (const { key, input, axis, size } of places) {
    const dimension = input.shape?.[axis];
    if (typeof dimension !== 'string' || !isDimensionName(dimension)) continue;
    const before = sizes.get(dimension);
    if (before !== undefined && before !== size) throw contradiction(key, size, `--dim ${dimension}=${before}`, file);
    sizes.set(dimension, size);
  }
  const bound = inputs.map((input) => boundInput(input, places, sizes, file));
  return { inputs: bound, named: sizes, given: sorted([...named, ...given]) };
}

function placesOfShapes(
  inputs: readonly SourceValue[],
  shapes: Readonly<Record<string, readonly number[]>>,
  file: string,
): readonly (readonly [string, number])[] {
  return Object.entries(shapes).flatMap(([name, shape]): readonly (readonly [string, number])[] => {
    const input = inputNamed(name, `--shape ${name}=${shape}`, inputs, file);
    if (shape.length > MOST_DIMENSIONS) throw tooManyDimensions(input, shape.length, file);
    if (input.shape && input.shape.length !== shape.length)
      throw new AutoparError(
        'dimension-contradiction',
        'usage',
        `--shape ${name}=${shape} has ${shape.length} dimensions, and input ${shapeText(input)} has ${input.shape.length}`,
        { file, tensor: name },
        'give a size for every dimension of the input',
      );
    if (!input.shape && shape.length === 0) return [[scalarKey(name), 1]];
    return shape.map((size, axis) => {
      // A dimension that the file fixes at 0 is not the user's choice.
      if (!(size === 0 && input.shape?.[axis] === 0)) checkSize(`--shape ${name}=${shape}`, size, file);
      return [placeKey(name, axis), size] as const;
    });
  });
}

/** `x[0]` as input and axis, `x[]` with axis null; null for a text of neither form. */
function placeOf(key: string): { readonly input: string; readonly axis: number | null } | null {
  const [, input, axis] = /^(.+)\[(-?\d*)\]$/s.exec(key) ?? [];
  return input === undefined || axis === undefined || axis === '-'
    ? null
    : { input, axis: axis === '' ? null : Number(axis) };
}

function boundPlace(key: string, size: number, inputs: readonly SourceValue[], file: string): BoundPlace {
  const place = placeOf(key) ?? { input: key, axis: null };
  const says = `--dim ${key}=${size}`;
  const input = inputNamed(place.input, says, inputs, file);
  const axis = place.axis ?? -1;
  const isScalar = place.axis === null && !input.shape;
  const rank = input.shape?.length ?? MOST_DIMENSIONS;
  if (!isScalar && (axis < 0 || axis >= rank))
    throw new AutoparError(
      'unknown-dimension',
      'usage',
      `${says}: input ${shapeText(input)} has no dimension ${place.axis ?? 'without a number'}`,
      { file, tensor: input.name },
      rank === 0 ? 'it is a scalar' : `its dimensions are numbered from 0 to ${rank - 1}`,
    );
  if (!(size === 0 && input.shape?.[axis] === 0)) checkSize(says, size, file);
  return { key, input, axis, size };
}

function boundInput(
  input: SourceValue,
  places: readonly BoundPlace[],
  sizes: ReadonlyMap<string, number>,
  file: string,
): SourceValue {
  const own = new Map(places.filter((place) => place.input === input).map((place) => [place.axis, place]));
  if (own.size === 0) return input;
  const { shape } = input;
  if (!shape) return { ...input, shape: givenShape(input, own, file) };
  const bound = shape.map((dimension, axis): SourceDimension => {
    const place = own.get(axis);
    if (!place) return dimension;
    const known = typeof dimension === 'string' ? evaluateDimension(dimension, sizes) : dimension;
    if (known !== null && known !== place.size)
      throw contradiction(place.key, place.size, `${known} in ${shapeText(input)}`, file);
    return known === null ? place.size : dimension;
  });
  return { ...input, shape: bound };
}

/** The shape of an input that has none in the file. */
function givenShape(
  { name }: SourceValue,
  own: ReadonlyMap<number, BoundPlace>,
  file: string,
): readonly SourceDimension[] {
  const rank = own.has(-1) ? 0 : own.size;
  const shape = Array.from({ length: rank }, (_, axis) => own.get(axis)?.size ?? null);
  const stray = [...own.values()].find(({ axis }) => axis >= rank);
  const last = Math.max(...own.keys());
  if (rank === 0 ? own.size === 1 : last === rank - 1) return shape;
  throw new AutoparError(
    'unknown-dimension',
    'usage',
    rank === 0
      ? `input '${name}' is given as a scalar and with dimension ${last}`
      : `--dim ${stray?.key}=${stray?.size}: input '${name}' has no shape, and dimension ${shape.indexOf(null)} has no size`,
    { file, tensor: name },
    `give its whole shape: --shape '${name}=SIZE,SIZE'`,
  );
}

function inputNamed(name: string, says: string, inputs: readonly SourceValue[], file: string): SourceValue {
  const input = inputs.find((each) => each.name === name);
  if (input) return input;
  const names = inputs.map((each) => each.name);
  throw new AutoparError(
    'unknown-input',
    'usage',
    `${says}: the model has no input '${name}'`,
    { file },
    offer(name, names),
  );
}

function shapeText({ name, shape }: SourceValue): string {
  return shape
    ? `${name} [${shape.map((dimension) => dimension ?? '?').join(', ')}]`
    : `'${name}', which has no shape,`;
}

function checkSize(says: string, size: number, file: string): void {
  if (Number.isSafeInteger(size) && size >= 1) return;
  throw new AutoparError('bad-dimension', 'usage', `${says}: a size must be a positive integer`, { file });
}

function contradiction(key: string, size: number, other: string, file: string): AutoparError {
  return new AutoparError(
    'dimension-contradiction',
    'usage',
    `${key}=${size} contradicts ${other}`,
    { file },
    'give one size for it',
  );
}

function parted<Item>(items: readonly Item[], first: (item: Item) => boolean): [Item[], Item[]] {
  return [items.filter(first), items.filter((item) => !first(item))];
}

function sorted(entries: readonly (readonly [string, number])[]): Readonly<Record<string, number>> {
  return Object.fromEntries([...entries].sort(([a], [b]) => (a < b ? -1 : 1)));
}
