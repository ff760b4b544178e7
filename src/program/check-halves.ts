/**
 * @file Whether both halves of a micro-batch run the same instructions in the same order. A sum that only one half adds to
 * would pass the checks of types and lifetimes, and be wrong.
 */
import type { Instruction, ProgramStage } from './program.js';

/** The first list of a stage whose halves differ, in one sentence; null if none. */
export function halvesFlaw({ phases }: ProgramStage): string | null {
  for (const [phase, list] of Object.entries(phases)) {
    if (list.every(({ half }) => half === undefined)) continue;
    const [first, second] = [ownOf(list, undefined), ownOf(list, 1)];
    const at = Array.from({ length: Math.max(first.length, second.length) }, (_, index) => index).find(
      (index) => first[index] !== second[index],
    );
    if (at !== undefined)
      return (
        `phase ${phase}: the halves of a micro-batch differ in their instruction ${at}: ${first[at] ?? 'none'} ` +
        `and ${second[at] ?? 'none'}`
      );
  }
  return null;
}

/**
 * The instructions of one half as text, collectives and buckets by their order. Collectives that start only in the last
 * micro-batch belong to neither half.
 */
function ownOf(list: readonly Instruction[], half: Instruction['half']): readonly string[] {
  const [ids, buckets] = [new Map<number, number>(), new Map<number, number>()];
  const order = (numbers: Map<number, number>, number: number) => {
    const known = numbers.get(number) ?? numbers.size;
    numbers.set(number, known);
    return known;
  };
  return list.flatMap((instruction) => {
    if (instruction.half !== half || (instruction.kind === 'start' && instruction.last)) return [];
    const { half: _, ...own } = instruction;
    if (own.kind !== 'start' && own.kind !== 'wait') return [JSON.stringify(own)];
    const bucket = own.kind === 'start' && own.bucket !== undefined ? { bucket: order(buckets, own.bucket) } : {};
    return [JSON.stringify({ ...own, id: order(ids, own.id), ...bucket })];
  });
}
