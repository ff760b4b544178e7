/**
 * @file Which buffer carries which collective. A buffer ("slot") is taken from a collective's start to its wait; two that
 * are in flight together have different slots, others share one, so that memory follows what is in flight. One that is waited for
 * in another list than it begins in has a slot of its own, whatever runs in between.
 */
import { placeOf } from '../program/check-places.js';
import type { Instruction, ProgramStage } from '../program/program.js';
import { byteLength, elementCount } from '../program/values.js';

/** The slots of one stage. */
export interface SlotPlan {
  /** Bytes of each slot: the largest block that it carries. */
  readonly capacities: readonly number[];
  /** Memory of each slot: that of the tensors whose collectives it carries. */
  readonly places: readonly ('device' | 'host')[];
  /** Per phase, the slot of the start at each position; -1 elsewhere. */
  readonly slotAt: Readonly<Record<string, readonly number[]>>;
}

export function planSlots(stage: ProgramStage): SlotPlan {
  const lists = Object.entries(stage.phases);
  const own = lists.flatMap(([, instructions]) => instructions.filter(isAhead));
  const capacities = own.map((start) => blockBytes(stage, start));
  const places = own.map((start) => memoryOf(stage, start));
  const slotAt: Record<string, readonly number[]> = {};
  for (const [phase, instructions] of lists) slotAt[phase] = slotsOf(stage, instructions, own, { capacities, places });
  return { capacities, places, slotAt };
}

/** First fit; grows `capacities` and `places`. Slots all return by the end of a phase, but for those of `own`. */
function slotsOf(
  stage: ProgramStage,
  instructions: readonly Instruction[],
  own: readonly Start[],
  { capacities, places }: { readonly capacities: number[]; readonly places: Memory[] },
): number[] {
  const taken = new Map<number, number>();
  return instructions.map((instruction) => {
    if (instruction.kind === 'wait') taken.delete(instruction.id);
    if (instruction.kind !== 'start') return -1;
    if (isAhead(instruction)) return own.indexOf(instruction);
    const inUse = new Set(taken.values());
    let slot = own.length;
    const place = memoryOf(stage, instruction);
    while (inUse.has(slot) || (places[slot] ?? place) !== place) slot++;
    places[slot] = place;
    capacities[slot] = Math.max(capacities[slot] ?? 0, blockBytes(stage, instruction));
    taken.set(instruction.id, slot);
    return slot;
  });
}

type Start = Extract<Instruction, { kind: 'start' }>;
type Memory = 'device' | 'host';

function memoryOf(stage: ProgramStage, { input }: Start): Memory {
  return placeOf(stage, input) === 'host' ? 'host' : 'device';
}

function isAhead(instruction: Instruction): instruction is Start & { readonly last: true } {
  return instruction.kind === 'start' && instruction.last === true;
}

function blockBytes(stage: ProgramStage, { input }: Start): number {
  const tensor = stage.tensors[input];
  return tensor ? byteLength(tensor.dtype, elementCount(tensor.localShape)) : 0;
}
