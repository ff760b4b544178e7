/**
 * @file ONNX's .pb test data: a file with one TensorProto.
 *
 * The file does not state its kind: sequences and optionals are stored as SequenceProto and OptionalProto, whose fields
 * have the numbers of others in TensorProto (3 is an element there, a segment here; 1 a name there, the dimensions here).
 */
import { AutoparError } from '../error.js';
import { type ConstantTensor, elementCount } from '../graph.js';
import { decodeTensor, type TensorProto } from './schema.js';
import { constantOfProto, integerOf } from './tensors.js';

/**
 * The tensor in the bytes of a .pb file; `file` is named in errors. Throws `unsupported-sequence` for anything else than one
 * tensor.
 */
export function readTensorProto(bytes: Uint8Array, file: string): ConstantTensor {
  let proto: TensorProto;
  try {
    proto = decodeTensor(bytes);
  } catch {
    throw new AutoparError('bad-tensor-file', 'input', 'this is not an ONNX TensorProto, or it is truncated', { file });
  }
  if (isTensor(proto)) return constantOfProto(proto, file);
  throw new AutoparError(
    'unsupported-sequence',
    'input',
    'this file holds a sequence or an optional (or a tensor without its values), not one tensor',
    { file },
    'autopar handles models whose inputs and outputs are tensors',
  );
}

function isTensor(proto: TensorProto): boolean {
  if ((proto.segment?.length ?? 0) > 0 || !proto.data_type) return false;
  const empty = DATA.every((field) => (proto[field]?.length ?? 0) === 0);
  return !empty || elementCount((proto.dims ?? []).map(integerOf)) === 0;
}

const DATA = [
  'raw_data',
  'float_data',
  'int32_data',
  'int64_data',
  'double_data',
  'uint64_data',
  'string_data',
  'external_data',
] as const;
