/**
 * @file Whether every tensor of a program exists when it is read: each stage's actions in their order, with tensors of the
 * lifetimes that program.json states. The runtime handles them in the same way.
 */
import type { Lifetime } from '../ir/graph.js';
import type { Instruction, Program, ProgramAction, StartInstruction } from './program.js';

/** The first instruction of a stage that reads a missing tensor, or makes one that it must not, in one sentence; else null. */
export function lifetimeFlaw(program: Program, stage: number): string | null {
  const walk = new LifetimeWalk(program, stage);
  const actions = program.schedule.filter((action) => action.stage === stage);
  const lastRuns = new Set(new Map(actions.map((action) => [action.phase, action])).values());
  for (const action of actions) {
    const flaw = walk.run(action, lastRuns.has(action));
    if (flaw !== null) return `phase ${action.phase}: ${flaw}`;
  }
  return walk.end();
}

class LifetimeWalk {
  /** Tensors of the step, and those of the run that instructions may free. */
  private readonly live = new Set<string>();
  private readonly ofMicroBatch = new Map<number, Set<string>>();
  /** Given to every micro-batch. */
  private readonly parts: readonly string[];
  private readonly replaced: ReadonlySet<string>;
  /** By tensor of the step that micro-batches make anew: which of them made it last. */
  private readonly makers = new Map<string, number>();
  /** Begun in the last run of a list, and waited for in another. */
  private readonly ahead = new Map<number, StartInstruction>();
  private action: ProgramAction | null = null;
  /** The instruction's micro-batch: the action's, or the next one for the second half. */
  private microBatch: number | null = null;

  constructor(
    private readonly program: Program,
    private readonly index: number,
  ) {
    const inputs = program.inputs.filter((input) => input.stage === index).map((input) => input.tensor);
    const { microBatch } = this.stage;
    if (microBatch !== undefined) inputs.push(microBatch);
    this.parts = inputs.filter((name) => this.lifetimeOf(name) === 'micro');
    this.replaced = new Set((program.state ?? []).flatMap((pair) => (pair.stage === index ? [pair.to] : [])));
    for (const name of inputs) if (this.lifetimeOf(name) === 'step') this.live.add(name);
    for (const name of this.replaced) this.live.add(name);
  }

  /** @param isLast of the list in the step */
  run(action: ProgramAction, isLast: boolean): string | null {
    this.action = action;
    this.enter(action.microBatch);
    const list = this.stage.phases[action.phase] ?? [];
    const begun = new Map<number, StartInstruction>();
    for (const [position, instruction] of list.entries()) {
      const { half } = instruction;
      if (half !== undefined && action.microBatch === null)
        return `instruction ${position}: it belongs to the second half of a micro-batch, and the phase runs once a step`;
      if (action.microBatch !== null) this.enter(action.microBatch + (half ?? 0));
      if (instruction.kind === 'start') {
        if (instruction.last && !isLast) continue;
        (instruction.last ? this.ahead : begun).set(instruction.id, instruction);
      }
      const flaw = this.execute(instruction, begun);
      if (flaw !== null) return `instruction ${position}: ${flaw}`;
    }
    return null;
  }

  private enter(microBatch: number | null): void {
    this.microBatch = microBatch;
    if (microBatch !== null && !this.ofMicroBatch.has(microBatch))
      this.ofMicroBatch.set(microBatch, new Set(this.parts));
  }

  /** Checks the results that the step must leave: the next values of state, and outputs. */
  end(): string | null {
    for (const { stage, from, to } of this.program.state ?? [])
      if (stage === this.index && !this.live.has(from))
        return `state ${to} takes its next value from ${from}, which no instruction computes`;
    for (const { name, stage, tensor, microBatches } of this.program.outputs) {
      if (stage !== this.index || this.lifetimeOf(tensor) === 'run') continue;
      const missing = `output ${name} is tensor ${tensor}, which no instruction computes`;
      if (!microBatches && !this.live.has(tensor)) return missing;
      for (let part = 0; part < (microBatches?.count ?? 0); part++)
        if (!this.ofMicroBatch.get(part)?.has(tensor)) return `${missing} in micro-batch ${part}`;
    }
    return null;
  }

  private execute(instruction: Instruction, begun: ReadonlyMap<number, StartInstruction>): string | null {
    switch (instruction.kind) {
      case 'compute':
        return this.read(instruction.inputs) ?? this.write(instruction.outputs);
      case 'start':
        return this.read([instruction.input]);
      case 'wait': {
        const start = begun.get(instruction.id) ?? this.ahead.get(instruction.id);
        if (!start) return `collective ${instruction.id} is waited for before it begins`;
        return this.read([start.input]) ?? this.write([start.output]);
      }
      case 'move':
        return this.read([instruction.input]) ?? this.write([instruction.output]);
      case 'accumulate':
        return this.read([instruction.input]) ?? this.write([instruction.output], true);
      case 'send':
        return this.read([instruction.tensor]);
      case 'recv':
        return this.write([instruction.tensor]);
      case 'free':
        return this.read(instruction.tensors) ?? this.free(instruction.tensors);
    }
  }

  private read(names: readonly string[]): string | null {
    for (const name of names) {
      const misplaced = this.misplaced(name);
      if (misplaced !== null) return misplaced;
      const isFixed = this.lifetimeOf(name) === 'run' && !this.replaced.has(name);
      if (!isFixed && !this.place(name).has(name)) return `tensor ${name} is read where it is not live`;
      const maker = this.makers.get(name);
      if (maker !== undefined && this.microBatch !== null && maker !== this.microBatch)
        return `tensor ${name} is read in micro-batch ${this.microBatch}, and micro-batch ${maker} has overwritten it`;
    }
    return null;
  }

  /** @param isSum it is added to where it is there */
  private write(names: readonly string[], isSum = false): string | null {
    for (const name of names) {
      const misplaced = this.misplaced(name);
      if (misplaced !== null) return misplaced;
      if (this.lifetimeOf(name) === 'run') return `tensor ${name} lives for the run, and is computed again`;
      const place = this.place(name);
      if (!isSum && place.has(name) && !this.isLeftBefore(name)) return `tensor ${name} is made a second time`;
      place.add(name);
      if (!isSum && this.microBatch !== null && this.lifetimeOf(name) === 'step')
        this.makers.set(name, this.microBatch);
    }
    return null;
  }

  private free(names: readonly string[]): string | null {
    for (const name of names) {
      const lasts = this.lifetimeOf(name) === 'run' && !(this.replaced.has(name) && this.action?.microBatch === null);
      if (lasts) return `tensor ${name} lives for the run, and is freed`;
      if (!this.place(name).delete(name)) return `tensor ${name} is freed twice`;
    }
    return null;
  }

  /** Whether an earlier micro-batch may have left the tensor to the step: then the next one computes it anew. */
  private isLeftBefore(name: string): boolean {
    return this.action?.microBatch !== null && this.lifetimeOf(name) !== 'micro';
  }

  private misplaced(name: string): string | null {
    const isOnce = this.action?.microBatch === null;
    return isOnce && this.lifetimeOf(name) === 'micro'
      ? `tensor ${name} belongs to a micro-batch, and the phase runs once a step`
      : null;
  }

  private place(name: string): Set<string> {
    const micro = this.microBatch === null ? undefined : this.ofMicroBatch.get(this.microBatch);
    return this.lifetimeOf(name) === 'micro' && micro ? micro : this.live;
  }

  /** A coordinate is not a declared tensor. */
  private lifetimeOf(name: string): Lifetime {
    return this.stage.tensors[name]?.lifetime ?? 'run';
  }

  private get stage(): Program['stages'][number] {
    return this.program.stages[this.index] as Program['stages'][number];
  }
}
