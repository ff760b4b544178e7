/**
 * @file Rows of an array that are not zero, and their positions: the data that a dispatch of filled and empty slots sends.
 *
 *     a bit for each row, 1 where it has a value  |  the rows that have one, in their order
 *
 * Nothing is lost, whatever the values are: a row of which any bit is set is sent.
 */

/**
 * Writes the packed form of `rows`, of `width` bytes each, to `target`; gives its bytes, or null where it would not be smaller.
 */
export function packRows(rows: Uint8Array, width: number, target: Uint8Array): number | null {
  const count = rows.byteLength / width;
  const flags = Math.ceil(count / 8);
  const filled = Array.from({ length: count }, (_, row) => row).filter((row) => hasValue(rows, row * width, width));
  const bytes = flags + filled.length * width;
  if (bytes >= rows.byteLength) return null;
  target.fill(0, 0, flags);
  for (const [index, row] of filled.entries()) {
    target[row >> 3] = (target[row >> 3] ?? 0) | (1 << (row & 7));
    target.set(rows.subarray(row * width, (row + 1) * width), flags + index * width);
  }
  return bytes;
}

/** The rows that were packed, `bytes` of them. */
export function unpackRows(packed: Uint8Array, width: number, bytes: number): Uint8Array {
  const rows = new Uint8Array(bytes);
  const count = bytes / width;
  let from = Math.ceil(count / 8);
  for (let row = 0; row < count; row++) {
    if (((packed[row >> 3] ?? 0) & (1 << (row & 7))) === 0) continue;
    rows.set(packed.subarray(from, from + width), row * width);
    from += width;
  }
  return rows;
}

function hasValue(bytes: Uint8Array, from: number, length: number): boolean {
  for (let at = from; at < from + length; at++) if (bytes[at] !== 0) return true;
  return false;
}
