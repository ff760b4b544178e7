/**
 * @file A rank's steps: feed, run the instruction lists, meet at the barrier.
 */
import { holders } from '../program/blocks.js';
import { reduceBlocks } from '../program/reduce.js';
import type { DType } from '../program/values.js';
import type { Backend } from './backend.js';
import { BufferPool } from './buffer-pool.js';
import type { Control } from './control.js';
import { type LoadedRank, localRank, type Step, tensorBytes, tensorOf } from './load-rank.js';
import type { Fault, RankSetup } from './messages.js';
import { MemoryCount, type RankStatistics, Stopwatch } from './statistics.js';
import { bytesSent, type Transport } from './transport.js';

export interface RankRun {
  readonly stepSeconds: readonly number[];
  readonly statistics: RankStatistics;
  /** Blocks that this rank gives to the whole outputs and collected tensors, copied; of outputs one per micro-batch. */
  readonly outputs: Readonly<Record<string, readonly Uint8Array[]>>;
  readonly collected: Readonly<Record<string, Uint8Array>>;
  /** Processor time of the whole process in a counted step, on average: of all ranks together. */
  readonly processorSeconds: number;
  /** Values of outputs that are one number, step by step. */
  readonly history: Readonly<Record<string, readonly number[]>>;
}

/** Runs warm-up and counted steps. `onStep` is called after each (counted or not). Throws Stopped when told to stop. */
export async function runRank<Tensor>(
  setup: RankSetup,
  loaded: LoadedRank<Tensor>,
  backend: Backend<Tensor>,
  transport: Transport,
  control: Control,
  onStep: (step: number) => void,
): Promise<RankRun> {
  const { rank, steps, warmup } = setup;
  const memory = new MemoryCount(loaded.baseBytes);
  const stopwatch = new Stopwatch();
  const kept = new Map<string, Tensor>();
  const stepSeconds: number[] = [];
  const history: Record<string, number[]> = {};
  const loop = new RankLoop(setup, backend, transport, control, memory, stopwatch);
  let before = process.cpuUsage();
  for (let step = 0; step < warmup + steps; step++) {
    if (step === warmup) stopwatch.reset();
    control.barrier(rank);
    if (step === warmup) before = process.cpuUsage();
    const from = performance.now();
    loop.begin(loaded.constants);
    if (step === warmup + steps - 1) loop.keepIn(kept);
    for (const [action, list] of loaded.actions.entries()) {
      loop.enter(action);
      await loop.run(action, list);
      loop.leave(action);
    }
    control.barrier(rank);
    if (step >= warmup) {
      stepSeconds.push((performance.now() - from) / 1000);
      for (const [name, value] of loop.numbers(ownOutputs(setup))) history[name] = [...(history[name] ?? []), value];
    }
    onStep(step);
  }
  const { user, system } = process.cpuUsage(before);
  const outputs = loop.giveOutputs();
  const collected = loop.give(setup.collect, kept);
  const statistics = stopwatch.statistics(steps, memory.peakBytes);
  return { stepSeconds, processorSeconds: (user + system) / 1e6 / steps, outputs, collected, history, statistics };
}

/** Output tensors of the rank's stage. */
function ownOutputs(setup: RankSetup): readonly string[] {
  return setup.outputs.filter((output) => output.stage === setup.stageIndex).map((output) => output.tensor);
}

const READERS: Readonly<Partial<Record<DType, (view: DataView) => number>>> = {
  float32: (view) => view.getFloat32(0, true),
  float64: (view) => view.getFloat64(0, true),
};

class RankLoop<Tensor> {
  /** Live tensors of the step by name. */
  private tensors = new Map<string, Tensor>();
  /** Live tensors of the micro-batches under way: a pipeline's stage is in the middle of several. */
  private readonly inMicroBatch = new Map<number, Map<string, Tensor>>();
  /** The micro-batch of the action that runs; null where it runs once a step. */
  private microBatch: number | null = null;
  /** By micro-batch: the last of its actions. */
  private readonly lastActions: ReadonlyMap<number | null, number>;
  private readonly buffers = new BufferPool();
  private kept: Map<string, Tensor> | null = null;
  private readonly keepNames: ReadonlySet<string>;
  /** Outputs that micro-batches make parts of: this step's parts so far. */
  private readonly parts: ReadonlyMap<string, Uint8Array[]>;
  /** What is read when a step is over, and micro-batches make no parts of. */
  private readonly left: readonly string[];
  private executed = 0;
  /** The last checked results: their sizes are compared with the program's once per segment call. */
  private readonly checked = new Set<Step<Tensor>>();

  constructor(
    private readonly setup: RankSetup,
    private readonly backend: Backend<Tensor>,
    private readonly transport: Transport,
    private readonly control: Control,
    private readonly memory: MemoryCount,
    private readonly stopwatch: Stopwatch,
  ) {
    this.keepNames = new Set(setup.collect);
    const cut = setup.outputs.filter(({ stage, microBatches }) => stage === setup.stageIndex && microBatches);
    this.parts = new Map(cut.map(({ tensor }) => [tensor, []]));
    this.lastActions = new Map(setup.actions.map(({ microBatch }, index) => [microBatch, index]));
    const left = [...ownOutputs(setup), ...setup.state.map(({ from }) => from)];
    this.left = left.filter((name) => !this.parts.has(name));
  }

  /** Starts a step: only constants and inputs are live. */
  begin(constants: ReadonlyMap<string, Tensor>): void {
    const from = performance.now();
    this.carryOver(constants);
    for (const name of this.tensors.keys()) this.buffers.giveBack(name);
    this.tensors = new Map(constants);
    this.microBatch = null;
    this.memory.clear();
    for (const parts of this.parts.values()) parts.length = 0;
    for (const [name, [bytes, ...others]] of Object.entries(this.setup.feeds))
      if (bytes && others.length === 0) this.defineInput(name, bytes);
    this.stopwatch.add('feed', performance.now() - from, 0, 0, 1);
  }

  /** Before an action: its micro-batch is the one that tensors belong to; in its first, the inputs' parts of it are there. */
  enter(action: number): void {
    const { microBatch = null } = this.setup.actions[action] ?? {};
    this.microBatch = microBatch;
    if (microBatch === null || this.inMicroBatch.has(microBatch)) return;
    const from = performance.now();
    this.inMicroBatch.set(microBatch, new Map());
    for (const [name, blocks] of Object.entries(this.setup.feeds)) {
      const bytes = blocks[microBatch];
      if (blocks.length > 1 && bytes) this.defineInput(name, bytes);
    }
    const { microBatch: index } = this.setup.stage;
    if (index !== undefined) this.defineInput(index, new Uint8Array(BigInt64Array.of(BigInt(microBatch)).buffer));
    this.stopwatch.add('feed', performance.now() - from, 0, 0, 0);
  }

  /** Behind an action: after the last of a micro-batch its parts of the outputs are kept, and the rest of it goes. */
  leave(action: number): void {
    const { microBatch } = this;
    if (microBatch === null || this.lastActions.get(microBatch) !== action) return;
    const made = this.inMicroBatch.get(microBatch) ?? new Map<string, Tensor>();
    for (const [name, parts] of this.parts) {
      const tensor = made.get(name);
      if (!tensor) continue;
      const copy = this.backend.bytes(tensor).slice();
      parts[microBatch] = copy;
      this.memory.define(`${name}#${microBatch}`, copy.byteLength);
    }
    for (const name of this.left) {
      const tensor = made.get(name);
      if (!tensor) continue;
      const { dtype, localShape } = tensorOf(this.setup.stage, name);
      this.tensors.set(name, this.backend.tensor(dtype, localShape, this.backend.bytes(tensor).slice()));
      this.memory.define(name, tensorBytes(this.setup.stage, name));
    }
    for (const name of made.keys()) this.free(name);
    this.inMicroBatch.delete(microBatch);
  }

  /** What the last step left of the state is what this one begins with: copied over the value that it had before. */
  private carryOver(constants: ReadonlyMap<string, Tensor>): void {
    for (const { from, to } of this.setup.state) {
      const [left, kept] = [this.tensors.get(from), constants.get(to)];
      if (left !== undefined && kept !== undefined) this.backend.bytes(kept).set(this.backend.bytes(left));
    }
  }

  /** The values of those tensors that are one floating-point number. */
  numbers(names: readonly string[]): readonly (readonly [string, number])[] {
    return names.flatMap((name) => {
      const { dtype, localShape } = tensorOf(this.setup.stage, name);
      const tensor = this.tensors.get(name);
      const read = localShape.every((size) => size === 1) ? READERS[dtype] : undefined;
      if (tensor === undefined || !read) return [];
      const bytes = this.backend.bytes(tensor);
      return [[name, read(new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength))] as const];
    });
  }

  /** From here on tensors to collect are kept in `kept` as they are defined. */
  keepIn(kept: Map<string, Tensor>): void {
    this.kept = kept;
    for (const name of this.keepNames) {
      const tensor = this.tensors.get(name);
      if (tensor) kept.set(name, tensor);
    }
  }

  async run(action: number, steps: readonly Step<Tensor>[]): Promise<void> {
    for (let index = 0; index < steps.length; index++) {
      this.control.begin(this.setup.rank, action, index);
      if (this.setup.fault) failOnPurpose(this.setup.fault, this.setup.rank, this.executed);
      this.executed++;
      const step = steps[index] as Step<Tensor>;
      if (step.kind === 'free') {
        for (const name of step.tensors) this.free(name);
        continue;
      }
      const from = performance.now();
      const blocked = this.transport.blocked();
      const kind = 'call' in step ? step.call.collective.kind : step.kind;
      const isFirst = (this.microBatch ?? 0) === 0;
      const bytes =
        step.kind === 'compute'
          ? await this.compute(step)
          : step.kind === 'accumulate'
            ? this.accumulate(step, isFirst)
            : this.communicate(step);
      const count = step.kind === 'wait' ? 0 : 1;
      this.stopwatch.add(kind, performance.now() - from, this.transport.blocked() - blocked, bytes, count);
    }
  }

  /** What this rank contributes to the outputs. */
  giveOutputs(): Record<string, readonly Uint8Array[]> {
    const whole = this.give(
      ownOutputs(this.setup).filter((name) => !this.parts.has(name)),
      this.tensors,
    );
    const result: Record<string, readonly Uint8Array[]> = {};
    for (const [name, block] of Object.entries(whole)) result[name] = [block];
    for (const [name, parts] of this.parts) if (this.holds(name)) result[name] = parts;
    return result;
  }

  /** Whether this rank's block of a tensor is one that the whole is put together from. */
  private holds(name: string): boolean {
    const layout = this.setup.stage.tensors[name]?.layout;
    return !layout || holders(layout, this.setup.axes).includes(localRank(this.setup));
  }

  private accumulate({ input, output }: Extract<Step<Tensor>, { kind: 'accumulate' }>, isFirst: boolean): number {
    const part = this.backend.bytes(this.get(input));
    if (isFirst) {
      const sum = this.buffers.take(output, part.byteLength);
      sum.set(part);
      const { dtype, localShape } = tensorOf(this.setup.stage, output);
      this.tensors.set(output, this.backend.tensor(dtype, localShape, sum));
      this.memory.define(output, part.byteLength);
      if (this.kept && this.keepNames.has(output)) this.kept.set(output, this.get(output));
      return 0;
    }
    const { dtype } = tensorOf(this.setup.stage, output);
    const sum = this.backend.bytes(this.get(output));
    reduceBlocks(dtype, 'sum', [sum, part], sum);
    return 0;
  }

  /** Copies of the blocks of `names` that this rank contributes to whole tensors. */
  give(names: readonly string[], from: ReadonlyMap<string, Tensor>): Record<string, Uint8Array> {
    const result: Record<string, Uint8Array> = {};
    for (const name of names) {
      const tensor = from.get(name);
      if (tensor && this.holds(name)) result[name] = this.backend.bytes(tensor).slice();
    }
    return result;
  }

  private async compute(step: Extract<Step<Tensor>, { kind: 'compute' }>): Promise<number> {
    const inputs = step.inputs.map((name) => this.get(name));
    const room = this.backend.writesInPlace ? step.outputs.map((name) => this.room(name)) : null;
    this.control.enterNative(this.setup.rank, 'computing');
    const results = await step.segment.run(inputs, room);
    this.control.enter(this.setup.rank, 'running');
    const unchecked = !this.checked.has(step);
    for (const [index, name] of step.outputs.entries()) {
      const tensor = results[index] as Tensor;
      if (unchecked) this.check(name, tensor);
      this.define(name, tensor);
    }
    this.memory.meet(step.temporaryBytes);
    if (unchecked) this.checked.add(step);
    return 0;
  }

  /** Gives the bytes sent. */
  private communicate(step: Exclude<Step<Tensor>, { kind: 'compute' | 'accumulate' | 'free' }>): number {
    if (step.kind === 'recv') {
      this.defineBytes(step.tensor, this.transport.receive(step.label, step.peer));
      return 0;
    }
    if (step.kind === 'send') {
      const block = this.backend.bytes(this.get(step.tensor));
      this.transport.send(step.label, step.peer, block);
      return block.byteLength;
    }
    if (step.kind === 'start') {
      this.transport.start(step.call, this.backend.bytes(this.get(step.input)));
      return bytesSent(step.call);
    }
    const result = this.buffers.take(this.keyOf(step.output), step.call.outputBytes);
    this.transport.wait(step.call, result);
    this.defineBytes(step.output, result);
    return 0;
  }

  /** A tensor with memory of its own that is not written yet. */
  private room(name: string): Tensor {
    const { dtype, localShape } = tensorOf(this.setup.stage, name);
    return this.backend.tensor(
      dtype,
      localShape,
      this.buffers.take(this.keyOf(name), tensorBytes(this.setup.stage, name)),
    );
  }

  private get(name: string): Tensor {
    const tensor = this.ofMicroBatch()?.get(name) ?? this.tensors.get(name);
    if (tensor === undefined) throw new Error(`tensor ${name} is not there`);
    return tensor;
  }

  private defineInput(name: string, bytes: Uint8Array): void {
    const { dtype, localShape } = tensorOf(this.setup.stage, name);
    this.define(name, this.backend.tensor(dtype, localShape, bytes));
  }

  private defineBytes(name: string, bytes: Uint8Array): void {
    const { dtype, localShape } = tensorOf(this.setup.stage, name);
    this.define(name, this.backend.tensor(dtype, localShape, bytes));
  }

  private ofMicroBatch(): Map<string, Tensor> | undefined {
    return this.microBatch === null ? undefined : this.inMicroBatch.get(this.microBatch);
  }

  /** What memory and statistics call a tensor that the running action defines. */
  private keyOf(name: string): string {
    return this.microBatch === null ? name : `${this.microBatch} ${name}`;
  }

  private define(name: string, tensor: Tensor): void {
    (this.ofMicroBatch() ?? this.tensors).set(name, tensor);
    this.memory.define(this.keyOf(name), tensorBytes(this.setup.stage, name));
    if (this.kept && this.keepNames.has(name)) this.kept.set(name, tensor);
  }

  private free(name: string): void {
    const key = this.ofMicroBatch()?.delete(name) ? this.keyOf(name) : name;
    if (key === name) this.tensors.delete(name);
    this.memory.free(key);
    if (!this.kept || !this.keepNames.has(name)) this.buffers.giveBack(key);
  }

  private check(name: string, tensor: Tensor): void {
    const expected = tensorBytes(this.setup.stage, name);
    const given = this.backend.bytes(tensor).byteLength;
    if (given !== expected)
      throw new Error(`tensor ${name} came out with ${given} bytes where ${expected} were planned`);
  }
}

function failOnPurpose(fault: Fault, rank: number, executed: number): void {
  if (fault.rank !== rank || fault.instruction !== executed) return;
  if (fault.kind === 'throw') throw new Error('failed on purpose');
  if (fault.kind === 'exit') process.exit(1);
  for (const cell = new Int32Array(new SharedArrayBuffer(4)); ; ) Atomics.wait(cell, 0, 0);
}
