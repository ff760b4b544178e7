/**
 * @file Quantities as people write them: `450GB/s`, `8us`, `80GB`, `989TFLOP/s`. A plain number is in the base unit.
 */

export type QuantityKind = 'bytes' | 'bytesPerSecond' | 'seconds' | 'flopsPerSecond';

const POWERS: Readonly<Record<string, number>> = { '': 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, p: 1e15 };
const BINARY: Readonly<Record<string, number>> = { ki: 2 ** 10, mi: 2 ** 20, gi: 2 ** 30, ti: 2 ** 40 };
const FRACTIONS: Readonly<Record<string, number>> = { '': 1, m: 1e-3, u: 1e-6, µ: 1e-6, n: 1e-9 };

interface QuantityForm {
  /** Prefix and unit. */
  readonly pattern: RegExp;
  readonly factor: (prefix: string, unit: string) => number | undefined;
  readonly example: string;
}

const FORMS: Readonly<Record<QuantityKind, QuantityForm>> = {
  bytes: {
    pattern: /^([kmgtp]i?)?(b)?$/,
    factor: (prefix) => POWERS[prefix] ?? BINARY[prefix],
    example: 'a size such as 80GB or 16GiB',
  },
  bytesPerSecond: {
    pattern: /^([kmgtp]i?)?(b|bit)\/s$/,
    factor: (prefix, unit) => ((POWERS[prefix] ?? BINARY[prefix]) as number) / (unit === 'bit' ? 8 : 1),
    example: 'a rate such as 450GB/s or 400Gbit/s',
  },
  seconds: { pattern: /^([muµn])?(s)$/, factor: (prefix) => FRACTIONS[prefix], example: 'a time such as 8us or 1.5ms' },
  flopsPerSecond: {
    pattern: /^([kmgtp])?(flops?\/s|flops)$/,
    factor: (prefix) => POWERS[prefix],
    example: 'a rate such as 989TFLOP/s',
  },
};

/** Prices multiply and divide by quantities: within these bounds none becomes infinite or 0. */
export const QUANTITY_RANGE = { minimum: 1e-36, maximum: 1e36 } as const;

const isInRange = (value: number) => value >= QUANTITY_RANGE.minimum && value <= QUANTITY_RANGE.maximum;

/** The value in bytes, bytes per second, seconds or FLOP per second; null where it is no such quantity, or out of range. */
export function quantityOf(value: number | string, kind: QuantityKind): number | null {
  if (typeof value === 'number') return isInRange(value) ? value : null;
  const [, number = '', unit = ''] = /^\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(\S*)\s*$/i.exec(value) ?? [];
  const { pattern, factor } = FORMS[kind];
  const found = pattern.exec(unit.toLowerCase());
  const scale = unit === '' ? 1 : found ? factor(found[1] ?? '', found[2] ?? '') : undefined;
  const result = Number(number) * (scale ?? Number.NaN);
  return number !== '' && isInRange(result) ? result : null;
}

/** An example of the form to write, for errors. */
export function quantityExample(kind: QuantityKind): string {
  return FORMS[kind].example;
}
