/**
 * @file Whether every instruction finds its tensors in the memory that it works in: a segment and a collective in one memory,
 * never in files; a copy between the device's memory and another one; all that is fed, sent, received and given in the device's.
 */
import type { OuterMemory } from '../ir/graph.js';
import type { Instruction, Program, ProgramStage } from './program.js';

type MemoryPlace = OuterMemory | 'device';

/** The first problem with the places of a program whose names all refer to something, in one sentence; else null. */
export function checkMemoryPlaces(program: Program): string | null {
  for (const [index, stage] of program.stages.entries()) {
    const problem = checkStage(program, stage, index);
    if (problem !== null) return `stage ${index}: ${problem}`;
  }
  return null;
}

/** The memory in which an instruction works: that of its first tensor; for an accumulation that of the sum. */
export function memoryPlaceOf({ tensors }: ProgramStage, name: string | undefined): MemoryPlace {
  return tensors[name ?? '']?.place ?? 'device';
}

function checkStage(program: Program, stage: ProgramStage, index: number): string | null {
  for (const [phase, instructions] of Object.entries(stage.phases))
    for (const [position, instruction] of instructions.entries()) {
      const problem = problemOf(stage, instruction);
      if (problem !== null) return `phase ${phase}: instruction ${position}: ${problem}`;
    }
  for (const { stage: of, from, to } of program.state ?? []) {
    const [left, kept] = [memoryPlaceOf(stage, from), memoryPlaceOf(stage, to)];
    if (of === index && left !== kept) return `state ${to} is stored in ${kept}, and its next value ${from} in ${left}`;
  }
  for (const { stage: of, name, tensor } of [...program.inputs, ...program.outputs])
    if (of === index && memoryPlaceOf(stage, tensor) !== 'device')
      return `${name} is stored in ${memoryPlaceOf(stage, tensor)}, and inputs and outputs must be on the device`;
  return null;
}

function problemOf(stage: ProgramStage, instruction: Instruction): string | null {
  const place = (name: string) => memoryPlaceOf(stage, name);
  const misplaced = (names: readonly string[], wanted: MemoryPlace) => {
    const found = names.find((name) => name in stage.tensors && place(name) !== wanted);
    return found === undefined ? null : `tensor ${found} is in ${place(found)}, and ${wanted} is expected`;
  };
  switch (instruction.kind) {
    case 'compute':
    case 'start': {
      const { inputs, outputs } =
        instruction.kind === 'start'
          ? { inputs: [instruction.input], outputs: [instruction.output] }
          : { inputs: instruction.inputs.filter((name) => !(name in stage.coordinates)), outputs: instruction.outputs };
      const own = memoryPlaceOf(stage, outputs[0]);
      if (own === 'disk') return `tensor ${outputs[0]} is in a file, where nothing is computed`;
      return misplaced([...inputs, ...outputs], own);
    }
    case 'accumulate': {
      const { input, output } = instruction;
      return place(input) === 'device' ? null : misplaced([input], place(output));
    }
    case 'move': {
      const [from, to] = [place(instruction.input), place(instruction.output)];
      if ((from === 'device') !== (to === 'device')) return null;
      return `${instruction.input} is copied from ${from} to ${to}, and exactly one of them must be the device`;
    }
    case 'send':
    case 'recv':
      return misplaced([instruction.tensor], 'device');
    default:
      return null;
  }
}
