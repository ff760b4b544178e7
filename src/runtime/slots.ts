/**
 * @file Which buffer carries which collective. A buffer ("slot") is taken from a collective's start to its wait; two that
 * are in flight together have different slots, others share one, so that memory follows what is in flight.
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
  const capacities: number[] = [];
  const places: ('device' | 'host')[] = [];
  const slotAt: Record<string, readonly number[]> = {};
  for (const [phase, instructions] of Object.entries(stage.phases)) {
    slotAt[phase] = slotsOf(stage, instructions, capacities, places);
  }
  return { capacities, places, slotAt };
}

/** First fit; grows `capacities` and `places`. Slots all return by the end of a phase. */
function slotsOf(
  stage: ProgramStage,
  instructions: readonly Instruction[],
  capacities: number[],
  places: ('device' | 'host')[],
): number[] {
  const taken = new Map<number, number>();
  return instructions.map((instruction) => {
    if (instruction.kind === 'wait') taken.delete(instruction.id);
    if (instruction.kind !== 'start') return -1;
    const inUse = new Set(taken.values());
    let slot = 0;
    const place = placeOf(stage, instruction.input) === 'host' ? 'host' : 'device';
    while (inUse.has(slot) || (places[slot] ?? place) !== place) slot++;
    places[slot] = place;
    const tensor = stage.tensors[instruction.input];
    const bytes = tensor ? byteLength(tensor.dtype, elementCount(tensor.localShape)) : 0;
    capacities[slot] = Math.max(capacities[slot] ?? 0, bytes);
    taken.set(instruction.id, slot);
    return slot;
  });
}
