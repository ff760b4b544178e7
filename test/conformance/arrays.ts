/**
 * @file The files of a case: io.json names inputs and outputs, each a raw little-endian file beside it.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type DType, isDType } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';

export type Arrays = Readonly<Record<string, ConstantTensor>>;

export interface Tolerance {
  readonly rtol: number;
  readonly atol: number;
}

export interface CaseFiles {
  readonly model: string;
  readonly inputs: Arrays;
  readonly outputs: Arrays;
  readonly tolerance: Tolerance;
}

interface Listed {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly file: string;
}

interface Listing {
  readonly inputs: readonly Listed[];
  readonly outputs: readonly Listed[];
  readonly tolerance?: Partial<Tolerance>;
}

/** Reads a case folder: model.onnx, io.json and the files that it names. */
export function readCase(folder: string): CaseFiles {
  const listing = JSON.parse(readFileSync(join(folder, 'io.json'), 'utf8')) as Listing;
  const read = (listed: readonly Listed[]): Arrays =>
    Object.fromEntries(
      listed.map(({ name, dtype, shape, file }) => [
        name,
        { dtype: knownDtype(dtype, name), shape, data: new Uint8Array(readFileSync(join(folder, file))) },
      ]),
    );
  return {
    model: join(folder, 'model.onnx'),
    inputs: read(listing.inputs),
    outputs: read(listing.outputs),
    tolerance: { rtol: 1e-3, atol: 1e-4, ...listing.tolerance },
  };
}

/** The array repeated until it has the sizes of `shape`, each a multiple of its own. */
export function tiled(array: ConstantTensor, shape: readonly number[]): ConstantTensor {
  let { data } = array;
  const sizes = [...array.shape];
  const bytes = data.length / Math.max(1, product(sizes));
  for (let axis = 0; axis < sizes.length; axis++) {
    const times = (shape[axis] ?? 1) / (sizes[axis] ?? 1);
    if (!Number.isInteger(times) || times < 1) {
      throw new Error(`[${array.shape.join(', ')}] cannot be tiled to [${shape.join(', ')}]`);
    }
    const block = product(sizes.slice(axis)) * bytes;
    data = repeatBlocks(data, block, times);
    sizes[axis] = (sizes[axis] ?? 1) * times;
  }
  return { dtype: array.dtype, shape: sizes, data };
}

function repeatBlocks(data: Uint8Array, block: number, times: number): Uint8Array {
  if (times === 1 || block === 0) return data;
  const result = new Uint8Array(data.length * times);
  for (let index = 0; index * block < data.length; index++) {
    const part = data.subarray(index * block, (index + 1) * block);
    for (let copy = 0; copy < times; copy++) result.set(part, (index * times + copy) * block);
  }
  return result;
}

function knownDtype(dtype: string, name: string): DType {
  if (!isDType(dtype)) throw new Error(`io.json gives ${name} the unknown type ${dtype}`);
  return dtype;
}

function product(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total * size, 1);
}
