/**
 * @file Values in which an exporter has repeated a parameter's rows or elements: a table of positions looked up for every sample,
 * position biases read at every pair of positions. The elements of a parameter differ from each other, so that equal numbers are
 * copies of one element; for training the value is the parameter's rows, or its elements, read at fixed indices.
 */
import { byteLength } from '../dtype.js';
import { type ConstantTensor, elementCount, INTERNAL_OPSET, type TensorType, type WeightSource } from '../graph.js';
import type { SourceNode } from '../onnx/model.js';
import { loadWeight } from '../onnx/tensors.js';
import { constant } from '../ops/constants.js';
import { valueEvidence } from '../parameters/value-evidence.js';
import { WeightReader } from '../parameters/weight-reader.js';

export interface RepeatedElements {
  /** The rows of the last dimension, or the elements, each once, in the order in which they occur. */
  readonly elements: ConstantTensor;
  /** The index of the row or element at each position: int64. */
  readonly indices: ConstantTensor;
}

/** Elements of the largest value that is looked at: position biases of a base model take half a million in each layer. */
const LARGEST = 1 << 22;
/** Elements that show whether a larger value repeats any; a larger matrix is a weight as it is. */
const SAMPLE = 1 << 18;

/** The bits of float32 beyond those of a number in 16 bit: numbers that had 16 bit once are equal by chance. */
const BEYOND_16_BIT = 0x1fff;

/**
 * The rows or elements of a float32 value in which they are repeated at least twice on average; null for any other.
 * `isParameter`: whether the exporter states that it is made of one, so that its values need no evidence.
 */
export async function repeatedElements(
  type: TensorType,
  source: WeightSource,
  isParameter: boolean,
): Promise<RepeatedElements | null> {
  const count = elementCount(type.shape);
  if (type.dtype !== 'float32' || count < 4 || count > LARGEST) return null;
  if (count > SAMPLE && (type.shape.length < 3 || !repeatsInSample(source))) return null;
  const data = await loadWeight(source);
  if (!data || data.length !== byteLength(type.dtype, count)) return null;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const bits = Array.from({ length: count }, (_, index) => view.getUint32(4 * index, true));
  const each = parted(bits, 1);
  const distinct = each.starts.length;
  if (distinct < 3 || 2 * distinct > count || bits.every((word) => (word & BEYOND_16_BIT) === 0)) return null;
  if (!isParameter && valueEvidence(type, source)?.made !== null) return null;
  const width = type.shape.at(-1) ?? 1;
  const rows = parted(bits, width);
  const ofRows = 2 * rows.starts.length * width <= count && 2 * distinct > rows.starts.length * width;
  const { starts, places } = ofRows ? rows : each;
  const length = ofRows ? width : 1;
  const bytes = byteLength('float32', length);
  const elements = new Uint8Array(bytes * starts.length);
  for (const [index, start] of starts.entries())
    elements.set(data.subarray(4 * start, 4 * start + bytes), bytes * index);
  return {
    elements: { dtype: 'float32', shape: ofRows ? [starts.length, width] : [starts.length], data: elements },
    indices: constant('int64', places, ofRows ? type.shape.slice(0, -1) : type.shape),
  };
}

/** Parts of one length: where each that differs from those before it starts, and which of these stands at each place. */
function parted(bits: readonly number[], length: number) {
  const known = new Map<number | string, number>();
  const starts: number[] = [];
  const places: number[] = [];
  for (let start = 0; start < bits.length; start += length) {
    const key = length === 1 ? (bits[start] ?? 0) : bits.slice(start, start + length).join();
    const place = known.get(key) ?? starts.length;
    if (place === starts.length) starts.push(start);
    known.set(key, place);
    places.push(place);
  }
  return { starts, places };
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

/** Reads the rows or elements of an initializer at the indices where it has them. */
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
