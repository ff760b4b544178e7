/**
 * @file A model's work at any micro-batch, from its work at one sample and at two: rows, elements and kept values grow with the
 * samples by a fixed amount each, so two points say all.
 */
import type { ModelWork } from './work.js';

/**
 * The work at `samples`; null where the two differ in more than amounts (an operator that only one of them has), so that it has to
 * be read at that size.
 * @param one at one sample per rank
 * @param two at two
 */
export function workAt(samples: number, one: ModelWork, two: ModelWork): ModelWork | null {
  if (samples === 1) return one;
  if (samples === 2) return two;
  const found = along(one, two, samples);
  return found === DIFFERENT ? null : (found as unknown as ModelWork);
}

const DIFFERENT = Symbol('different');

type Plain = number | string | boolean | null | readonly Plain[] | { readonly [key: string]: Plain };

/** Numbers are continued, all else must be equal. */
function along(one: unknown, two: unknown, samples: number): Plain | typeof DIFFERENT {
  if (typeof one === 'number' && typeof two === 'number') return one + (samples - 1) * (two - one);
  if (Array.isArray(one) && Array.isArray(two)) {
    if (one.length !== two.length) return DIFFERENT;
    const items = one.map((item, index) => along(item, two[index], samples));
    return items.includes(DIFFERENT) ? DIFFERENT : (items as Plain[]);
  }
  if (typeof one === 'object' && typeof two === 'object' && one !== null && two !== null) {
    const entries = Object.entries(one).map(
      ([key, value]) => [key, along(value, (two as Readonly<Record<string, unknown>>)[key], samples)] as const,
    );
    return entries.some(([, value]) => value === DIFFERENT)
      ? DIFFERENT
      : (Object.fromEntries(entries) as { readonly [key: string]: Plain });
  }
  return one === two ? (one as Plain) : DIFFERENT;
}
