/**
 * @file ONNX's .pb test data: a file with one TensorProto.
 */
import { AutoparError } from '../error.js';
import type { ConstantTensor } from '../graph.js';
import { decodeTensor, type TensorProto } from './schema.js';
import { constantOfProto } from './tensors.js';

/** The tensor in the bytes of a .pb file; `file` is named in errors. */
export function readTensorProto(bytes: Uint8Array, file: string): ConstantTensor {
  let proto: TensorProto;
  try {
    proto = decodeTensor(bytes);
  } catch {
    throw new AutoparError('bad-tensor-file', 'input', 'this is no ONNX TensorProto, or it is cut short', { file });
  }
  return constantOfProto(proto, file);
}
