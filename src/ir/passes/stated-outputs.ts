/**
 * @file Compares the types that the file states for its outputs with the inferred ones. Another element type makes the model
 * invalid; another shape is often left over from another batch, so it is only noted.
 */
import { AutoparError } from '../error.js';
import type { SourceValue } from '../onnx/model.js';
import { typeOfValue, type Value } from './values.js';

/**
 * Notes on outputs whose stated sizes are not those that the operators make.
 * Throws `shape-mismatch` for an output of another element type than the file states.
 */
export function checkStatedOutputs(
  stated: readonly SourceValue[],
  found: readonly { readonly name: string; readonly value: Value }[],
  file: string,
): readonly string[] {
  const said = new Map(stated.map((value) => [value.name, value]));
  return found.flatMap(({ name, value }) => {
    const { dtype, shape } = said.get(name) ?? { dtype: null, shape: null };
    const type = typeOfValue(value);
    if (!type) return [];
    if (dtype !== null && dtype !== type.dtype) {
      throw new AutoparError(
        'shape-mismatch',
        'input',
        `the file declares that output '${name}' is ${dtype}, but it is computed as ${type.dtype}`,
        { file, tensor: name },
        'the model is inconsistent; export it again',
      );
    }
    const differs =
      shape !== null &&
      (shape.length !== type.shape.length ||
        shape.some((size, axis) => typeof size === 'number' && size > 0 && size !== type.shape[axis]));
    if (!differs) return [];
    const text = shape.map((size) => size ?? '?').join(', ');
    return [`the file declares that output ${name} is [${text}], but it is computed as [${type.shape.join(', ')}]`];
  });
}
