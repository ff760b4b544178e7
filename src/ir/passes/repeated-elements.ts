/**
 * @file Values in which an exporter has repeated a parameter's elements: a class token expanded over the batch, a table of
 * position biases read at every pair of positions. The elements of a parameter differ from each other, so that equal numbers are
 * copies of one element; for training the value is the parameter's elements, read at fixed indices.
 */
import { byteLength } from '../dtype.js';
import { type ConstantTensor, elementCount, INTERNAL_OPSET, type TensorType, type WeightSource } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';
import { loadWeight } from '../onnx/tensors.js';
import { constant } from '../ops/constants.js';
import { valueEvidence } from '../parameters/value-evidence.js';
import { WeightReader } from '../parameters/weight-reader.js';

export interface RepeatedElements {
  /** The elements, each once, in the order in which they occur. */
  readonly elements: ConstantTensor;
  /** The index of the element at each position: int64, of the value's shape. */
  readonly indices: ConstantTensor;
}

/** Elements of the largest value that is looked at: position biases of a base model take half a million in each layer. */
const LARGEST = 1 << 22;
/** Elements that show whether a larger value repeats any; a larger matrix is a weight as it is. */
const SAMPLE = 1 << 18;

/** The bits of float32 beyond those of a number in 16 bit: numbers that had 16 bit once are equal by chance. */
const BEYOND_16_BIT = 0x1fff;

/** The elements of a float32 value in which they are repeated at least twice on average; null for any other. */
export async function repeatedElements(type: TensorType, source: WeightSource): Promise<RepeatedElements | null> {
  const count = elementCount(type.shape);
  if (type.dtype !== 'float32' || count < 4 || count > LARGEST) return null;
  if (count > SAMPLE && (type.shape.length < 3 || !repeatsInSample(source))) return null;
  const data = await loadWeight(source);
  if (!data || data.length !== byteLength(type.dtype, count)) return null;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const bits = Array.from({ length: count }, (_, index) => view.getUint32(4 * index, true));
  const places = new Map<number, number>();
  for (const word of bits) if (!places.has(word)) places.set(word, places.size);
  if (places.size < 3 || 2 * places.size > count || bits.every((word) => (word & BEYOND_16_BIT) === 0)) return null;
  if (valueEvidence(type, source)?.made !== null) return null;
  const elements = new Uint8Array(byteLength('float32', places.size));
  const written = new DataView(elements.buffer);
  for (const [word, place] of places) written.setUint32(4 * place, word, true);
  return {
    elements: { dtype: 'float32', shape: [places.size], data: elements },
    indices: constant(
      'int64',
      bits.map((word) => places.get(word) ?? 0),
      type.shape,
    ),
  };
}

function repeatsInSample(source: WeightSource): boolean {
  const reader = new WeightReader();
  try {
    const data = reader.read(source, 0, byteLength('float32', SAMPLE));
    if (!data) return false;
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    const found = new Set<number>();
    for (let index = 0; index < SAMPLE && 2 * found.size <= SAMPLE; index++) found.add(view.getUint32(4 * index, true));
    return 2 * found.size <= SAMPLE;
  } finally {
    reader.close();
  }
}

/** Reads the elements of an initializer at the indices where it has them. */
export function gatherNode(name: string, of: string): SourceNode {
  return {
    name: `${name}/Gather`,
    op: 'Gather',
    domain: '',
    overload: '',
    attributes: { axis: 0 },
    inputs: [`${of}/elements`, `${of}/indices`],
    outputs: [`${of}/repeated`],
    module: [],
    opset: INTERNAL_OPSET,
  };
}
