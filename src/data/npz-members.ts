/**
 * @file Positions of an .npz's members in the file, from its central directory, so that a stored one can be read in slices.
 *
 *     local header, data │ … │ central directory: a record per member │ (zip64 end, its locator) │ end record
 */
import { readSync } from 'node:fs';
import { AutoparError } from '../ir/error.js';

export interface NpzMember {
  /** Without `.npy`. */
  readonly name: string;
  readonly start: number;
  readonly bytes: number;
}

const END = 0x06054b50;
const WIDE_LOCATOR = 0x07064b50;
const WIDE_END = 0x06064b50;
const RECORD = 0x02014b50;
const LOCAL = 0x04034b50;
const END_BYTES = 22;
const LOCATOR_BYTES = 20;
/** Maximum length of a comment behind the end record. */
const MOST_COMMENT = 2 ** 16;
/** An archive of arrays has some; more bytes of directory than this are refused. */
const MOST_DIRECTORY = 2 ** 24;
const WIDE_EXTRA = 1;
const IN_EXTRA = 0xffffffff;

/** @throws AutoparError (input) `bad-array` if the file is not an archive of arrays; `compressed-data` for a deflated member */
export function npzMembers(descriptor: number, size: number, file: string): readonly NpzMember[] {
  const bad = (what: string) =>
    new AutoparError('bad-array', 'input', `${file} ${what}`, { file }, 'write it again with numpy.savez');
  const read = (position: number, length: number): DataView => {
    const bytes = new Uint8Array(length);
    if (position < 0 || position + length > size || readSync(descriptor, bytes, 0, length, position) !== length)
      throw bad('is not a readable .npz archive');
    return new DataView(bytes.buffer);
  };
  const tailBytes = Math.min(size, END_BYTES + MOST_COMMENT);
  const tail = read(size - tailBytes, tailBytes);
  let end = tailBytes - END_BYTES;
  while (end >= 0 && tail.getUint32(end, true) !== END) end--;
  if (end < 0) throw bad('is not a readable .npz archive');
  const directory = { bytes: tail.getUint32(end + 12, true), start: tail.getUint32(end + 16, true) };
  const locator = end - LOCATOR_BYTES;
  if (locator >= 0 && tail.getUint32(locator, true) === WIDE_LOCATOR) {
    const wide = read(Number(tail.getBigUint64(locator + 8, true)), 56);
    if (wide.getUint32(0, true) !== WIDE_END) throw bad('is not a readable .npz archive');
    directory.bytes = Number(wide.getBigUint64(40, true));
    directory.start = Number(wide.getBigUint64(48, true));
  }
  if (directory.bytes > MOST_DIRECTORY) throw bad(`has an oversized directory of ${directory.bytes} bytes`);
  const records = read(directory.start, directory.bytes);
  const members: NpzMember[] = [];
  for (let at = 0; at + 46 <= records.byteLength && records.getUint32(at, true) === RECORD; ) {
    const method = records.getUint16(at + 10, true);
    const nameBytes = records.getUint16(at + 28, true);
    const extraBytes = records.getUint16(at + 30, true);
    const next = at + 46 + nameBytes + extraBytes + records.getUint16(at + 32, true);
    if (next > records.byteLength) throw bad('is not a readable .npz archive');
    const name = Buffer.from(records.buffer, at + 46, nameBytes).toString('utf8');
    if (!name.endsWith('.npy')) throw bad(`holds ${name}, which is not an array`);
    if (method !== 0)
      throw new AutoparError(
        'compressed-data',
        'input',
        `${file} holds ${name} compressed, which cannot be read in slices`,
        { file },
        'write it with numpy.savez, not numpy.savez_compressed',
      );
    const { bytes, start } = placeOf(records, at, at + 46 + nameBytes, extraBytes);
    const local = read(start, 30);
    if (local.getUint32(0, true) !== LOCAL) throw bad('is not a readable .npz archive');
    const data = start + 30 + local.getUint16(26, true) + local.getUint16(28, true);
    if (data + bytes > size) throw bad(`is truncated: ${name} ends after the file`);
    members.push({ name: name.slice(0, -'.npy'.length), start: data, bytes });
    at = next;
  }
  return members;
}

/** Size and place of a member; those that 32 bits do not hold stand in an extra field. */
function placeOf(
  records: DataView,
  at: number,
  extra: number,
  extraBytes: number,
): { readonly bytes: number; readonly start: number } {
  const inflated = records.getUint32(at + 24, true);
  let bytes = records.getUint32(at + 20, true);
  let start = records.getUint32(at + 42, true);
  for (let field = extra; field + 4 <= extra + extraBytes; field += 4 + records.getUint16(field + 2, true)) {
    if (records.getUint16(field, true) !== WIDE_EXTRA) continue;
    let value = field + 4;
    const last = value + records.getUint16(field + 2, true);
    const take = () => {
      const number = value + 8 <= last ? Number(records.getBigUint64(value, true)) : Number.NaN;
      value += 8;
      return number;
    };
    if (inflated === IN_EXTRA) take();
    if (bytes === IN_EXTRA) bytes = take();
    if (start === IN_EXTRA) start = take();
  }
  return { bytes, start };
}
