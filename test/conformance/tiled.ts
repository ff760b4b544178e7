/**
 * @file Arrays repeated along their dimensions: inputs of a larger batch.
 */
import { type ConstantTensor, elementCount } from '../../src/ir/graph.js';

/** The array repeated until it has the sizes of `shape`, each a multiple of its own. */
export function tiled(array: ConstantTensor, shape: readonly number[]): ConstantTensor {
  let { data } = array;
  const sizes = [...array.shape];
  const bytes = data.length / Math.max(1, elementCount(sizes));
  for (let axis = 0; axis < sizes.length; axis++) {
    const times = (shape[axis] ?? 1) / (sizes[axis] ?? 1);
    if (!Number.isInteger(times) || times < 1) {
      throw new Error(`[${array.shape.join(', ')}] cannot be tiled to [${shape.join(', ')}]`);
    }
    const run = elementCount(sizes.slice(axis)) * bytes;
    data = repeatRuns(data, run, times);
    sizes[axis] = (sizes[axis] ?? 1) * times;
  }
  return { dtype: array.dtype, shape: sizes, data };
}

function repeatRuns(data: Uint8Array, run: number, times: number): Uint8Array {
  if (times === 1 || run === 0) return data;
  const result = new Uint8Array(data.length * times);
  for (let index = 0; index * run < data.length; index++) {
    const part = data.subarray(index * run, (index + 1) * run);
    for (let copy = 0; copy < times; copy++) result.set(part, (index * times + copy) * run);
  }
  return result;
}
