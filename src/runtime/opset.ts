/**
 * @file The version of ONNX's operators that a segment declares, changed in its bytes.
 *
 * A device's kernels are registered up to some version of their operator, and segments are written in the newest. From 21 to 24
 * ONNX added types, attributes and operators, and changed no results: a segment that loads under an older of these versions is
 * the same.
 */

/** The versions that a segment may be declared under, newest first. */
export const EQUAL_OPSETS = [23, 22, 21] as const;

/** A copy of a model whose import of ONNX's own operators has another version; null where it has none, or not a newer one. */
export function withOpset(model: Uint8Array, version: number): Uint8Array | null {
  const copy = model.slice();
  for (const { field, start, end } of fieldsOf(copy, 0, copy.length)) {
    if (field !== OPSET_IMPORT) continue;
    const parts = [...fieldsOf(copy, start, end)];
    const domain = parts.find(({ field: own }) => own === DOMAIN);
    const declared = parts.find(({ field: own }) => own === VERSION);
    // Versions below 128 take one byte.
    if ((domain && domain.end > domain.start) || !declared || declared.end - declared.start !== 1) continue;
    if ((copy[declared.start] ?? 0) <= version) return null;
    copy[declared.start] = version;
    return copy;
  }
  return null;
}

/** Fields of `ModelProto` and `OperatorSetIdProto`. */
const OPSET_IMPORT = 8;
const DOMAIN = 1;
const VERSION = 2;

interface OpsetField {
  readonly field: number;
  /** Position where its value starts; `end` is behind it. */
  readonly start: number;
  readonly end: number;
}

/** Fields of a protobuf message, in order; those of fixed size are passed over. */
function* fieldsOf(bytes: Uint8Array, from: number, to: number): Generator<OpsetField> {
  let at = from;
  const varint = (): number => {
    let value = 0;
    for (let scale = 1; at < to; scale *= 128) {
      const byte = bytes[at++] ?? 0;
      value += (byte % 128) * scale;
      if (byte < 128) break;
    }
    return value;
  };
  while (at < to) {
    const tag = varint();
    const [field, wire] = [Math.floor(tag / 8), tag % 8];
    if (wire === 0) {
      const start = at;
      varint();
      yield { field, start, end: at };
    } else if (wire === 2) {
      const length = varint();
      yield { field, start: at, end: at + length };
      at += length;
    } else at += wire === 1 ? 8 : 4;
  }
}
