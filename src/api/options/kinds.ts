/**
 * @file The values that options may have, as data: used to check the options of a verb before anything runs.
 */
import { badOption, usageError } from '../../ir/error.js';
import { nearest } from '../../ir/nearest.js';

/** A kind of value; `keys` for objects with options of their own. */
export interface OptionKind {
  /** Text for error messages, after the word `expected`. */
  readonly expected: string;
  readonly holds: (value: unknown) => boolean;
  readonly keys?: Readonly<Record<string, OptionKind>>;
}

/** A kind for every option: an option without a kind fails to compile. */
export type KindsOf<Options> = { readonly [Key in keyof Required<Options>]: OptionKind };

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const flag: OptionKind = { expected: 'true or false', holds: (value) => typeof value === 'boolean' };
export const text: OptionKind = { expected: 'a string', holds: (value) => typeof value === 'string' };
export const texts: OptionKind = {
  expected: 'an array of strings',
  holds: (value) => Array.isArray(value) && value.every((each) => typeof each === 'string'),
};
export const amount: OptionKind = {
  expected: 'a number that is not negative',
  holds: (value) => typeof value === 'number' && Number.isFinite(value) && value >= 0,
};
export const finite: OptionKind = { expected: 'a number', holds: (value) => Number.isFinite(value) };
export const share: OptionKind = {
  expected: 'a share, from 0 to below 1',
  holds: (value) => typeof value === 'number' && value >= 0 && value < 1,
};
export const numbers: OptionKind = {
  expected: 'an array of numbers',
  holds: (value) => Array.isArray(value) && value.every((each) => typeof each === 'number'),
};
export const callback: OptionKind = { expected: 'a function', holds: (value) => typeof value === 'function' };
export const signal: OptionKind = { expected: 'an AbortSignal', holds: (value) => value instanceof AbortSignal };
export const object: OptionKind = { expected: 'an object', holds: isObject };
export const integer: OptionKind = { expected: 'a whole number', holds: Number.isSafeInteger };

/** Whole numbers of at least `least`. */
export function integerFrom(least: number): OptionKind {
  return {
    expected: least === 1 ? 'a positive whole number' : `a whole number of at least ${least}`,
    holds: (value) => Number.isSafeInteger(value) && Number(value) >= least,
  };
}

/** Any number of them, or all. */
export const countOrAll: OptionKind = {
  expected: 'a positive whole number or Infinity',
  holds: (value) => value === Number.POSITIVE_INFINITY || integerFrom(1).holds(value),
};

/** One of some values. */
export function oneOf(...choices: readonly (string | number)[]): OptionKind {
  return {
    expected: `one of ${choices.map((choice) => JSON.stringify(choice)).join(', ')}`,
    holds: (value) => choices.includes(value as string),
  };
}

/** Either of two kinds. */
export function either(one: OptionKind, other: OptionKind): OptionKind {
  return {
    expected: `${one.expected}, or ${other.expected}`,
    holds: (value) => one.holds(value) || other.holds(value),
  };
}

/** A value of the kind, or null. */
export function orNull(kind: OptionKind): OptionKind {
  return either(kind, { expected: 'null', holds: (value) => value === null });
}

/** An object of named values. */
export function record(values: OptionKind): OptionKind {
  return {
    expected: `an object whose values are each ${values.expected}`,
    holds: (value) => isObject(value) && Object.values(value).every(values.holds),
  };
}

/** A list of objects. */
export const objects: OptionKind = {
  expected: 'an array of objects',
  holds: (value) => Array.isArray(value) && value.every(isObject),
};

/** An object with options of its own. */
export function options<Options>(keys: KindsOf<Options>): OptionKind {
  return { ...object, keys };
}

/** The same kind, of objects that have these keys. */
export function having(kind: OptionKind, ...names: readonly string[]): OptionKind {
  return {
    ...kind,
    expected: `an object with ${names.join(', ')}`,
    holds: (value) => kind.holds(value) && names.every((name) => Object.hasOwn(value as object, name)),
  };
}

/** A value of the kind, or none: for arguments. */
export function leftOut(kind: OptionKind): OptionKind {
  return { ...kind, holds: (value) => value === undefined || kind.holds(value) };
}

/**
 * Refuses arguments of another kind, each under its name.
 * @throws AutoparError (usage) `bad-option`; `unknown-option` in an object of options
 */
export function checkArguments(name: string, given: Readonly<Record<string, readonly [unknown, OptionKind]>>): void {
  for (const [argument, [value, kind]] of Object.entries(given)) {
    if (!kind.holds(value)) throw badOption(`${name}(): ${argument}: expected ${kind.expected}, found ${shown(value)}`);
    if (kind.keys && value !== undefined) checkKinds(value, kind.keys, `${argument} of ${name}()`, () => null);
  }
}

/** The fault of data that other versions may have written: keys without a kind are theirs. Null where there is none. */
export function misfit(value: unknown, kind: OptionKind, place: string): string | null {
  if (!kind.holds(value)) return `${place}: expected ${kind.expected}, found ${shown(value)}`;
  for (const [name, own] of Object.entries(kind.keys ?? {})) {
    const given = (value as Readonly<Record<string, unknown>>)[name];
    const wrong = given === undefined ? null : misfit(given, own, place === '' ? name : `${place}.${name}`);
    if (wrong !== null) return wrong;
  }
  return null;
}

/**
 * Refuses unknown options, and values of another kind. Undefined options count as left out.
 * @param elsewhere returns a hint on where an option of that name belongs; null for an unknown name
 * @throws AutoparError (usage) `unknown-option`, `bad-option`
 */
export function checkKinds(
  given: unknown,
  kinds: Readonly<Record<string, OptionKind>>,
  place: string,
  elsewhere: (name: string) => string | null,
): void {
  if (!isObject(given)) throw badOption(`${place}: expected an object of options, found ${shown(given)}`);
  const prefix = place.includes('(') ? '' : `${place}.`;
  for (const [name, value] of Object.entries(given)) {
    const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
    if (!kind)
      throw usageError(
        'unknown-option',
        `unknown option '${prefix}${name}' of ${place.replace(/\..*/, '')}`,
        hintFor(name, prefix, Object.keys(kinds), elsewhere),
      );
    if (value === undefined) continue;
    if (!kind.holds(value)) throw badOption(`${prefix}${name}: expected ${kind.expected}, found ${shown(value)}`);
    if (kind.keys) checkKinds(value, kind.keys, `${prefix}${name}`, elsewhere);
  }
}

function hintFor(
  name: string,
  prefix: string,
  known: readonly string[],
  elsewhere: (name: string) => string | null,
): string {
  const other = elsewhere(name);
  if (other !== null) return other;
  const near = nearest(name, known);
  return near === undefined ? `the options are ${known.join(', ')}` : `did you mean ${prefix}${near}?`;
}

/** The text of a value for error messages, at most one line. */
function shown(value: unknown): string {
  if (typeof value === 'function') return 'a function';
  // JSON has null in place of a number that is not finite.
  if (typeof value === 'number') return String(value);
  const written = typeof value === 'bigint' ? `${value}n` : (JSON.stringify(value) ?? String(value));
  return written.length > 80 ? `${written.slice(0, 77)}…` : written;
}
