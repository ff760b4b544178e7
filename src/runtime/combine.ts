/**
 * @file The result of each collective from the members' inputs: pure data movement and reduction, no waiting.
 *
 * Inputs are rows. With n members, `outer` rows of `inner` elements:
 *
 *     all-gather       [outer, inner] each           →  [outer, n, inner]
 *     reduce-scatter   [outer, n, inner] each        →  [outer, inner], member k keeping slice k
 *     reduce           [all] each                    →  [all], of the first member alone
 *     all-to-all       [so, n, si] each, slice k to member k, there seen as [co, ci]  →  [co, n, ci]
 */
import type { ProgramCollective } from '../program/program.js';
import { reduceElementwise } from '../program/reduce.js';
import { allocate } from '../program/typed.js';
import { byteLength, type DType } from '../program/values.js';

/**
 * The result of member `member`, written to `target`, given all members' inputs in order; for an all-to-all the slices for it
 * where `slices` has them.
 */
export function combine(
  collective: ProgramCollective,
  dtype: DType,
  inputs: readonly Uint8Array[],
  member: number,
  target: Uint8Array,
  slices?: readonly (Uint8Array | undefined)[],
): void {
  const members = inputs.length;
  const size = byteLength(dtype, 1);
  if (collective.kind === 'all-reduce' || collective.kind === 'reduce') {
    reduceElementwise(dtype, collective.reduction, inputs, target);
  } else if (collective.kind === 'all-gather') {
    const inner = collective.inner * size;
    for (const [index, input] of inputs.entries()) {
      copyRows(input, 0, inner, target, index * inner, members * inner, inner, collective.outer);
    }
  } else if (collective.kind === 'reduce-scatter') {
    const inner = collective.inner * size;
    const slices = inputs.map((input) => sliceOf(input, members, member, collective.outer, inner));
    reduceElementwise(dtype, collective.reduction, slices, target);
  } else if (collective.kind === 'all-to-all') {
    const { concat } = collective;
    const inner = concat.inner * size;
    for (const [index, input] of inputs.entries()) {
      const slice = slices?.[index] ?? sliceFor(collective, dtype, input, members, member);
      copyRows(slice, 0, inner, target, index * inner, members * inner, inner, concat.outer);
    }
  } else if (collective.kind === 'permute') {
    target.set(inputs[collective.to.indexOf(member)] as Uint8Array);
  } else {
    target.set(inputs[0] as Uint8Array);
  }
}

/** The slice of an all-to-all's input for a member. */
export function sliceFor(
  { split }: Extract<ProgramCollective, { readonly kind: 'all-to-all' }>,
  dtype: DType,
  input: Uint8Array,
  members: number,
  member: number,
): Uint8Array {
  return sliceOf(input, members, member, split.outer, split.inner * byteLength(dtype, 1));
}

/** Slice `index` of an input seen as [outer, count, inner bytes], contiguous: a view where it is one already. */
function sliceOf(input: Uint8Array, count: number, index: number, outer: number, inner: number): Uint8Array {
  if (outer === 1) return input.subarray(index * inner, (index + 1) * inner);
  const slice = allocate(outer * inner);
  copyRows(input, index * inner, count * inner, slice, 0, inner, inner, outer);
  return slice;
}

/** Rows shorter than this are copied element by element: setting a sub-array costs more than they are worth. */
const SHORT_ROW_BYTES = 64;

/** Copies `rows` rows of `row` bytes, `fromStride` and `toStride` bytes apart. */
function copyRows(
  from: Uint8Array,
  fromStart: number,
  fromStride: number,
  to: Uint8Array,
  toStart: number,
  toStride: number,
  row: number,
  rows: number,
): void {
  if (fromStride === row && toStride === row) {
    to.set(from.subarray(fromStart, fromStart + rows * row), toStart);
    return;
  }
  if (row < SHORT_ROW_BYTES) {
    copyShortRows(from, fromStart, fromStride, to, toStart, toStride, row, rows);
    return;
  }
  for (let index = 0; index < rows; index++) {
    const start = fromStart + index * fromStride;
    to.set(from.subarray(start, start + row), toStart + index * toStride);
  }
}

function copyShortRows(
  from: Uint8Array,
  fromStart: number,
  fromStride: number,
  to: Uint8Array,
  toStart: number,
  toStride: number,
  row: number,
  rows: number,
): void {
  const places = [from.byteOffset, fromStart, fromStride, to.byteOffset, toStart, toStride, row];
  const words = places.every((place) => place % 4 === 0);
  const unit = words ? 4 : 1;
  const source = words ? new Uint32Array(from.buffer, from.byteOffset, from.byteLength >> 2) : from;
  const target = words ? new Uint32Array(to.buffer, to.byteOffset, to.byteLength >> 2) : to;
  const length = row / unit;
  for (let index = 0; index < rows; index++) {
    const start = (fromStart + index * fromStride) / unit;
    const end = (toStart + index * toStride) / unit;
    for (let at = 0; at < length; at++) target[end + at] = source[start + at] as number;
  }
}
