/**
 * @file A stage as one of its ranks runs it: where only the first rank of an axis holds a tensor, the others have neither the
 * tensor nor the instructions that make it.
 */
import { shardIndex } from './mesh.js';
import type { Instruction, ProgramAxis, ProgramStage } from './program.js';

/** Whether a rank of a stage holds a tensor or weight. */
export function holdsTensor(stage: ProgramStage, axes: readonly ProgramAxis[], rank: number, name: string): boolean {
  const { first = [] } = stage.tensors[name] ?? stage.weights[name] ?? {};
  return shardIndex(axes, first, rank) === 0;
}

/**
 * The stage without the weights and instructions of other ranks; in the place of such an instruction stands one that does
 * nothing, so that positions stay. Itself where all ranks hold all.
 */
export function stageOfRank(stage: ProgramStage, axes: readonly ProgramAxis[], rank: number): ProgramStage {
  const holds = (name: string) => holdsTensor(stage, axes, rank, name);
  if (Object.keys(stage.tensors).every(holds)) return stage;
  const all = Object.values(stage.phases).flat();
  const begun = new Set(
    all.flatMap((one) => (one.kind === 'start' && (holds(one.input) || holds(one.output)) ? [one.id] : [])),
  );
  const own = (instruction: Instruction): Instruction => {
    if (instruction.kind === 'free') return { ...instruction, tensors: instruction.tensors.filter(holds) };
    if (runs(instruction)) return instruction;
    return instruction.half === undefined ? NOTHING : { ...NOTHING, half: instruction.half };
  };
  const runs = (instruction: Exclude<Instruction, { kind: 'free' }>): boolean => {
    switch (instruction.kind) {
      case 'compute':
        return instruction.outputs.every(holds);
      case 'start':
      case 'wait':
        return begun.has(instruction.id);
      case 'accumulate':
      case 'move':
        return holds(instruction.output);
      case 'send':
      case 'recv':
        return holds(instruction.tensor);
    }
  };
  return {
    ...stage,
    weights: Object.fromEntries(Object.entries(stage.weights).filter(([name]) => holds(name))),
    phases: Object.fromEntries(Object.entries(stage.phases).map(([phase, list]) => [phase, list.map(own)])),
  };
}

const NOTHING: Instruction = { kind: 'free', tensors: [] };
