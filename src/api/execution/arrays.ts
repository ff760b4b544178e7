/**
 * @file Array files: .npy and .pb hold one array, .npz several by name.
 */
import { readFile } from 'node:fs/promises';
import { isFloating } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import type { ConstantTensor } from '../../ir/graph.js';
import { readTensorProto } from '../../ir/onnx/tensor-file.js';
import { npyNote, readNpy } from '../../program/arrays/npy.js';
import { readNpz, writeNpz } from '../../program/arrays/npz.js';
import { writeFileAtomic } from '../../program/atomic.js';
import { checkArguments, object, record, text } from '../options/kinds.js';
import { numberReader } from '../verification/numbers.js';

export type Arrays = Readonly<Record<string, ConstantTensor>>;

/** Readers of files with one array, by the ending of the file's name. */
export const SINGLE_ARRAY: readonly {
  readonly ending: string;
  readonly read: (bytes: Uint8Array, name: string) => ConstantTensor;
}[] = [
  { ending: '.npy', read: readNpy },
  { ending: '.pb', read: readTensorProto },
];

/** Reads a file with one array. @throws AutoparError (exit input) for a missing, unknown or malformed file. */
export async function readArray(file: string): Promise<ConstantTensor> {
  checkArguments('readArray', { file: [file, text] });
  const format = SINGLE_ARRAY.find(({ ending }) => file.endsWith(ending));
  if (!format) throw unknownFormat(file, '.npy or .pb');
  return format.read(await readBytes(file), file);
}

/**
 * Reads one list of floating-point numbers: a .npy, or an .npz with one array.
 * @throws AutoparError (exit input) as `readArray`; `bad-numbers` for another shape or dtype, or several arrays
 */
export async function readNumbers(file: string): Promise<readonly number[]> {
  checkArguments('readNumbers', { file: [file, text] });
  const arrays = file.endsWith('.npz') ? Object.values(await readArrays(file)) : [await readArray(file)];
  const [array] = arrays;
  if (array && arrays.length === 1 && array.shape.length === 1 && isFloating(array.dtype)) {
    const read = numberReader(array);
    return Array.from({ length: array.shape[0] ?? 0 }, (_, index) => read(index));
  }
  const found = array && arrays.length === 1 ? `${array.dtype} [${array.shape.join(', ')}]` : `${arrays.length} arrays`;
  throw new AutoparError(
    'bad-numbers',
    'input',
    `${file} holds ${found}, and one list of floating-point numbers is wanted`,
    { file },
    'Save a one-dimensional float32 array.',
  );
}

/** Reads an .npz. */
export async function readArrays(file: string): Promise<Arrays> {
  checkArguments('readArrays', { file: [file, text] });
  return readNpz(await readBytes(file), file);
}

/** Refuses a name that `writeArrays` cannot write, before anything is computed. @throws AutoparError (exit usage). */
export function checkArchiveName(file: string): void {
  checkArguments('checkArchiveName', { file: [file, text] });
  if (file.endsWith('.npz')) return;
  throw new AutoparError(
    'unknown-format',
    'usage',
    `cannot write arrays to ${file}`,
    { file },
    'Give a name that ends in .npz.',
  );
}

/**
 * Writes arrays as .npz, by name.
 * @returns notes for readers of the file: dtypes that NumPy lacks are written as their bit patterns.
 * @throws AutoparError (exit cannotWrite, usage).
 */
export async function writeArrays(file: string, arrays: Arrays): Promise<readonly string[]> {
  checkArguments('writeArrays', { file: [file, text], arrays: [arrays, record(object)] });
  checkArchiveName(file);
  await writeFileAtomic(file, writeNpz(arrays));
  return Object.entries(arrays).flatMap(([name, { dtype }]) => {
    const note = npyNote(dtype);
    return note === null ? [] : [`${name}: ${note}`];
  });
}

/** The error for a file whose name has an unknown ending. */
function unknownFormat(file: string, known: string): AutoparError {
  return new AutoparError(
    'unknown-format',
    'input',
    `${file} ends in none of ${known}`,
    { file },
    `Give a file of the form ${known}.`,
  );
}

/** Reads a whole file. @throws AutoparError `missing-inputs` (exit input). */
async function readBytes(file: string): Promise<Uint8Array> {
  return readFile(file).catch((cause: NodeJS.ErrnoException) => {
    const reason = cause.code === 'ENOENT' ? 'does not exist' : `cannot be read (${cause.code ?? cause.message})`;
    throw new AutoparError('missing-inputs', 'input', `${file} ${reason}`, { file }, 'Check the path.');
  });
}
