/**
 * @file Tensors that a stage declares: types and sizes of a rank's shards.
 */
import type { ProgramStage } from '../program/program.js';
import { byteLength, type DType, elementCount } from '../program/values.js';

/** Dtype and local shape of a stage's tensor; a coordinate is int64 [1]. Throws for a name that is neither. */
export function tensorOf(
  stage: ProgramStage,
  name: string,
): { readonly dtype: DType; readonly localShape: readonly number[] } {
  const tensor = stage.tensors[name] ?? stage.weights[name];
  if (tensor) return tensor;
  if (name in stage.coordinates) return { dtype: 'int64', localShape: [1] };
  throw new Error(`tensor ${name} is not declared`);
}

export function tensorBytes(stage: ProgramStage, name: string): number {
  const { dtype, localShape } = tensorOf(stage, name);
  return byteLength(dtype, elementCount(localShape));
}
