/**
 * @file A model's work at any micro-batch, from its work at two others: rows, elements and stored activations grow with the
 * samples by a fixed amount each, so two points determine all of it.
 */
import type { ModelWork } from './work.js';

/** Work that was read at so many samples per rank. */
export interface WorkPoint {
  readonly samples: number;
  readonly work: ModelWork;
}

/**
 * The work at `samples`; null where the two points differ in more than amounts (one sample needs no sum over samples), so that it
 * has to be read at that size, or continued from others.
 */
export function workAt(samples: number, one: WorkPoint, two: WorkPoint): ModelWork | null {
  const point = [one, two].find((known) => known.samples === samples);
  if (point) return point.work;
  const found = along(one.work, two.work, (samples - one.samples) / (two.samples - one.samples));
  return found === DIFFERENT ? null : (found as unknown as ModelWork);
}

const DIFFERENT = Symbol('different');

type PlainValue = number | string | boolean | null | readonly PlainValue[] | { readonly [key: string]: PlainValue };

/** Numbers are continued, all else must be equal. */
function along(one: unknown, two: unknown, steps: number): PlainValue | typeof DIFFERENT {
  if (typeof one === 'number' && typeof two === 'number') return one + steps * (two - one);
  if (Array.isArray(one) && Array.isArray(two)) {
    if (one.length !== two.length) return DIFFERENT;
    const items = one.map((item, index) => along(item, two[index], steps));
    return items.includes(DIFFERENT) ? DIFFERENT : (items as PlainValue[]);
  }
  if (typeof one === 'object' && typeof two === 'object' && one !== null && two !== null) {
    const entries = Object.entries(one).map(
      ([key, value]) => [key, along(value, (two as Readonly<Record<string, unknown>>)[key], steps)] as const,
    );
    return entries.some(([, value]) => value === DIFFERENT)
      ? DIFFERENT
      : (Object.fromEntries(entries) as { readonly [key: string]: PlainValue });
  }
  return one === two ? (one as PlainValue) : DIFFERENT;
}
