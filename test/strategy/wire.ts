/**
 * @file A reader of the protobuf wire format that knows nothing of any schema: fields by number, in order.
 */

export interface Field {
  readonly number: number;
  /** A varint as it stands, or the bytes of a length-delimited field. */
  readonly value: bigint | Uint8Array;
}

function readWire(bytes: Uint8Array): readonly Field[] {
  const fields: Field[] = [];
  let position = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[position++];
      if (byte === undefined) throw new Error('the bytes end in a number');
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (position < bytes.length) {
    const tag = Number(varint());
    const [number, kind] = [tag >> 3, tag & 7];
    if (kind === 0) fields.push({ number, value: varint() });
    else if (kind === 2) {
      const length = Number(varint());
      fields.push({ number, value: bytes.subarray(position, position + length) });
      position += length;
    } else throw new Error(`field ${number} has wire type ${kind}`);
  }
  return fields;
}

/** All values of one field. */
export function all(bytes: Uint8Array, number: number): readonly (bigint | Uint8Array)[] {
  return readWire(bytes).flatMap((field) => (field.number === number ? [field.value] : []));
}

export function messages(bytes: Uint8Array, number: number): readonly Uint8Array[] {
  return all(bytes, number).map((value) => value as Uint8Array);
}

/** Varints as signed 64-bit numbers. */
export function numbers(bytes: Uint8Array, number: number): readonly number[] {
  return all(bytes, number).map((value) => Number(BigInt.asIntN(64, value as bigint)));
}

export function text(bytes: Uint8Array, number: number): string {
  return new TextDecoder().decode(messages(bytes, number)[0]);
}
