/**
 * @file NumPy's .npz: a zip archive whose members NAME.npy are arrays.
 */
import { type UnzipFileInfo, type Unzipped, unzipSync, zipSync } from 'fflate';
import { AutoparError } from '../../ir/error.js';
import type { ConstantTensor } from '../../ir/graph.js';
import { readNpy, writeNpy } from './npy.js';

/** Bytes that deflate makes of one, at the most. */
const MOST_INFLATED = 1032;

/** The arrays of an archive (stored or deflated) by name. `name` is the file's, for errors: exit input. */
export function readNpz(bytes: Uint8Array, name: string): Record<string, ConstantTensor> {
  let members: Unzipped;
  try {
    // A member says its size before it is inflated, and deflate makes at most 1032 bytes of one.
    let total = 0;
    const filter = ({ originalSize }: UnzipFileInfo) => {
      total += originalSize;
      if (total <= MOST_INFLATED * bytes.byteLength) return true;
      throw new Error(`${total} bytes cannot be in an archive of ${bytes.byteLength}`);
    };
    members = unzipSync(bytes, { filter });
  } catch (error) {
    throw bad(name, `is not a readable .npz archive (${error instanceof Error ? error.message : String(error)})`);
  }
  const arrays: Record<string, ConstantTensor> = {};
  for (const [member, data] of Object.entries(members)) {
    if (!member.endsWith('.npy')) throw bad(name, `holds ${member}, which is not an array`);
    arrays[member.slice(0, -'.npy'.length)] = readNpy(data, `${name}:${member}`);
  }
  return arrays;
}

/** An uncompressed archive, as numpy.savez writes it; equal arrays give equal bytes. At most 4 GiB in all. */
export function writeNpz(arrays: Readonly<Record<string, ConstantTensor>>): Uint8Array {
  const members = Object.fromEntries(Object.entries(arrays).map(([key, tensor]) => [`${key}.npy`, writeNpy(tensor)]));
  const total = Object.values(members).reduce((sum, member) => sum + member.byteLength, 0);
  if (total > 2 ** 32 - 2 ** 20) {
    throw new AutoparError(
      'output-too-large',
      'cannotWrite',
      `the arrays take ${total} bytes, more than the 4 GiB that this .npz writer can hold`,
      {},
      'choose fewer outputs',
    );
  }
  // A fixed date (the earliest that zip can hold) keeps the bytes a function of the arrays.
  return zipSync(members, { level: 0, mtime: new Date(1980, 0, 1) });
}

function bad(name: string, what: string): AutoparError {
  return new AutoparError('bad-array', 'input', `${name} ${what}`, { file: name }, 'write it again with numpy.savez');
}
