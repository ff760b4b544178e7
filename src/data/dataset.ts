/**
 * @file The samples that a program is trained with: for every input an array whose batch dimension counts samples, or one stream
 * of tokens of which a sample is so many and the labels are the tokens that follow. Several files are one after the other.
 */
import { byteLength } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { elementCount } from '../ir/graph.js';
import { allocate } from '../program/typed.js';
import { type Convert, converter, type DataInput, isWidened } from './convert.js';
import { type DataFile, openDataFile, type SlicedArray, type TokenType } from './data-file.js';

export interface DatasetOptions {
  readonly files: readonly string[];
  readonly inputs: readonly DataInput[];
  /** The token input that holds the next tokens; null if none. */
  readonly labels: string | null;
  readonly tokenType: TokenType;
}

export interface Dataset {
  readonly samples: number;
  /** Samples of a batch. */
  readonly batch: number;
  /** Bytes of an input of one batch, whose rows are these samples (null: padding); gives how many bytes were read. */
  readonly read: (input: string, rows: SampleRows, offset: number, length: number) => SliceRead;
  readonly close: () => void;
}

export type SampleRows = readonly (number | null)[];

export interface SliceRead {
  readonly bytes: Uint8Array;
  readonly bytesRead: number;
}

/** Samples of one input in one file: elements of a sample are counted as if it stood alone. */
interface SampleSource {
  readonly samples: number;
  readonly array: SlicedArray;
  /** Where an element of a sample stands, and how many follow it there at most. */
  readonly at: (sample: number, element: number) => { readonly element: number; readonly run: number };
  readonly convert: Convert;
}

/**
 * Opens files; their data is read when it is needed.
 * @throws AutoparError (input) as `openDataFile`; `missing-input`, `unknown-input`, `wrong-data` for arrays that are not those of
 * the inputs; `data-too-short` for no sample
 */
export function openDataset(options: DatasetOptions): Dataset {
  const files: DataFile[] = [];
  const close = () => {
    for (const file of files.splice(0)) file.close();
  };
  try {
    for (const file of options.files) files.push(openDataFile(file, options.tokenType));
    return { ...datasetOf(options, files), close };
  } catch (error) {
    close();
    throw error;
  }
}

function datasetOf({ inputs, labels }: DatasetOptions, files: readonly DataFile[]): Omit<Dataset, 'close'> {
  const bySource = files.map((file) => sourcesIn(file, inputs, labels));
  const counts = bySource.map((sources) => Math.max(0, ...[...sources.values()].map(({ samples }) => samples)));
  const samples = counts.reduce((sum, count) => sum + count, 0);
  const known = new Map(inputs.map((input) => [input.name, input]));
  const [batched] = inputs.flatMap(({ shape, batchAxis }) => (batchAxis === null ? [] : [shape[batchAxis] ?? 1]));
  const place = (name: string, sample: number): { readonly source: SampleSource; readonly sample: number } => {
    let rest = sample;
    for (const [index, count] of counts.entries()) {
      if (rest < count) return { source: bySource[index]?.get(name) as SampleSource, sample: rest };
      rest -= count;
    }
    throw new Error(`there is no sample ${sample}`);
  };
  const read: Dataset['read'] = (name, rows, offset, length) => {
    const input = known.get(name);
    if (!input) throw new Error(`there is no input ${name}`);
    const { dtype, shape, batchAxis } = input;
    const width = byteLength(dtype, 1);
    const [first, last] = [offset / width, (offset + length) / width];
    const bytes = allocate(length);
    const inner = batchAxis === null ? elementCount(shape) : elementCount(shape.slice(batchAxis + 1));
    let bytesRead = 0;
    for (let element = first; element < last; ) {
      const row = batchAxis === null ? 0 : Math.floor(element / inner) % rows.length;
      const outer = batchAxis === null ? 0 : Math.floor(element / (inner * rows.length));
      const inside = element % inner;
      const count = Math.min(last - element, inner - inside);
      const sample = batchAxis === null ? 0 : (rows[row] ?? null);
      const into = bytes.subarray((element - first) * width, (element - first + count) * width);
      if (sample === null) into.set(padding(input, count));
      else bytesRead += copy(place(name, sample), outer * inner + inside, count, into, width);
      element += count;
    }
    return { bytes, bytesRead };
  };
  return { samples, batch: batched ?? 1, read };
}

/** Gives the bytes read. */
function copy(
  { source, sample }: { readonly source: SampleSource; readonly sample: number },
  element: number,
  count: number,
  into: Uint8Array,
  width: number,
): number {
  const { array, at, convert } = source;
  let bytesRead = 0;
  for (let done = 0; done < count; ) {
    const { element: from, run } = at(sample, element + done);
    const some = Math.min(run, count - done);
    const bytes = array.read(from, some);
    bytesRead += bytes.byteLength;
    into.set(convert(bytes, { sample, element: element + done }), done * width);
    done += some;
  }
  return bytesRead;
}

function padding({ dtype, padding: value = 0 }: DataInput, count: number): Uint8Array {
  const bytes = new Uint8Array(byteLength(dtype, count));
  if (value === 0) return bytes;
  const view = new DataView(bytes.buffer);
  for (let index = 0; index < count; index++)
    if (dtype === 'int64') view.setBigInt64(index * 8, BigInt(value), true);
    else view.setInt32(index * 4, value, true);
  return bytes;
}

function sourcesIn(
  file: DataFile,
  inputs: readonly DataInput[],
  labels: string | null,
): ReadonlyMap<string, SampleSource> {
  const single = file.arrays.get('');
  if (single && isStream(single)) return tokenSources(file, single, inputs, labels);
  const arrays = single && inputs.length === 1 ? new Map([[inputs[0]?.name ?? '', single]]) : file.arrays;
  const names = inputs.map(({ name }) => name);
  const unknown = [...arrays.keys()].find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new AutoparError(
      unknown === '' ? 'missing-input' : 'unknown-input',
      'input',
      unknown === ''
        ? `${file.file} holds one array, and the program has ${inputs.length} inputs: ${names.join(', ')}`
        : `${file.file} holds an array ${unknown}, but the program has no such input; its inputs are ${names.join(', ')}`,
      { file: file.file },
      'write an .npz that holds an array for each input under its name',
    );
  const sources = new Map(inputs.map((input) => [input.name, arraySource(file, input, arrays.get(input.name))]));
  checkCounts(file, inputs, sources);
  return sources;
}

/** A list of whole numbers. */
function isStream({ shape, dtype }: SlicedArray): boolean {
  return shape.length === 1 && /^u?int\d+$/.test(dtype);
}

function tokenSources(
  { file }: DataFile,
  array: SlicedArray,
  inputs: readonly DataInput[],
  labels: string | null,
): ReadonlyMap<string, SampleSource> {
  const tokens = inputs.filter(({ name }) => name !== labels);
  const [data] = tokens;
  const following = inputs.find(({ name }) => name === labels);
  const fits =
    data &&
    following &&
    tokens.length === 1 &&
    data.shape.length === 2 &&
    data.batchAxis === 0 &&
    following.batchAxis === 0 &&
    data.shape.join() === following.shape.join();
  if (!fits)
    throw new AutoparError(
      'wrong-data',
      'input',
      `${file} is a stream of tokens, which needs a program with inputs tokens [batch, sequence] and labels of the same ` +
        `shape; this one has ${inputs.map(typeText).join(', ')}`,
      { file },
      'write an .npz that holds an array for each input under its name',
    );
  const length = data.shape[1] ?? 1;
  const samples = Math.max(0, Math.floor(((array.shape[0] ?? 0) - 1) / length));
  if (samples < 1)
    throw new AutoparError(
      'data-too-short',
      'input',
      `${file} holds ${array.shape[0]} tokens, and a sample needs ${length + 1}: ${length} and the next one`,
      { file },
      'give a longer file, or compile for a shorter sequence with --dim',
    );
  const source = (input: DataInput, shift: number): SampleSource => ({
    samples,
    array,
    at: (sample, element) => ({ element: sample * length + shift + element, run: length - element }),
    convert: converterFor(input, array, length),
  });
  return new Map([
    [data.name, source(data, 0)],
    [following.name, source(following, 1)],
  ]);
}

function arraySource({ file }: DataFile, input: DataInput, array: SlicedArray | undefined): SampleSource {
  const { name, shape, batchAxis } = input;
  if (!array)
    throw new AutoparError(
      'missing-input',
      'input',
      `${file} holds no array for input ${typeText(input)}`,
      { file, tensor: name },
      'add it to the .npz under this name',
    );
  const rest = (sizes: readonly number[]) => sizes.filter((_, axis) => axis !== batchAxis).join();
  if (array.shape.length !== shape.length || rest(array.shape) !== rest(shape)) {
    const wanted = shape.map((size, axis) => (axis === batchAxis ? 'samples' : size)).join(', ');
    throw new AutoparError(
      'wrong-data',
      'input',
      `${array.place} is ${array.dtype} [${array.shape.join(', ')}], and input ${name} takes ${input.dtype} [${wanted}]`,
      { file, tensor: name },
      'write samples of this shape, or compile for others with --dim',
    );
  }
  const convert = converterFor(input, array, elementCount(shape) / (batchAxis === null ? 1 : (shape[batchAxis] ?? 1)));
  if (batchAxis === null)
    return {
      samples: 0,
      array,
      at: (_, element) => ({ element, run: elementCount(shape) - element }),
      convert,
    };
  const inner = elementCount(shape.slice(batchAxis + 1));
  const samples = array.shape[batchAxis] ?? 0;
  return {
    samples,
    array,
    at: (sample, element) => ({
      element: (Math.floor(element / inner) * samples + sample) * inner + (element % inner),
      run: inner - (element % inner),
    }),
    convert,
  };
}

function converterFor(input: DataInput, array: SlicedArray, perSample: number): Convert {
  if (array.dtype === input.dtype || isWidened(array.dtype, input.dtype)) return converter(input, array, perSample);
  throw new AutoparError(
    'wrong-data',
    'input',
    `${array.place} holds ${array.dtype}, and input ${input.name} is ${input.dtype}`,
    { file: array.place, tensor: input.name },
    `convert the array to ${input.dtype}`,
  );
}

/** @throws AutoparError `wrong-data` where inputs have unlike numbers of samples, `data-too-short` where they have none */
function checkCounts(
  { file }: DataFile,
  inputs: readonly DataInput[],
  sources: ReadonlyMap<string, SampleSource>,
): void {
  const counted = inputs.filter(({ batchAxis }) => batchAxis !== null);
  const samplesOf = ({ name }: DataInput) => sources.get(name)?.samples ?? 0;
  const [first] = counted;
  if (!first)
    throw new AutoparError(
      'wrong-data',
      'input',
      'no input of the program has a batch dimension, and training needs samples',
      { file },
      'export the model with a batch dimension',
    );
  const other = counted.find((input) => samplesOf(input) !== samplesOf(first));
  if (other)
    throw new AutoparError(
      'wrong-data',
      'input',
      `${file} holds ${samplesOf(first)} samples of ${first.name} and ${samplesOf(other)} of ${other.name}`,
      { file, tensor: other.name },
      'write equal numbers of samples',
    );
  if (samplesOf(first) === 0)
    throw new AutoparError('data-too-short', 'input', `${file} holds no sample`, { file }, 'give a file with samples');
}

function typeText({ name, dtype, shape }: DataInput): string {
  return `${name} ${dtype} [${shape.join(', ')}]`;
}
