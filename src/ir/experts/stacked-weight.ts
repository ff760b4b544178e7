/**
 * @file One weight in place of several of one type, with a row for each and the places of its rows in the file.
 */
import { byteLength } from '../dtype.js';
import { elementCount, plainFileTensor, type Weight } from '../graph.js';

/**
 * @param weights with the first dimension of the result as their order
 * @param names of the weights, and `own` those that they have in their modules
 */
export function stackedWeight(weights: readonly Weight[], names: readonly string[], own: readonly string[]): Weight {
  const [first] = weights;
  if (!first) throw new Error('no weight to stack');
  const parts = weights.map((weight, index) => ({
    weight: own[index] ?? '',
    file: weight.file ?? plainFileTensor(names[index] ?? '', weight),
  }));
  const { dtype, role } = first;
  const shape = [weights.length, ...first.shape];
  const sources = weights.map(({ source }) => source);
  const length = byteLength(dtype, elementCount(shape));
  const dims = parts[0]?.file.dims.map((axis) => (axis === null ? null : axis + 1)) ?? [];
  return {
    dtype,
    shape,
    role,
    source: sources.find(({ kind }) => kind === 'absent') ?? { kind: 'stacked', length, parts: sources },
    file: {
      name: stackedName(own),
      shape: [weights.length, ...(parts[0]?.file.shape ?? [])],
      dims: [0, ...dims],
      result: null,
      parts,
    },
  };
}

/** `moe.experts.0.up.weight`, `moe.experts.1.up.weight`, … → `moe.experts.up.weight`. */
function stackedName([first = '', second = '']: readonly string[]): string {
  const [steps, others] = [first.split('.'), second.split('.')];
  const at = steps.findIndex((step, index) => step !== others[index]);
  const rest = steps.toSpliced(at, 1);
  const isOne = at >= 0 && rest.length > 0 && rest.join() === others.toSpliced(at, 1).join();
  return isOne ? rest.join('.') : `${first}/stacked`;
}
