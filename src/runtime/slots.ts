/**
 * @file Which buffer carries which collective. A buffer ("slot") is taken from a collective's start to its wait; two that
 * are in flight together have different slots, others share one, so that memory follows what is in flight. One that is waited for
 * in another list than it begins in has a slot of its own, whatever runs in between.
 */
import { memoryPlaceOf } from '../program/check-places.js';
import { rankCount, shardCount, shardIndex } from '../program/mesh.js';
import type { Instruction, ProgramAxis, ProgramStage, StartInstruction } from '../program/program.js';
import { holdsTensor } from '../program/rank-stage.js';
import { byteLength, elementCount } from '../program/values.js';

/** The slots of one stage. */
export interface SlotPlan {
  /** By rank of the stage: bytes of each slot, the most that it carries there. */
  readonly capacities: readonly (readonly number[])[];
  /** Memory of each slot: that of the tensors whose collectives it carries. */
  readonly places: readonly SlotMemory[];
  /** Per phase, the slot of the start at each position; -1 elsewhere. */
  readonly slotAt: Readonly<Record<string, readonly number[]>>;
}

/** @param axes the stage's own mesh */
export function planSlots(stage: ProgramStage, axes: readonly ProgramAxis[]): SlotPlan {
  const lists = Object.entries(stage.phases);
  const own = lists.flatMap(([, instructions]) => instructions.filter(isAhead));
  const slots: Slot[] = own.map((start) => ({ key: keyOf(stage, start), starts: [start] }));
  const slotAt: Record<string, readonly number[]> = {};
  for (const [phase, instructions] of lists) slotAt[phase] = slotsOf(stage, instructions, own, slots);
  return {
    capacities: Array.from({ length: rankCount(axes) }, (_, rank) =>
      slots.map(({ starts }) => Math.max(0, ...starts.map((start) => bytesOn(stage, axes, rank, start)))),
    ),
    places: slots.map(({ starts: [first] }) => (first ? memoryOf(stage, first) : 'device')),
    slotAt,
  };
}

/** The collectives that one slot carries. */
interface Slot {
  /** Collectives of one key share slots. */
  readonly key: string;
  readonly starts: StartInstruction[];
}

/** First fit; adds to `slots`. They all return by the end of a phase, but for those of `own`. */
function slotsOf(
  stage: ProgramStage,
  instructions: readonly Instruction[],
  own: readonly StartInstruction[],
  slots: Slot[],
): number[] {
  const taken = new Map<number, number>();
  return instructions.map((instruction) => {
    if (instruction.kind === 'wait') taken.delete(instruction.id);
    if (instruction.kind !== 'start') return -1;
    if (isAhead(instruction)) return own.indexOf(instruction);
    const inUse = new Set(taken.values());
    let slot = own.length;
    const key = keyOf(stage, instruction);
    while (inUse.has(slot) || (slots[slot]?.key ?? key) !== key) slot++;
    slots[slot] ??= { key, starts: [] };
    slots[slot]?.starts.push(instruction);
    taken.set(instruction.id, slot);
    return slot;
  });
}

type SlotMemory = 'device' | 'host';

/**
 * Collectives share slots where they are in one memory and the same ranks take part, so that all count the same uses. Those that
 * write to other ranks' memory share with those of the same group alone: nobody else reads there.
 */
function keyOf(stage: ProgramStage, start: StartInstruction): string {
  const { collective, axes, input } = start;
  const held = [...(stage.tensors[input]?.first ?? [])].filter((axis) => !axes.includes(axis));
  return JSON.stringify([memoryOf(stage, start), held, collective.kind === 'reduce' ? axes : null]);
}

function memoryOf(stage: ProgramStage, { input }: StartInstruction): SlotMemory {
  return memoryPlaceOf(stage, input) === 'host' ? 'host' : 'device';
}

function isAhead(instruction: Instruction): instruction is StartInstruction & { readonly last: true } {
  return instruction.kind === 'start' && instruction.last === true;
}

/** Bytes of a rank's collective buffer: its input; of a reduce all members' on the first rank; of a broadcast only there. */
function bytesOn(stage: ProgramStage, axes: readonly ProgramAxis[], rank: number, start: StartInstruction): number {
  const { collective, axes: over, input, output } = start;
  const takesPart = holdsTensor(stage, axes, rank, input) || holdsTensor(stage, axes, rank, output);
  const tensor = stage.tensors[input];
  if (!tensor || !takesPart) return 0;
  const bytes = byteLength(tensor.dtype, elementCount(tensor.localShape));
  if (collective.kind !== 'reduce' && collective.kind !== 'broadcast') return bytes;
  if (shardIndex(axes, over, rank) !== 0) return 0;
  return collective.kind === 'reduce' ? shardCount(axes, over) * bytes : bytes;
}
