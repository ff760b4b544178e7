/**
 * @file Texts that are equal exactly for equal attributes and tensors: equal constants and operators are merged by them.
 */
import { createHash } from 'node:crypto';
import type { Attributes, AttributeValue, ConstantTensor } from '../graph.js';

/** A short text that is equal exactly for equal tensors. */
export function tensorKey(value: ConstantTensor): string {
  const bytes =
    value.data.length <= 64
      ? Buffer.from(value.data).toString('hex')
      : createHash('sha256').update(value.data).digest('hex');
  return `${value.dtype}[${value.shape.join(',')}]${bytes}`;
}

/** A short text that is equal exactly for equal attributes. */
export function attributesKey(attributes: Attributes): string {
  return JSON.stringify(
    Object.entries(attributes)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => [name, valueKey(value)]),
  );
}

function valueKey(value: AttributeValue): unknown {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'object' && 'dtype' in value) return tensorKey(value);
  if (typeof value === 'object' && 'numbers' in value) return [value.type, valueKey(value.numbers)];
  if (typeof value === 'object' && value.length > LONG_LIST) return longListKey(value);
  return typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
}

/** Lists longer than this are represented by their digest. */
const LONG_LIST = 1024;

function longListKey(list: readonly (number | string)[]): string {
  const hash = createHash('sha256');
  for (let start = 0; start < list.length; start += LONG_LIST) {
    hash.update(JSON.stringify(list.slice(start, start + LONG_LIST)));
  }
  return `${list.length} ${hash.digest('hex')}`;
}
