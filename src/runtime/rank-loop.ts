/**
 * @file A rank's steps: feed, run the instruction lists, meet at the barrier; and reads and writes of its state between steps.
 */

import { boxesOf } from '../program/boxes.js';
import { BoxReader, writeBoxes } from '../program/checkpoint-boxes.js';
import type { ProgramTensor } from '../program/program.js';
import { reduceElementwise } from '../program/reduce.js';
import { holders } from '../program/shards.js';
import { AutoparError, type OuterMemory } from '../program/values.js';
import type { Backend } from './backend.js';
import type { Control } from './control.js';
import { type LoadedRank, type LoadedStep, localRank } from './load-rank.js';
import {
  type Fault,
  plainError,
  type RankAnswer,
  type RankCommand,
  type RankSetup,
  type Shards,
  type TraceSpan,
} from './messages.js';
import { tensorBytes, tensorOf } from './stage-tensors.js';
import { Stopwatch } from './statistics.js';
import type { TensorStore } from './tensor-store.js';
import { gives, type Transport, takes } from './transport.js';
import { ValueWatch } from './value-watch.js';

type StepCommand = Extract<RankCommand, { kind: 'step' }>;

/** A span of time: a step of an action has a label; an action without a kind has its phase as its kind. */
interface RanSpan extends Pick<TraceSpan, 'from' | 'until'> {
  readonly kind?: string;
  readonly label?: string;
  readonly heldBytes?: number;
}

/** A loaded rank. Its methods throw Stopped when the stop flag is set. */
export class RankLoop<Tensor extends object> {
  private readonly stopwatch = new Stopwatch();
  private readonly watch = new ValueWatch();
  /** Null where no trace is requested. */
  private spans: TraceSpan[] | null = null;
  private feeds: Shards = {};
  private executed = 0;
  private copiedBefore = 0;
  /** Segment calls whose results had the sizes that the program states. */
  private readonly checked = new Set<LoadedStep<Tensor>>();

  constructor(
    private readonly setup: RankSetup,
    private readonly loaded: LoadedRank<Tensor>,
    private readonly store: TensorStore<Tensor>,
    private readonly backend: Backend<Tensor>,
    private readonly transport: Transport,
    private readonly control: Control,
  ) {}

  async step({ feeds, outputs, collect, measure, check, trace }: StepCommand): Promise<RankAnswer> {
    const { rank, actions, state } = this.setup;
    if (feeds) this.feeds = feeds;
    this.control.barrier(rank);
    const before = process.cpuUsage();
    const from = performance.now();
    this.backend.beginStep?.();
    this.watch.begin(measure, check);
    this.spans = trace ? [] : null;
    this.begin(collect);
    for (const [action, { steps, isLast }] of this.loaded.actions.entries()) {
      const microBatch = actions[action]?.microBatch ?? null;
      this.enter(microBatch);
      await this.run({ action, microBatch, isLast }, steps);
    }
    this.control.barrier(rank);
    const seconds = this.backend.stepSeconds?.() ?? (performance.now() - from) / 1000;
    const { user, system } = process.cpuUsage(before);
    const collected = this.copies(collect, (name) => [this.store.collectedValue(name)]);
    const shards = this.copies(outputs, (name) => this.partsOf(name));
    for (const name of this.watch.unmeasured) this.measure(name);
    this.store.end(state);
    const statistics = this.stopwatch.take(this.store.peaks);
    const { squares, notFinite } = this.watch;
    const processorSeconds = (user + system) / 1e6;
    const spans = this.spans ?? [];
    return { shards, step: { collected, seconds, processorSeconds, statistics, squares, notFinite, spans } };
  }

  /** Copies of the shards of `names`, which last the run, that this rank contributes to whole tensors. */
  read(names: readonly string[]): RankAnswer {
    return { shards: this.copies(names, (name) => [this.store.valueOf(name)]), step: null };
  }

  write(shards: Shards): RankAnswer {
    for (const [name, [shard]] of Object.entries(shards)) if (shard) this.store.defineBytes(name, shard);
    return { shards: {}, step: null };
  }

  /** Writes boxes of state to a file. A failed write is returned as an answer: the rank continues. */
  async save({ file, shards }: Extract<RankCommand, { kind: 'save' }>): Promise<RankAnswer> {
    const { rank } = this.setup;
    const begins = () => this.control.enterNative(rank, 'loading');
    try {
      const digests = await writeBoxes(file, shards, (name) => this.store.valueOf(name) ?? NO_BYTES, begins);
      return { shards: {}, step: null, saved: { digests } };
    } catch (error) {
      if (!(error instanceof AutoparError) || error.exit !== 'cannotWrite') throw error;
      return { shards: {}, step: null, saved: { error: plainError(error) } };
    }
  }

  /** Reads this rank's shards of state from a checkpoint. Throws AutoparError (exit input) naming the tensor. */
  async restore({ folder, tensors }: Extract<RankCommand, { kind: 'restore' }>): Promise<RankAnswer> {
    const { rank, stage, axes } = this.setup;
    const reader = new BoxReader(folder);
    try {
      for (const [name, stored] of Object.entries(tensors)) {
        this.control.enterNative(rank, 'loading');
        const { shape, layout, localShape } = stage.tensors[name] as ProgramTensor;
        const boxes = boxesOf(shape, layout, axes, localRank(this.setup));
        this.store.defineBytes(name, await reader.shard(name, stored, localShape, boxes));
      }
    } finally {
      await reader.close();
    }
    return { shards: {}, step: null };
  }

  private begin(kept: readonly string[]): void {
    const from = performance.now();
    this.store.begin(kept);
    for (const [name, [shard]] of Object.entries(this.feeds))
      if (shard && this.store.lifetimeOf(name) === 'step') this.feed(name, shard);
    this.stopwatch.add('feed', performance.now() - from, 0, 0, 1);
  }

  /** Before an action: in the first of its micro-batch, the inputs' parts of it are there. */
  private enter(microBatch: number | null): void {
    if (!this.store.enter(microBatch) || microBatch === null) return;
    const from = performance.now();
    for (const [name, shards] of Object.entries(this.feeds)) {
      const shard = shards[microBatch];
      if (shard && this.store.lifetimeOf(name) === 'micro') this.feed(name, shard);
    }
    const { microBatch: index } = this.setup.stage;
    if (index !== undefined) this.store.defineBytes(index, new Uint8Array(BigInt64Array.of(BigInt(microBatch)).buffer));
    this.stopwatch.add('feed', performance.now() - from, 0, 0, 0);
  }

  private feed(name: string, shard: Uint8Array): void {
    this.watch.check(name, tensorOf(this.setup.stage, name).dtype, 'input', () => shard);
    this.store.defineBytes(name, shard);
  }

  private measure(name: string): void {
    this.watch.measure(name, tensorOf(this.setup.stage, name).dtype, () =>
      this.holds(name) ? this.store.valueOf(name) : undefined,
    );
  }

  /** Notes when an action, one pass of it, or a step of it ran. */
  private span(action: number, { from, until, kind, label, heldBytes }: RanSpan): void {
    const { phase = '', chunk = 0, microBatch = null } = this.setup.actions[action] ?? {};
    const { timeOrigin } = performance;
    this.spans?.push({
      kind: kind ?? phase,
      label: label ?? null,
      chunk,
      microBatch,
      from: timeOrigin + from,
      until: timeOrigin + until,
      heldBytes: heldBytes ?? null,
    });
  }

  private async run(
    { action, microBatch, isLast }: { action: number; microBatch: number | null; isLast: boolean },
    steps: readonly LoadedStep<Tensor>[],
  ): Promise<void> {
    let current = 0;
    const began = performance.now();
    let pass = null as RanSpan | null;
    for (let index = 0; index < steps.length; index++) {
      const step = steps[index] as LoadedStep<Tensor>;
      if (step.kind === 'start' && step.last && !isLast) continue;
      const { half = 0 } = step;
      if (half !== current && microBatch !== null) this.enter(microBatch + half);
      current = half;
      this.control.begin(this.setup.rank, action, index);
      if (this.setup.fault) failOnPurpose(this.setup.fault, this.setup.rank, this.executed);
      this.executed++;
      if (step.kind === 'free') {
        for (const name of step.tensors) {
          this.measure(name);
          this.store.free(name);
        }
        continue;
      }
      const from = performance.now();
      const blocked = this.transport.blocked();
      const bytes = step.kind === 'compute' ? await this.compute(step) : this.act(step);
      const kind = this.kindOf(step);
      const count = step.kind === 'wait' ? 0 : 1;
      const copied = this.copied();
      const until = performance.now();
      const milliseconds = until - from - copied;
      const waited = this.transport.blocked() - blocked;
      const temporary = step.kind === 'compute' && step.memory === 'device' ? step.temporaryBytes : 0;
      this.span(action, { from, until, kind, label: step.label, heldBytes: this.store.deviceBytes + temporary });
      if (step.kind === 'recv' && waited > 0) this.span(action, { from, until: from + waited, kind: 'bubble' });
      if (step.kind === 'compute' && step.pass !== undefined) {
        if (pass && pass.kind !== step.pass) this.span(action, pass);
        pass = { from: pass?.kind === step.pass ? pass.from : from, until, kind: step.pass };
      }
      this.stopwatch.add(kind, milliseconds, waited, bytes, count);
      if (copied > 0) this.stopwatch.add('copy', copied, 0, 0, 1);
    }
    this.span(action, pass ?? { from: began, until: performance.now() });
  }

  private async compute(step: Extract<LoadedStep<Tensor>, { kind: 'compute' }>): Promise<number> {
    const inputs = step.inputs.map((name) => this.store.get(name));
    if (step.memory === 'device') this.store.expect(step.outputs, step.temporaryBytes);
    const room = this.backend.writesInPlace ? step.outputs.map((name) => this.store.room(name)) : null;
    this.control.enterNative(this.setup.rank, 'computing');
    const results = await step.segment.run(inputs, room).catch((error: unknown) => {
      throw this.store.memoryError(error, step.outputs);
    });
    this.control.enter(this.setup.rank, 'running');
    const unchecked = !this.checked.has(step);
    for (const [index, name] of step.outputs.entries()) {
      const tensor = results[index] as Tensor;
      if (unchecked) this.check(name, tensor);
      this.watch.check(name, tensorOf(this.setup.stage, name).dtype, step.label, () => this.backend.bytes(tensor));
      this.store.define(name, tensor);
    }
    this.store.meet(step.memory, step.temporaryBytes);
    if (unchecked) this.checked.add(step);
    return 0;
  }

  /** Milliseconds of copies to and from the device since the last call. */
  private copied(): number {
    const all = this.backend.copied?.() ?? 0;
    const since = all - this.copiedBefore;
    this.copiedBefore = all;
    return since;
  }

  /** Gives the bytes sent. */
  private act(step: Exclude<LoadedStep<Tensor>, { kind: 'compute' | 'free' }>): number {
    switch (step.kind) {
      case 'accumulate':
        return this.accumulate(step.input, step.output);
      case 'move':
        return this.move(step.input, step.output);
      case 'recv':
        this.store.defineBytes(step.tensor, this.transport.receive(step.call));
        return 0;
      case 'send':
        this.transport.send(step.call, this.backend.bytes(this.store.get(step.tensor)));
        return step.call.bytes;
      case 'start':
        return this.transport.start(
          step.call,
          gives(step.call) ? this.backend.bytes(this.store.get(step.input)) : NO_BYTES,
        );
      case 'wait': {
        if (!takes(step.call)) {
          this.transport.wait(step.call, NO_BYTES);
          return 0;
        }
        this.store.expect([step.output]);
        const result = this.store.room(step.output);
        this.transport.wait(step.call, this.backend.bytes(result));
        this.store.define(step.output, result);
        return 0;
      }
    }
  }

  /** The first part of a step begins the sum anew. */
  private accumulate(input: string, output: string): number {
    const isFirst = !this.store.has(output);
    const [from, memory] = [this.store.memoryOf(input), this.store.memoryOf(output)];
    const { dtype } = tensorOf(this.setup.stage, output);
    const bytes = tensorBytes(this.setup.stage, output);
    if (isFirst) this.store.copy(input, output);
    else if (this.backend.hasValues) {
      const part = this.backend.bytes(this.store.get(input));
      this.store.rewrite(output, (sum) => reduceElementwise(dtype, 'sum', [sum, part], sum));
    }
    if (from === memory || memory === 'device') return 0;
    const loaded = memory === 'disk' && !isFirst ? bytes : 0;
    this.pass(memory, bytes + loaded);
    this.stopwatch.moved(memory, bytes, loaded);
    return 0;
  }

  private move(input: string, output: string): number {
    const [from, to] = [this.store.memoryOf(input), this.store.memoryOf(output)];
    const bytes = tensorBytes(this.setup.stage, output);
    this.store.copy(input, output);
    if (to !== 'device') {
      this.pass(to, bytes);
      this.stopwatch.moved(to, bytes, 0);
    } else if (from !== 'device') {
      this.pass(from, bytes);
      this.stopwatch.moved(from, 0, bytes);
    }
    return 0;
  }

  /** Waits where tensors have no values for as long as the bytes take. */
  private pass(memory: OuterMemory, bytes: number): void {
    this.backend.passMove?.(memory, bytes);
  }

  /** As statistics name it. */
  private kindOf(step: Exclude<LoadedStep<Tensor>, { kind: 'free' }>): string {
    if (step.kind === 'start' || step.kind === 'wait') return step.call.collective.kind;
    if (step.kind !== 'move') return step.kind;
    const to = this.store.memoryOf(step.output);
    return to === 'device' ? `load(${this.store.memoryOf(step.input)})` : `store(${to})`;
  }

  /** An output's value, or that of each micro-batch. */
  private partsOf(name: string): readonly (Uint8Array | undefined)[] {
    if (this.store.lifetimeOf(name) !== 'micro') return [this.store.valueOf(name)];
    const { microBatches } = this.setup.outputs.find(
      ({ stage, tensor }) => stage === this.setup.stageIndex && tensor === name,
    ) ?? { microBatches: undefined };
    return Array.from({ length: microBatches?.count ?? 0 }, (_, part) => this.store.valueOf(name, part));
  }

  /** Copies of the shards that whole tensors are assembled from. */
  private copies(
    names: readonly string[],
    valuesOf: (name: string) => readonly (Uint8Array | undefined)[],
  ): Record<string, readonly Uint8Array[]> {
    const result: Record<string, readonly Uint8Array[]> = {};
    for (const name of names) {
      const values = this.holds(name) ? valuesOf(name).filter((value) => value !== undefined) : [];
      if (values.length > 0) result[name] = values.map((value) => value.slice());
    }
    return result;
  }

  /** Whether this rank's shard of a tensor is one that the whole is assembled from. */
  private holds(name: string): boolean {
    const layout = this.setup.stage.tensors[name]?.layout;
    return !layout || holders(layout, this.setup.axes).includes(localRank(this.setup));
  }

  private check(name: string, tensor: Tensor): void {
    if (!this.backend.hasValues) return;
    const expected = tensorBytes(this.setup.stage, name);
    const given = this.backend.bytes(tensor).byteLength;
    if (given !== expected) throw new Error(`tensor ${name} has ${given} bytes, and ${expected} were planned`);
  }
}

const NO_BYTES = new Uint8Array();

function failOnPurpose(fault: Fault, rank: number, executed: number): void {
  if (fault.rank !== rank || fault.instruction !== executed) return;
  if (fault.kind === 'throw') throw new Error('failed on purpose');
  if (fault.kind === 'exit') process.exit(1);
  for (const cell = new Int32Array(new SharedArrayBuffer(4)); ; ) Atomics.wait(cell, 0, 0);
}
