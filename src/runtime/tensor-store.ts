/**
 * @file The tensors that a rank holds, by lifetime: those of the run and of the step by name, those of a micro-batch by it and
 * name. Each is in the device's memory, in the host's or in a file. Tensors that are defined here are counted, memory by memory,
 * and the memory of freed tensors is reused by later results.
 */
import { memoryPlaceOf } from '../program/check-places.js';
import type { Program, ProgramStage } from '../program/program.js';
import { AutoparError, type Lifetime, type OuterMemory } from '../program/values.js';
import type { Backend } from './backend.js';
import { BufferPool } from './buffer-pool.js';
import { type DiskFile, FileRange } from './disk-file.js';
import { tensorBytes, tensorOf } from './stage-tensors.js';

export type Memory = 'device' | OuterMemory;

/** The holder of a tensor's value. */
type Holder<Tensor> = Tensor | FileRange;

/** Memory from which a buffer was taken. */
interface Buffer {
  readonly bytes: Uint8Array;
  readonly pool: BufferPool;
}

export interface StoreOptions {
  readonly rank: number;
  /** Bytes that may be held in the device's memory; null for no limit. */
  readonly limit: number | null;
  /** Null where nothing is stored on disk, or tensors have no values. */
  readonly disk: DiskFile | null;
}

export class TensorStore<Tensor extends object> {
  private readonly whole = new Map<string, Holder<Tensor>>();
  private readonly parts = new Map<number, Map<string, Holder<Tensor>>>();
  /** The memory that a tensor has from a pool. */
  private readonly buffers = new WeakMap<Tensor, Buffer>();
  private readonly pools = { device: new BufferPool(), host: new BufferPool() } as const;
  /** To be read when the step is over: their values as they were made last, by name. */
  private kept = new Map<string, Holder<Tensor> | null>();
  /** Memory of freed tensors whose values are still to be read. */
  private withheld: (Buffer | FileRange)[] = [];
  private readonly live: Record<Memory, number> = { device: 0, host: 0, disk: 0 };
  private readonly most: Record<Memory, number> = { device: 0, host: 0, disk: 0 };
  private microBatch: number | null = null;

  constructor(
    private readonly stage: ProgramStage,
    private readonly backend: Backend<Tensor>,
    private readonly options: StoreOptions,
  ) {}

  /** Counts memory that is held throughout beside tensors: weights in sessions, communication buffers. */
  hold(memory: Memory, bytes: number, what: string): void {
    if (memory === 'device') this.admit(bytes, what);
    this.live[memory] += bytes;
    this.most[memory] = Math.max(this.most[memory], this.live[memory]);
  }

  /** From here on tensors of lifetime `micro` are this micro-batch's. Returns whether it is its first action. */
  enter(microBatch: number | null): boolean {
    this.microBatch = microBatch;
    if (microBatch === null || this.parts.has(microBatch)) return false;
    this.parts.set(microBatch, new Map());
    return true;
  }

  lifetimeOf(name: string): Lifetime {
    return this.stage.tensors[name]?.lifetime ?? 'run';
  }

  memoryOf(name: string): Memory {
    return memoryPlaceOf(this.stage, name);
  }

  /** A tensor's value as bytes, to be read only; undefined where it is not there. */
  valueOf(name: string, microBatch = this.microBatch): Uint8Array | undefined {
    const holder = this.find(name, microBatch);
    return holder && this.valueIn(name, holder);
  }

  has(name: string): boolean {
    return this.find(name) !== undefined;
  }

  /** A tensor that is not on disk. */
  get(name: string): Tensor {
    const holder = this.find(name);
    if (holder === undefined) throw new Error(`tensor ${name} is absent`);
    if (holder instanceof FileRange) throw new Error(`tensor ${name} is on disk`);
    return holder;
  }

  /** A tensor with memory of its own that is not written yet (a backend without values needs none). */
  room(name: string): Tensor {
    const { dtype, localShape } = tensorOf(this.stage, name);
    if (!this.backend.hasValues) return this.backend.tensor(dtype, localShape, NOTHING);
    const bytes = tensorBytes(this.stage, name);
    const pool = this.pools[this.memoryOf(name) === 'host' ? 'host' : 'device'];
    const buffer = pool.take(bytes);
    const tensor = this.backend.tensor(
      dtype,
      localShape,
      buffer.byteLength === bytes ? buffer : buffer.subarray(0, bytes),
    );
    this.buffers.set(tensor, { bytes: buffer, pool });
    return tensor;
  }

  /**
   * Before tensors are made: whether the device's memory may hold them, and `more` bytes beside them for a moment.
   * @throws AutoparError `over-memory` (noPlan)
   */
  expect(names: readonly string[], more = 0): void {
    if (this.options.limit === null) return;
    const fresh = names.filter((name) => this.memoryOf(name) === 'device' && !this.has(name));
    const bytes = fresh.reduce((sum, name) => sum + tensorBytes(this.stage, name), 0);
    const [first] = fresh;
    const others = fresh.length > 1 ? ` and ${fresh.length - 1} more` : '';
    this.admit(
      bytes + more,
      first === undefined ? `the operator that makes ${names[0]}` : `tensor ${first}${others}`,
      first,
    );
  }

  /** An error of the device as it made tensors; where its memory is full, with the first of them and the rank's memory. */
  memoryError(error: unknown, names: readonly string[]): unknown {
    const [name] = names;
    if (!(error instanceof AutoparError) || error.code !== 'over-memory' || name === undefined) return error;
    const { rank } = this.options;
    return new AutoparError(
      error.code,
      'noPlan',
      `rank ${rank} cannot compute tensor ${name} of ${tensorBytes(this.stage, name)} bytes beside the ` +
        `${this.live.device} that it holds: ${error.message}`,
      { ...error.where, tensor: name },
      'compile with --memory SIZE below the free memory of the device, --offload, smaller micro-batches or more devices',
    );
  }

  /** A tensor over `bytes`, defined; on disk, where it has its place there. */
  defineBytes(name: string, bytes: Uint8Array): void {
    this.expect([name]);
    const { dtype, localShape } = tensorOf(this.stage, name);
    const { disk } = this.options;
    if (this.memoryOf(name) === 'disk' && disk) this.define(name, disk.write(name, bytes));
    else this.define(name, this.backend.tensor(dtype, localShape, bytes));
  }

  define(name: string, holder: Holder<Tensor>): void {
    const memory = this.memoryOf(name);
    const before = this.find(name);
    if (before === undefined) this.live[memory] += tensorBytes(this.stage, name);
    else if (before !== holder) this.release(name, before);
    this.most[memory] = Math.max(this.most[memory], this.live[memory]);
    this.place(name)?.set(name, holder);
    if (this.kept.has(name)) this.kept.set(name, holder);
  }

  /** Copies a tensor to another one, in its memory. */
  copy(input: string, output: string): void {
    this.expect([output]);
    const { disk } = this.options;
    const from = this.find(input);
    if (from === undefined) throw new Error(`tensor ${input} is absent`);
    if (this.memoryOf(output) === 'disk' && disk) {
      this.define(output, disk.write(output, this.valueIn(input, from)));
      return;
    }
    const copy = this.room(output);
    if (this.backend.hasValues) this.readInto(input, from, this.backend.bytes(copy));
    this.define(output, copy);
  }

  /**
   * Changes a tensor.
   * @param change its bytes, in place
   */
  rewrite(name: string, change: (bytes: Uint8Array) => void): void {
    const holder = this.find(name);
    if (holder === undefined) throw new Error(`tensor ${name} is absent`);
    const bytes = this.valueIn(name, holder);
    change(bytes);
    if (holder instanceof FileRange) this.options.disk?.overwrite(name, holder, bytes);
  }

  /** Records a temporary peak: bytes held for a moment in a memory in addition to its live bytes. */
  meet(memory: Memory, bytes: number): void {
    this.most[memory] = Math.max(this.most[memory], this.live[memory] + bytes);
  }

  free(name: string): void {
    const holder = this.find(name);
    if (holder === undefined) return;
    this.place(name)?.delete(name);
    this.live[this.memoryOf(name)] -= tensorBytes(this.stage, name);
    this.release(name, holder);
  }

  /** Begins a step: frees tensors of the last one, except those of the run. From here on values of `kept` are stored. */
  begin(kept: readonly string[]): void {
    for (const microBatch of [...this.parts.keys()]) {
      this.enter(microBatch);
      for (const name of [...(this.parts.get(microBatch)?.keys() ?? [])]) this.free(name);
    }
    this.parts.clear();
    this.enter(null);
    for (const name of [...this.whole.keys()]) if (this.lifetimeOf(name) === 'step') this.free(name);
    this.kept = new Map(kept.map((name) => [name, this.whole.get(name) ?? null]));
  }

  /** The last value of a tensor in the step, where it was to be stored; valid until `end`. */
  collectedValue(name: string): Uint8Array | undefined {
    const holder = this.kept.get(name);
    return holder ? this.valueIn(name, holder) : undefined;
  }

  /** Ends a step: `to` takes the value of `from`. Other remaining tensors can be read until the next step begins. */
  end(state: NonNullable<Program['state']>): void {
    for (const memory of this.withheld) this.giveBack(memory);
    this.withheld = [];
    this.kept = new Map();
    this.enter(null);
    const next = state.map(({ from, to }) => [from, to, this.find(from)] as const);
    for (const [from] of next) {
      this.whole.delete(from);
      this.live[this.memoryOf(from)] -= tensorBytes(this.stage, from);
    }
    for (const [from, to, holder] of next) {
      if (holder === undefined) throw new Error(`tensor ${from} is absent`);
      this.define(to, holder);
    }
  }

  /** Bytes that are held in the device's memory now. */
  get deviceBytes(): number {
    return this.live.device;
  }

  /** Most bytes so far, by memory. */
  get peaks(): Readonly<Record<Memory, number>> {
    return { ...this.most };
  }

  private find(name: string, microBatch = this.microBatch): Holder<Tensor> | undefined {
    if (this.lifetimeOf(name) !== 'micro') return this.whole.get(name);
    return microBatch === null ? undefined : this.parts.get(microBatch)?.get(name);
  }

  private valueIn(name: string, holder: Holder<Tensor>): Uint8Array {
    if (!(holder instanceof FileRange)) return this.backend.bytes(holder);
    const bytes = new Uint8Array(holder.bytes);
    this.readInto(name, holder, bytes);
    return bytes;
  }

  private readInto(name: string, holder: Holder<Tensor>, bytes: Uint8Array): void {
    if (holder instanceof FileRange) this.options.disk?.read(name, holder, bytes);
    else bytes.set(this.backend.bytes(holder));
  }

  private place(name: string): Map<string, Holder<Tensor>> | undefined {
    if (this.lifetimeOf(name) !== 'micro') return this.whole;
    return this.microBatch === null ? undefined : this.parts.get(this.microBatch);
  }

  private release(name: string, holder: Holder<Tensor>): void {
    const memory = holder instanceof FileRange ? holder : this.buffers.get(holder);
    if (!memory) return;
    if (this.kept.get(name) === holder) this.withheld.push(memory);
    else this.giveBack(memory);
  }

  private giveBack(memory: Buffer | FileRange): void {
    if (memory instanceof FileRange) this.options.disk?.release(memory);
    else memory.pool.giveBack(memory.bytes);
  }

  private admit(bytes: number, what: string, tensor?: string): void {
    const { limit, rank } = this.options;
    const need = this.live.device + bytes;
    if (limit === null || need <= limit) return;
    throw new AutoparError(
      'over-memory',
      'noPlan',
      `rank ${rank} would hold ${need} bytes with ${what}, and --memory limits its device to ${limit}`,
      tensor === undefined ? {} : { tensor },
      'raise --memory, or compile with --offload, smaller micro-batches or on more devices',
    );
  }
}

const NOTHING = new Uint8Array();
