/**
 * @file Random numbers that depend on nothing but a seed, the number of the step, the drawing operator and the position in the
 * whole tensor, so that every rank makes its own shard of them and all layouts draw the same.
 *
 *     s₁, s₂, …                                            mix(seed + γ), mix(seed + 2 γ), …
 *     rows    r = mix(row · γ + mix(step · γ + s₁))        64 bits per row of the last dimension, [.., 1]
 *     columns c = mix(column · γ + s₂) | 1                 64 bits, odd, [last]
 *     bits    r · a · c   (mod 2^64)                       a = sₖ | 1 of the operator that draws; the high bits count
 *
 * `mix` is the finalizer of SplitMix64 (Steele, Lea, Flood 2014). Multiplication by random odd numbers is universal hashing
 * (Dietzfelbinger et al. 1997: the high bits of a · x are equal for two x as seldom as those of random numbers), and costs one
 * multiplication per element where a generator of its own would cost a dozen. Rows and columns are made once for all operators of
 * a shape.
 */
import type { ConstantTensor } from '../graph.js';
import { constant } from '../ops/constants.js';
import type { ForwardWriter, Neighbourhood } from '../passes/forward-writer.js';
import { madeOnce } from '../remembered.js';

const GAMMA = 0x9e3779b97f4a7c15n;
const FIRST = 0xbf58476d1ce4e5b9n;
const SECOND = 0x94d049bb133111ebn;

/** Writes random bits into a graph, with the counter of steps that they depend on. */
export class RandomBits {
  private readonly rows = new Map<string, string>();
  private readonly columns = new Map<number, string>();
  private readonly literals = new Map<string, string>();
  private readonly step: string;
  private readonly key: string;
  private drawn = 0;

  /** `name` begins the names of all that is written. */
  constructor(
    private readonly write: ForwardWriter,
    private readonly name: string,
    private readonly seed: number,
  ) {
    this.step = write.weight(`${name}/step`, {
      dtype: 'int64',
      shape: [],
      role: 'buffer',
      source: { kind: 'zero', length: 8 },
    });
    this.key = this.mixed(`${name}/key`, this.counted(this.step, this.stream(1)));
  }

  /** Operators that must precede every operator that draws, and operators after all of them, which count the step. */
  beforeAndAfter(): {
    readonly before: ReturnType<ForwardWriter['take']>;
    readonly after: ReturnType<ForwardWriter['take']>;
  } {
    const before = this.write.take();
    const one = this.literal(constant('int64', [1]));
    const next = this.write.add(`${this.name}/step/next`, { ...this.home, phase: 'update' }, 'Add', [this.step, one]);
    this.write.state.push({ input: this.step, output: next });
    return { before, after: this.write.take() };
  }

  /** Writes the tensors that `draw` reads for this shape: they must precede the operators that draw. */
  prepare(shape: readonly number[]): void {
    this.rowsOf(shape.slice(0, -1));
    this.columnsOf(shape.at(-1) ?? 1);
  }

  /** Random bits of this shape (uint64), different for every call; the high ones are the best. */
  draw(wanted: string, at: Neighbourhood, shape: readonly number[]): string {
    this.drawn++;
    const own = this.stream(this.drawn + 2) | 1n;
    // An input of programs, not part of them: repeated layers differ only in it, and share their program.
    const factor = this.write.value(`${wanted}/key`, uint64(own), 'buffer');
    const rows = this.write.add(`${wanted}/rows`, at, 'Mul', [this.rowsOf(shape.slice(0, -1)), factor]);
    const bits = this.write.add(`${wanted}/bits`, at, 'Mul', [rows, this.columnsOf(shape.at(-1) ?? 1)]);
    return shape.length > 0 ? bits : this.write.add(`${wanted}/single`, at, 'Squeeze', [bits], { axes: [0] });
  }

  /** The seed's bits number `ordinal`, from 1 on. */
  private stream(ordinal: number): bigint {
    return mix(BigInt(this.seed) + BigInt(ordinal) * GAMMA);
  }

  private get home(): Neighbourhood {
    return { module: [this.name], layer: null };
  }

  /** [.., 1]: random bits of each row. */
  private rowsOf(leading: readonly number[]): string {
    const key = leading.join('x');
    const known = this.rows.get(key);
    if (known !== undefined) return known;
    // Ordinals: the names of a micro-batch's graph are those of the whole batch's.
    const name = `${this.name}/rows/${this.rows.size}`;
    const numbered = this.plain(`${name}/counted`, 'Add', this.counted(this.rowNumbers(name, leading), 0n), this.key);
    const mixed = this.mixed(name, numbered);
    this.rows.set(key, mixed);
    return mixed;
  }

  /** The number of each row (int64), [.., 1]. */
  private rowNumbers(name: string, leading: readonly number[]): string {
    const rank = leading.length + 1;
    const terms = leading.map((size, axis) => {
      const stride = leading.slice(axis + 1).reduce((product, next) => product * next, 1);
      const range = this.range(`${name}/axis${axis}`, size);
      const scaled =
        stride === 1 ? range : this.plain(`${range}/scaled`, 'Mul', range, this.literal(constant('int64', [stride])));
      const others = Array.from({ length: rank }, (_, other) => other).filter((other) => other !== axis);
      return this.write.add(`${range}/placed`, this.home, 'Unsqueeze', [scaled], { axes: others });
    });
    const [first, ...others] = terms;
    if (first === undefined) return this.literal(constant('int64', [0], [1]));
    return others.reduce((sum, term) => this.plain(`${name}/number`, 'Add', sum, term), first);
  }

  /** [size]: odd random bits of each column, the same in every step. */
  private columnsOf(size: number): string {
    const known = this.columns.get(size);
    if (known !== undefined) return known;
    const name = `${this.name}/columns/${this.columns.size}`;
    const seeded = this.counted(this.range(`${name}/axis`, size), this.stream(2));
    const odd = this.plain(name, 'BitwiseOr', this.mixed(`${name}/mixed`, seeded), this.literal(uint64(1n)));
    this.columns.set(size, odd);
    return odd;
  }

  private range(name: string, size: number): string {
    const bound = (value: number) => constant('int64', [value]);
    return this.write.add(name, this.home, 'Range', [], { start: bound(0), limit: bound(size), delta: bound(1) });
  }

  /** numbers (int64) · γ + start, in 64 bits without a sign. */
  private counted(numbers: string, start: bigint): string {
    const whole = this.write.add(`${numbers}/whole`, this.home, 'Cast', [numbers], { to: 13 });
    const spread = this.plain(`${numbers}/spread`, 'Mul', whole, this.literal(uint64(GAMMA)));
    return start === 0n ? spread : this.plain(`${numbers}/started`, 'Add', spread, this.literal(uint64(start)));
  }

  private mixed(name: string, bits: string): string {
    const folded = (value: string, shift: bigint, last: string) => {
      const attributes = { direction: 'RIGHT' };
      const high = this.write.add(
        `${name}/high`,
        this.home,
        'BitShift',
        [value, this.literal(uint64(shift))],
        attributes,
      );
      return this.plain(last, 'BitwiseXor', value, high);
    };
    const times = (value: string, factor: bigint) =>
      this.plain(`${name}/product`, 'Mul', value, this.literal(uint64(factor)));
    const once = times(folded(bits, 30n, `${name}/folded`), FIRST);
    return folded(times(folded(once, 27n, `${name}/folded`), SECOND), 31n, name);
  }

  private plain(name: string, op: string, ...inputs: readonly string[]): string {
    return this.write.add(name, this.home, op, inputs);
  }

  /** A constant, kept once per value. */
  private literal(value: ConstantTensor): string {
    const key = `${value.dtype}[${value.shape}]${Buffer.from(value.data).toString('hex')}`;
    return madeOnce(this.literals, key, () => this.write.value(`${this.name}/constant/${this.literals.size}`, value));
  }
}

/** A scalar of 64 bits without a sign. */
export function uint64(value: bigint): ConstantTensor {
  const data = new Uint8Array(8);
  new DataView(data.buffer).setBigUint64(0, BigInt.asUintN(64, value), true);
  return { dtype: 'uint64', shape: [], data };
}

/** SplitMix64's finalizer. */
function mix(value: bigint): bigint {
  const wrap = (number: bigint) => BigInt.asUintN(64, number);
  let bits = wrap(value);
  bits = wrap((bits ^ (bits >> 30n)) * FIRST);
  bits = wrap((bits ^ (bits >> 27n)) * SECOND);
  return bits ^ (bits >> 31n);
}
