/**
 * @file The tensors that a rank holds, by lifetime: those of the run and of the step by name, those of a micro-batch by it and
 * name. What is defined here is counted, and what is freed here gives its memory to the results that come after it.
 */
import type { Program, ProgramStage } from '../program/program.js';
import type { Lifetime } from '../program/values.js';
import type { Backend } from './backend.js';
import { BufferPool } from './buffer-pool.js';
import { tensorBytes, tensorOf } from './load-rank.js';

export class TensorStore<Tensor extends object> {
  private readonly whole = new Map<string, Tensor>();
  private readonly parts = new Map<number, Map<string, Tensor>>();
  /** The memory that a tensor has from the pool. */
  private readonly buffers = new WeakMap<Tensor, Uint8Array>();
  private readonly pool = new BufferPool();
  /** To be read when the step is over: their values as they were made last, by name. */
  private kept = new Map<string, Tensor | null>();
  /** Memory of tensors that were freed, and are kept. */
  private withheld: Uint8Array[] = [];
  private live: number;
  private most = 0;
  private microBatch: number | null = null;

  /** `base`: bytes that are there all the time beside tensors (weights in sessions, communication buffers). */
  constructor(
    private readonly stage: ProgramStage,
    private readonly backend: Backend<Tensor>,
    base: number,
  ) {
    this.live = base;
    this.most = base;
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

  find(name: string, microBatch = this.microBatch): Tensor | undefined {
    if (this.lifetimeOf(name) !== 'micro') return this.whole.get(name);
    return microBatch === null ? undefined : this.parts.get(microBatch)?.get(name);
  }

  get(name: string): Tensor {
    const tensor = this.find(name);
    if (tensor === undefined) throw new Error(`tensor ${name} is not there`);
    return tensor;
  }

  /** A tensor with memory of its own that is not written yet (a backend without values needs none). */
  room(name: string): Tensor {
    const { dtype, localShape } = tensorOf(this.stage, name);
    if (!this.backend.hasValues) return this.backend.tensor(dtype, localShape, NOTHING);
    const bytes = tensorBytes(this.stage, name);
    const buffer = this.pool.take(bytes);
    const tensor = this.backend.tensor(
      dtype,
      localShape,
      buffer.byteLength === bytes ? buffer : buffer.subarray(0, bytes),
    );
    this.buffers.set(tensor, buffer);
    return tensor;
  }

  /** A tensor over `bytes`, defined. */
  defineBytes(name: string, bytes: Uint8Array): void {
    const { dtype, localShape } = tensorOf(this.stage, name);
    this.define(name, this.backend.tensor(dtype, localShape, bytes));
  }

  define(name: string, tensor: Tensor): void {
    const before = this.find(name);
    if (before === undefined) this.live += tensorBytes(this.stage, name);
    else if (before !== tensor) this.release(name, before);
    this.most = Math.max(this.most, this.live);
    this.place(name)?.set(name, tensor);
    if (this.kept.has(name)) this.kept.set(name, tensor);
  }

  /** What was there for a moment, beside what is there now. */
  meet(bytes: number): void {
    this.most = Math.max(this.most, this.live + bytes);
  }

  free(name: string): void {
    const tensor = this.find(name);
    if (tensor === undefined) return;
    this.place(name)?.delete(name);
    this.live -= tensorBytes(this.stage, name);
    this.release(name, tensor);
  }

  /** Begins a step: what the last one left goes, but for what lasts the run. From here on `kept` are kept as they are made. */
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

  /** What was kept of the step; valid until `end`. */
  keptTensors(): ReadonlyMap<string, Tensor | null> {
    return this.kept;
  }

  /** Ends a step: what `from` is, `to` is from here on. What is left else stays to be read until the next begins. */
  end(state: NonNullable<Program['state']>): void {
    for (const buffer of this.withheld) this.pool.giveBack(buffer);
    this.withheld = [];
    this.kept = new Map();
    this.enter(null);
    const next = state.map(({ from, to }) => [from, to, this.get(from)] as const);
    for (const [from] of next) {
      this.whole.delete(from);
      this.live -= tensorBytes(this.stage, from);
    }
    for (const [, to, tensor] of next) this.define(to, tensor);
  }

  get peakBytes(): number {
    return this.most;
  }

  private place(name: string): Map<string, Tensor> | undefined {
    if (this.lifetimeOf(name) !== 'micro') return this.whole;
    return this.microBatch === null ? undefined : this.parts.get(this.microBatch);
  }

  private release(name: string, tensor: Tensor): void {
    const buffer = this.buffers.get(tensor);
    if (!buffer) return;
    if (this.kept.get(name) === tensor) this.withheld.push(buffer);
    else this.pool.giveBack(buffer);
  }
}

const NOTHING = new Uint8Array();
