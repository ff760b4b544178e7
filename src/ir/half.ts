/**
 * @file Sixteen-bit floats: float16 (1 sign, 5 exponent, 10 fraction bits) and bfloat16 (the upper half of a float32).
 * Both are stored as uint16. Widening looks the value up; narrowing goes from pattern to pattern, so that its loop stays
 * in integers, and rounds to nearest, ties to even, as hardware does.
 */

/** The types of sixteen-bit floats. */
export type HalfType = 'float16' | 'bfloat16';

/** How a sixteen-bit float is read and written. */
export interface HalfFormat {
  /** The number that a pattern means. */
  readonly decode: (half: number) => number;
  /** The pattern nearest to a number (rounded to float32 first). */
  readonly encode: (value: number) => number;
  /** The number that each of the 65,536 patterns means; made once. */
  readonly values: () => Float32Array;
  /** Writes the patterns nearest to `count` float32 patterns to `into` from `at` on. */
  readonly narrowAll: (singles: Int32Array, count: number, into: Uint16Array, at: number) => void;
}

/** bfloat16: the upper sixteen bits of a float32. */
export const BFLOAT16: HalfFormat = formatOf(
  (half) => half << 16,
  narrowBfloat16,
  (singles, count, into, at) => {
    for (let index = 0; index < count; index++) into[at + index] = narrowBfloat16(singles[index] as number);
  },
);

/** IEEE binary16. */
export const FLOAT16: HalfFormat = formatOf(widenFloat16, narrowFloat16, (singles, count, into, at) => {
  for (let index = 0; index < count; index++) into[at + index] = narrowFloat16(singles[index] as number);
});

/** The format of each type. */
export const HALF_FORMATS: Readonly<Record<HalfType, HalfFormat>> = { float16: FLOAT16, bfloat16: BFLOAT16 };

function narrowBfloat16(single: number): number {
  if ((single & 0x7fffffff) > 0x7f800000) return ((single >>> 16) | 0x40) & 0xffff;
  return ((single + 0x7fff + ((single >>> 16) & 1)) >>> 16) & 0xffff;
}

function widenFloat16(half: number): number {
  const sign = (half & 0x8000) << 16;
  const exponent = (half >>> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 31) return sign | 0x7f800000 | (fraction << 13);
  if (exponent > 0) return sign | ((exponent + 112) << 23) | (fraction << 13);
  if (fraction === 0) return sign;
  // A subnormal half is a normal float32: its leading one becomes the implicit one.
  const shift = Math.clz32(fraction) - 21;
  return sign | ((113 - shift) << 23) | ((fraction << (shift + 13)) & 0x7fffff);
}

function narrowFloat16(single: number): number {
  const sign = (single >>> 16) & 0x8000;
  const magnitude = single & 0x7fffffff;
  if (magnitude >= 0x38800000 && magnitude < 0x47800000) {
    // A normal half; rounding up may carry into the exponent and, from 65520 on, reach infinity: both are right.
    return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
  }
  if (magnitude > 0x7f800000) return sign | 0x7e00 | ((magnitude >>> 13) & 0x1ff);
  if (magnitude >= 0x47800000) return sign | 0x7c00; // 65536 and above, infinity included
  if (magnitude < 0x33000000) return sign; // below half of the smallest subnormal
  const shift = 126 - (magnitude >>> 23);
  const fraction = (magnitude & 0x7fffff) | 0x800000;
  const kept = fraction >>> shift;
  const rest = fraction & ((1 << shift) - 1);
  const middle = 1 << (shift - 1);
  return sign | (rest > middle || (rest === middle && (kept & 1) === 1) ? kept + 1 : kept);
}

/** `narrowAll` is written out for each format, so that its loop calls one function only and is compiled as one. */
function formatOf(
  widen: (half: number) => number,
  narrow: (single: number) => number,
  narrowAll: HalfFormat['narrowAll'],
): HalfFormat {
  let table: Float32Array | undefined;
  return {
    decode: (half) => new Float32Array(Int32Array.of(widen(half)).buffer)[0] as number,
    encode: (value) => narrow(new Int32Array(Float32Array.of(value).buffer)[0] as number),
    values: () => {
      table ??= new Float32Array(Int32Array.from({ length: 1 << 16 }, (_, half) => widen(half)).buffer);
      return table;
    },
    narrowAll,
  };
}
