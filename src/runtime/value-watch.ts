/**
 * @file Observations of values in a rank: the sum of squares of named tensors, and the tensors that hold a number that is not
 * finite.
 */
import { typedView } from '../program/typed.js';
import { BFLOAT16, type DType, FLOAT16 } from '../program/values.js';

/** A tensor with a value that is not finite, as it was made. */
export interface NotFinite {
  /** The local tensor. */
  readonly tensor: string;
  /** The instruction's label; `input` where it was fed. */
  readonly label: string;
  readonly isNan: boolean;
  /** Milliseconds on a clock that all ranks share. */
  readonly at: number;
}

/** A rank lists no more of them per step: values computed from a bad value are bad as well. */
const MOST_LISTED = 256;

/** Gathers over a step; `begin` starts the next. */
export class ValueWatch {
  private measured: ReadonlySet<string> = new Set();
  private isChecking = false;
  squares: Record<string, number> = {};
  notFinite: NotFinite[] = [];

  begin(measured: readonly string[], isChecking: boolean): void {
    this.measured = new Set(measured);
    this.isChecking = isChecking;
    this.squares = {};
    this.notFinite = [];
  }

  /** Before a tensor goes: its last value counts. */
  measure(name: string, dtype: DType, bytesOf: () => Uint8Array | undefined): void {
    if (!this.measured.has(name)) return;
    const bytes = bytesOf();
    if (bytes) this.squares[name] = sumOfSquares(dtype, bytes);
  }

  /** Names that are to be measured and were not yet. */
  get unmeasured(): readonly string[] {
    return [...this.measured].filter((name) => !(name in this.squares));
  }

  check(name: string, dtype: DType, label: string, bytesOf: () => Uint8Array): void {
    if (!this.isChecking || !FLOATS.has(dtype) || this.notFinite.length >= MOST_LISTED) return;
    const bytes = bytesOf();
    if (areFinite(dtype, bytes)) return;
    const isNan = numbersIn(dtype, bytes).some((value) => Number.isNaN(value));
    this.notFinite.push({ tensor: name, label, isNan, at: performance.timeOrigin + performance.now() });
  }
}

const HALVES = new Map<DType, typeof FLOAT16>([
  ['float16', FLOAT16],
  ['bfloat16', BFLOAT16],
]);

const FLOATS: ReadonlySet<DType> = new Set<DType>(['float32', 'float64', ...HALVES.keys()]);

type Floats = Float32Array | Float64Array;

function numbersIn(dtype: DType, bytes: Uint8Array): Floats {
  const values = typedView(dtype, bytes);
  const table = HALVES.get(dtype)?.values();
  return table ? Float32Array.from(values as Uint16Array, (half) => table[half] as number) : (values as Floats);
}

/** A number times zero is zero, or NaN if it is not finite: no branch per element, and four independent sums. */
function areFinite(dtype: DType, bytes: Uint8Array): boolean {
  const numbers = numbersIn(dtype, bytes);
  let [a, b, c, d] = [0, 0, 0, 0];
  const even = numbers.length - (numbers.length % 4);
  for (let index = 0; index < even; index += 4) {
    a += (numbers[index] as number) * 0;
    b += (numbers[index + 1] as number) * 0;
    c += (numbers[index + 2] as number) * 0;
    d += (numbers[index + 3] as number) * 0;
  }
  for (let index = even; index < numbers.length; index++) a += (numbers[index] as number) * 0;
  return a + b + c + d === 0;
}

/** In float64. */
function sumOfSquares(dtype: DType, bytes: Uint8Array): number {
  const numbers = numbersIn(dtype, bytes);
  let sum = 0;
  for (let index = 0; index < numbers.length; index++) sum += (numbers[index] as number) ** 2;
  return sum;
}
