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
    const block = elementCount(sizes.slice(axis)) * bytes;
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
