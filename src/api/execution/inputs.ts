/**
 * @file The arrays a program is fed: from .npy, .npz, .pb, a folder of raw files with io.json, or seeded random.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { totalmem } from 'node:os';
import path from 'node:path';
import { byteLength, isDType, isFloating } from '../../ir/dtype.js';
import { AutoparError } from '../../ir/error.js';
import { flattenRegions } from '../../ir/fused-regions/flatten-regions.js';
import type { ConstantTensor, Graph, TensorType } from '../../ir/graph.js';
import { elementCount, typeOf } from '../../ir/graph.js';
import { tableRows } from '../../ir/table-rows.js';
import { insideFolder } from '../../program/inside-folder.js';
import { makeTensor, normal, uniform } from '../verification/numbers.js';
import { type Arrays, readArray, readArrays, SINGLE_ARRAY } from './arrays.js';

/** The inputs to feed: name and type of each. */
export type WantedInputs = readonly (TensorType & { readonly name: string })[];

/**
 * Reads input arrays.
 * `.npz`: by name. `.npy`, `.pb`: a model with one input. A folder: io.json with raw files, or NAME.npy / NAME.pb files.
 * @throws AutoparError (exit input) for a missing or malformed file, an unknown format, an unknown or missing name.
 */
export async function readInputs(from: string, wanted: WantedInputs): Promise<Arrays> {
  const found = await readFrom(from, wanted);
  const names = new Set(wanted.map((input) => input.name));
  const unknown = Object.keys(found).find((name) => !names.has(name));
  if (unknown !== undefined) {
    throw new AutoparError(
      'unknown-input',
      'input',
      `${from} holds an array ${unknown}, but the model has no such input; its inputs are ${[...names].join(', ')}`,
      { file: from, tensor: unknown },
      'Rename the array, or leave it out.',
    );
  }
  for (const input of wanted) {
    const array = found[input.name];
    if (!array) {
      throw new AutoparError(
        'missing-input',
        'input',
        `${from} holds no array for input ${input.name} (${input.dtype} [${input.shape.join(', ')}])`,
        { file: from, tensor: input.name },
        `Add it: an .npz holds it under this name, a folder as ${input.name}.npy.`,
      );
    }
    checkArray(input, array, from);
  }
  return found;
}

/** Refuses an array of another dtype or shape than the input's. */
function checkArray(input: TensorType & { readonly name: string }, array: ConstantTensor, file?: string): void {
  const text = (type: TensorType) => `${type.dtype} [${type.shape.join(', ')}]`;
  if (array.dtype === input.dtype && array.shape.join() === input.shape.join()) return;
  throw new AutoparError(
    'wrong-input',
    'input',
    `input ${input.name} must be ${text(input)}, the array given is ${text(array)}`,
    { tensor: input.name, ...(file ? { file } : {}) },
    array.dtype === input.dtype
      ? 'Another batch needs --global-batch when compiling, other sizes --dim.'
      : `Convert the array to ${input.dtype}.`,
  );
}

/**
 * Seeded random inputs: floats are normal (0, 1), indices uniform over the table they look up, other integers and
 * booleans 0 or 1. Equal seeds give equal arrays on every machine. `bounds`: exclusive upper bounds of an input's integers.
 */
export function randomInputs(given: Graph, seed: number, bounds: Readonly<Record<string, number>> = {}): Arrays {
  const graph = flattenRegions(given);
  checkRoom(graph);
  const result: Record<string, ConstantTensor> = {};
  dataInputs(graph).forEach((name, ordinal) => {
    const type = typeOf(graph, name);
    const next = uniform(seed * 1000003 + ordinal);
    const bound = isFloating(type.dtype) ? 0 : (bounds[name] ?? tableRows(graph, name) ?? 2);
    result[name] = makeTensor(type, isFloating(type.dtype) ? () => normal(next) : () => Math.floor(next() * bound));
  });
  return result;
}

/** Inputs that a user feeds, without the state that one step keeps for the next. */
export function dataInputs(graph: Graph): readonly string[] {
  return graph.inputs.filter((name) => !graph.initial?.has(name));
}

/** @throws AutoparError `machine-too-small` (exit backendAbsent) for inputs that this machine's memory cannot hold. */
function checkRoom(graph: Graph): void {
  const bytes = dataInputs(graph).reduce((sum, name) => {
    const { dtype, shape } = typeOf(graph, name);
    return sum + byteLength(dtype, elementCount(shape));
  }, 0);
  if (bytes <= totalmem()) return;
  throw new AutoparError(
    'machine-too-small',
    'backendAbsent',
    `the inputs alone take ${bytes.toExponential(1)} bytes, more than the memory of this machine`,
    {},
    'Compile at a smaller --global-batch or --dim to run here.',
  );
}

async function readFrom(from: string, wanted: WantedInputs): Promise<Arrays> {
  const information = await stat(from).catch(() => null);
  if (information?.isDirectory()) return readFolder(from, wanted);
  if (from.endsWith('.npz')) return readArrays(from);
  const array = await readArray(from);
  const only = wanted[0];
  if (wanted.length !== 1 || !only) {
    throw new AutoparError(
      'missing-input',
      'input',
      `${from} holds one array, the model has ${wanted.length} inputs: ${wanted.map((input) => input.name).join(', ')}`,
      { file: from },
      'Give an .npz with an array for each, or a folder.',
    );
  }
  return { [only.name]: array };
}

async function readFolder(folder: string, wanted: WantedInputs): Promise<Record<string, ConstantTensor>> {
  const files = await readdir(folder);
  if (files.includes('io.json')) return readRaw(folder);
  const result: Record<string, ConstantTensor> = {};
  for (const input of wanted) {
    for (const { ending } of SINGLE_ARRAY) {
      const file = `${input.name}${ending}`;
      if (files.includes(file)) result[input.name] = await readArray(path.join(folder, file));
    }
  }
  return result;
}

/** io.json: {"inputs": [{"name", "dtype", "shape", "file"}]}; files are raw little-endian data. */
async function readRaw(folder: string): Promise<Record<string, ConstantTensor>> {
  const file = path.join(folder, 'io.json');
  const bad = (what: string) =>
    new AutoparError(
      'bad-inputs',
      'input',
      `${file} ${what}`,
      { file },
      'It lists {name, dtype, shape, file} under "inputs".',
    );
  let listing: unknown;
  try {
    listing = JSON.parse(await readFile(file, 'utf8'));
  } catch {
    throw bad('is not JSON');
  }
  const inputs = (listing as { inputs?: unknown } | null)?.inputs;
  if (!Array.isArray(inputs)) throw bad('has no list "inputs"');
  const result: Record<string, ConstantTensor> = {};
  for (const entry of inputs as unknown[]) {
    const {
      name,
      dtype,
      shape,
      file: raw,
    } = (entry ?? {}) as Partial<Record<'name' | 'dtype' | 'shape' | 'file', unknown>>;
    if (typeof name !== 'string' || typeof dtype !== 'string' || !isDType(dtype) || !isShape(shape)) {
      throw bad('has an input without name, dtype or shape');
    }
    if (typeof raw !== 'string') throw bad(`names no file for input ${name}`);
    const data = await readFile(await insideFolder(folder, raw)).catch(() => {
      throw bad(`names ${raw}, which cannot be read`);
    });
    const expected = byteLength(dtype, elementCount(shape));
    if (data.byteLength !== expected) {
      throw bad(
        `states that ${raw} is ${dtype} [${shape.join(', ')}], ${expected} bytes, but it has ${data.byteLength}`,
      );
    }
    result[name] = { dtype, shape, data: new Uint8Array(data) };
  }
  return result;
}

function isShape(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && size >= 0);
}
