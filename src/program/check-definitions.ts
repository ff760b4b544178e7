/**
 * @file Whether every tensor is there when it is read, and made once: a walk over the actions of a stage as the runtime runs them.
 *
 * A tensor belongs to a micro-batch, or to the step: sums over micro-batches, what a list that runs once a step makes, inputs that
 * are not cut into micro-batches. Lists and micro-batches that begin with the same tensors end with the same ones, so each is walked
 * once, however many micro-batches there are.
 */
import type { Instruction, Program, ProgramStage } from './program.js';

/** The first tensor that is read where it is not there, or made where it is, in a sentence; null when there is none. */
export function checkDefinitions(program: Program): string | null {
  for (const index of program.stages.keys()) {
    const problem = new StageWalk(program, index).run();
    if (problem !== null) return `stage ${index}: ${problem}`;
  }
  return null;
}

/** Tensors that are there; never changed, so that equal walks find the same object. */
type Live = ReadonlySet<string>;

interface Scopes {
  readonly ofStep: Live;
  readonly ofMicroBatch: Live;
}

/** What a list does to the tensors around it. */
interface Effects {
  /** Read before the list makes them, with the instruction; null: an accumulate reads it where it is not the first. */
  readonly needs: readonly { readonly tensor: string; readonly at: number; readonly isSum: boolean }[];
  /** Freed, and not made here. */
  readonly frees: readonly { readonly tensor: string; readonly at: number }[];
  /** Made, and not freed here, or freed and made again. */
  readonly makes: readonly { readonly tensor: string; readonly at: number; readonly isSum: boolean }[];
}

const NONE: Live = new Set();

class StageWalk {
  private readonly stage: ProgramStage;
  /** In every step. */
  private readonly always: Live;
  private readonly effects = new Map<string, Effects>();
  private readonly walked = new Map<Effects, Map<Live, Map<Live, Scopes>>>();

  constructor(
    private readonly program: Program,
    private readonly index: number,
  ) {
    this.stage = program.stages[index] as ProgramStage;
    this.always = new Set([...Object.keys(this.stage.coordinates), ...Object.keys(this.stage.weights)]);
  }

  run(): string | null {
    try {
      for (const [phase, list] of Object.entries(this.stage.phases)) this.effects.set(phase, effectsOf(phase, list));
      this.walk();
      return null;
    } catch (error) {
      if (error instanceof Undefined) return error.message;
      throw error;
    }
  }

  private walk(): void {
    const { program, stage, index } = this;
    const here = <T extends { readonly stage: number }>(list: readonly T[]) =>
      list.filter((one) => one.stage === index);
    const inputs = here(program.inputs);
    const fed = (isCut: boolean) =>
      inputs.flatMap(({ tensor, microBatches }) => ((microBatches !== undefined) === isCut ? [tensor] : []));
    const first: Live = new Set([...fed(true), ...(stage.microBatch === undefined ? [] : [stage.microBatch])]);
    const left = [
      ...here(program.outputs),
      ...here(program.state ?? []).map(({ from }) => ({ tensor: from, microBatches: undefined })),
    ];
    const actions = here(program.schedule);
    const lastOf = new Map(actions.map(({ microBatch }, at) => [microBatch, at]));
    const microBatches = new Map<number, Live>();
    let ofStep: Live = new Set(fed(false));
    for (const [at, { microBatch, phase }] of actions.entries()) {
      const effects = this.effects.get(phase);
      if (!effects) continue;
      const own = microBatch === null ? NONE : (microBatches.get(microBatch) ?? first);
      const after = this.apply(phase, effects, { ofStep, ofMicroBatch: own }, microBatch);
      ofStep = after.ofStep;
      if (microBatch === null) continue;
      microBatches.set(microBatch, after.ofMicroBatch);
      if (lastOf.get(microBatch) !== at) continue;
      // A micro-batch leaves its parts of the outputs, and what the step is to leave.
      const kept: string[] = [];
      for (const { tensor, microBatches: cut } of left) {
        if (cut && !after.ofMicroBatch.has(tensor) && !this.always.has(tensor))
          throw new Undefined(`output tensor ${tensor} is not there at the end of micro-batch ${microBatch}`);
        if (!cut && after.ofMicroBatch.has(tensor)) kept.push(tensor);
      }
      ofStep = withMore(ofStep, kept);
      microBatches.delete(microBatch);
    }
    for (const { tensor, microBatches: cut } of left)
      if (!cut && !ofStep.has(tensor) && !this.always.has(tensor))
        throw new Undefined(`tensor ${tensor}, which the step leaves, is not there at its end`);
  }

  /** The tensors behind an action. Its list's effects are the same wherever it begins with the same tensors. */
  private apply(phase: string, effects: Effects, before: Scopes, microBatch: number | null): Scopes {
    const isFirst = (microBatch ?? 0) === 0;
    const known = isFirst ? undefined : this.walked.get(effects)?.get(before.ofStep)?.get(before.ofMicroBatch);
    if (known) return known;
    const has = (tensor: string) =>
      before.ofMicroBatch.has(tensor) || before.ofStep.has(tensor) || this.always.has(tensor);
    const place = (at: number) => `phase ${phase}: instruction ${at}`;
    for (const { tensor, at, isSum } of effects.needs)
      if (!has(tensor) && !(isSum && isFirst))
        throw new Undefined(`${place(at)}: tensor ${tensor} is read where it is not live`);
    const ofStep = new Set(before.ofStep);
    const ofMicroBatch = new Set(before.ofMicroBatch);
    for (const { tensor, at } of effects.frees)
      if (!ofMicroBatch.delete(tensor) && !ofStep.delete(tensor) && !this.always.has(tensor))
        throw new Undefined(`${place(at)}: tensor ${tensor} is freed where it is not live`);
    for (const { tensor, at, isSum } of effects.makes) {
      const scope = isSum || microBatch === null ? ofStep : ofMicroBatch;
      if (!isSum && scope.has(tensor)) throw new Undefined(`${place(at)}: tensor ${tensor} is made a second time`);
      scope.add(tensor);
    }
    const after = {
      ofStep: sameSet(before.ofStep, ofStep) ? before.ofStep : ofStep,
      ofMicroBatch: sameSet(before.ofMicroBatch, ofMicroBatch) ? before.ofMicroBatch : ofMicroBatch,
    };
    if (!isFirst) {
      const byStep = this.walked.get(effects) ?? new Map<Live, Map<Live, Scopes>>();
      const byMicroBatch = byStep.get(before.ofStep) ?? new Map<Live, Scopes>();
      this.walked.set(effects, byStep.set(before.ofStep, byMicroBatch.set(before.ofMicroBatch, after)));
    }
    return after;
  }
}

/** Thrown inside this file only: the sentence that `checkDefinitions` returns. */
class Undefined extends Error {}

function withMore(live: Live, names: readonly string[]): Live {
  return names.every((name) => live.has(name)) ? live : new Set([...live, ...names]);
}

function sameSet(a: Live, b: Live): boolean {
  if (a.size !== b.size) return false;
  for (const name of b) if (!a.has(name)) return false;
  return true;
}

/** What a list needs, makes and frees; a tensor that it makes while it is there is a flaw at once. */
function effectsOf(phase: string, list: readonly Instruction[]): Effects {
  const needs = new Map<string, Effects['needs'][number]>();
  const frees: Effects['frees'][number][] = [];
  const live = new Map<string, Effects['makes'][number]>();
  const operandOf = new Map<number, Extract<Instruction, { kind: 'start' }>>();
  const gone = new Set<string>();
  for (const [at, instruction] of list.entries()) {
    const place = `phase ${phase}: instruction ${at}`;
    const read = (tensor: string, isSum = false) => {
      if (live.has(tensor)) return;
      if (gone.has(tensor)) throw new Undefined(`${place}: tensor ${tensor} is read where it is not live`);
      if (!needs.has(tensor)) needs.set(tensor, { tensor, at, isSum });
    };
    const make = (tensor: string, isSum = false) => {
      if (live.has(tensor) && !isSum) throw new Undefined(`${place}: tensor ${tensor} is made a second time`);
      live.set(tensor, { tensor, at, isSum });
      gone.delete(tensor);
    };
    if (instruction.kind === 'compute') {
      for (const tensor of instruction.inputs) read(tensor);
      for (const tensor of instruction.outputs) make(tensor);
    } else if (instruction.kind === 'start') {
      read(instruction.input);
      operandOf.set(instruction.id, instruction);
    } else if (instruction.kind === 'wait') {
      const start = operandOf.get(instruction.id);
      if (!start) continue;
      read(start.input);
      make(start.output);
    } else if (instruction.kind === 'accumulate') {
      read(instruction.input);
      read(instruction.output, true);
      make(instruction.output, true);
    } else if (instruction.kind === 'send') read(instruction.tensor);
    else if (instruction.kind === 'recv') make(instruction.tensor);
    else
      for (const tensor of instruction.tensors) {
        if (gone.has(tensor)) throw new Undefined(`${place}: tensor ${tensor} is freed where it is not live`);
        if (!live.delete(tensor)) frees.push({ tensor, at });
        gone.add(tensor);
      }
  }
  return { needs: [...needs.values()], frees, makes: [...live.values()] };
}
