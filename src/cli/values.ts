/**
 * @file Option values: text to value, with an error that names the option and says what was expected.
 */
import { existsSync } from 'node:fs';
import { type AutoparError, badOption, offer } from '../api/words.js';

const SIZE_FACTORS: Readonly<Record<string, number>> = {
  '': 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/** A parser of the values of an option, by whose name errors call it. */
type Parser<Value> = (text: string, name: string) => Value;

/** A parser of whole numbers from `least` to `most`; `hint` is for the error. */
export function integerParser(least: number, most = Number.MAX_SAFE_INTEGER, hint?: string): Parser<number> {
  const limit = most === Number.MAX_SAFE_INTEGER ? '' : ` and at most ${most}`;
  return (text, name) => {
    const value = Number(text);
    if (/^[+-]?\d+$/.test(text) && Number.isSafeInteger(value) && value >= least && value <= most) return value;
    const range =
      least === 1 && limit === '' ? 'a positive whole number' : `a whole number of at least ${least}${limit}`;
    throw notAValue(name, text, range, hint);
  };
}

/** A number that is not negative. */
export function nonNegative(text: string, name: string): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isFinite(value) && value >= 0) return value;
  throw notAValue(name, text, 'a number that is not negative, such as 1e-3');
}

/** A share, as a number or in percent: from 0 to below 1. */
export function shareOf(text: string, name: string): number {
  const [, number = '', percent = ''] = /^\s*([\d.]+)\s*(%?)\s*$/.exec(text) ?? [];
  const value = Number(number) / (percent === '' ? 1 : 100);
  if (number !== '' && value >= 0 && value < 1) return value;
  throw notAValue(name, text, 'a share from 0 to below 1, such as 0.1 or 10%');
}

/** A whole number of either sign. */
export function integer(text: string, name: string): number {
  const value = Number(text);
  if (/^[+-]?\d+$/.test(text) && Number.isSafeInteger(value)) return value;
  throw notAValue(name, text, 'a whole number, such as -100');
}

/** A parser of `count` numbers with commas between. */
export function numbers(count: number, example: string): Parser<readonly number[]> {
  return (text, name) => {
    const values = text.split(',').map((part) => (part.trim() === '' ? Number.NaN : Number(part)));
    if (values.length === count && values.every(Number.isFinite)) return values;
    throw notAValue(name, text, `${count} numbers, such as ${example}`);
  };
}

/** A shape: sizes with commas between, in brackets or not; `[]` is a scalar's. */
export function sizes(text: string, name: string): readonly number[] {
  const [, inner = ''] = /^\s*\[(.*)\]\s*$/.exec(text) ?? [null, text];
  if (inner.trim() === '') return [];
  const shape = inner.split(',').map((part) => (/^\s*\d+\s*$/.test(part) ? Number(part) : Number.NaN));
  if (shape.every(Number.isSafeInteger)) return shape;
  throw notAValue(name, text, 'whole numbers with commas between, such as 2,8,64');
}

/** A parser of an order of all the names given. */
export function orderOf(names: readonly string[]): Parser<readonly string[]> {
  return (text, name) => {
    const given = text.split(',').map((part) => part.trim());
    if (given.length === names.length && names.every((each) => given.includes(each))) return given;
    throw notAValue(name, text, `${names.join(', ')} in some order, with commas between`);
  };
}

/** A memory size in bytes: `80GB` (10^9), `16GiB` (2^30), `2e10`. */
export function byteSize(text: string, name: string): number {
  const [, number = '', unit = ''] = /^\s*([\d.]+(?:e\d+)?)\s*([a-z]*)\s*$/i.exec(text) ?? [];
  const bytes = Number(number) * (SIZE_FACTORS[unit.toLowerCase()] ?? Number.NaN);
  if (number !== '' && Number.isFinite(bytes) && bytes >= 1) return Math.floor(bytes);
  throw notAValue(name, text, 'a size such as 80GB, 16GiB or 2e10');
}

/** A parser of a choice among names. */
export function choiceAmong(choices: readonly string[]): Parser<string> {
  return (text, name) => {
    if (choices.includes(text)) return text;
    throw badOption(`${name} ${text} is not a valid choice`, offer(text, choices));
  };
}

/** The place of the `=` before a file: the last one behind which there is a file, else the first. */
export function beforeFile(text: string): number {
  for (let cut = text.lastIndexOf('='); cut > 0; cut = text.lastIndexOf('=', cut - 1))
    if (existsSync(text.slice(cut + 1))) return cut;
  return text.indexOf('=');
}

/**
 * A parser of `NAME=VALUE` that gathers repeated options into one record; `example` is one, for the error.
 * @param cutOf the place of the `=` between the two; the last one, for values that have none
 */
export function nameAndValue<Value>(
  parse: Parser<Value>,
  example: string,
  cutOf = (text: string) => text.lastIndexOf('='),
): (text: string, name: string, before: unknown) => Readonly<Record<string, Value>> {
  return (text, name, before) => {
    const cut = cutOf(text);
    if (cut < 1 || cut === text.length - 1) throw notAValue(name, text, `NAME=VALUE, as in ${name} ${example}`);
    const gathered = (before ?? {}) as Readonly<Record<string, Value>>;
    const key = text.slice(0, cut);
    if (Object.hasOwn(gathered, key)) {
      throw badOption(`${name} gives ${key} twice`, 'give each name once');
    }
    return { ...gathered, [key]: parse(text.slice(cut + 1), `${name} ${key}=`) };
  };
}

/** A parser that gathers the values of a repeated option into a list. */
export function repeatedValues(text: string, _name: string, before: unknown): readonly string[] {
  return [...((before ?? []) as readonly string[]), text];
}

function notAValue(name: string, text: string, expected: string, hint?: string): AutoparError {
  // Of NAME=VALUE the name of the option ends with that of the value.
  return badOption(`${name}${name.endsWith('=') ? '' : ' '}${text}: expected ${expected}`, hint);
}
