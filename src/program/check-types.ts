/**
 * @file Types of a program: every tensor is replicated, sharded, partial or varying over each axis, and whatever reads or makes
 * it agrees. A segment names the types that it was made for; a collective follows its typing rule; a sum, a transfer and the
 * state keep a tensor's type; outputs are whole values.
 */
import { collectiveProblem, type RankLayout, rankLayoutDifference } from '../sharding-propagation/collective-rule.js';
import { shardCount, stageAxes, subAxesOf } from './mesh.js';
import type { Instruction, Program, ProgramAxis, ProgramStage, ProgramWeight } from './program.js';
import { typeText, typeTextIn, weightType } from './tensor-type.js';

/** The first problem with the types of a program whose names all refer to something, or null if none. */
export function checkTypes(program: Program): string | null {
  const axes = stageAxes(program.mesh, program.stages.length);
  for (const [index, stage] of program.stages.entries()) {
    const problem = checkStage(program, stage, index, axes);
    if (problem !== null) return `stage ${index}: ${problem}`;
  }
  return checkTransfers(program, axes);
}

function checkStage(program: Program, stage: ProgramStage, index: number, axes: readonly ProgramAxis[]): string | null {
  const sizes = new Map(subAxesOf(axes).map(({ name, size }) => [name, size]));
  const sizeOf = (axis: string) => sizes.get(axis) ?? 1;
  const known = new Map<string, string | undefined>();
  const typeOf = (name: string) => {
    const type = known.get(name) ?? typeTextIn(stage, name);
    known.set(name, type);
    return type;
  };
  for (const [name, weight] of Object.entries(stage.weights)) {
    const problem = weightProblem(stage, name, weight, axes);
    if (problem !== null) return `weight ${name}: ${problem}`;
  }
  for (const [phase, instructions] of Object.entries(stage.phases))
    for (const [position, instruction] of instructions.entries()) {
      const problem = instructionProblem(stage, instruction, typeOf, sizeOf);
      if (problem !== null) return `phase ${phase}: instruction ${position}: ${problem}`;
    }
  for (const { stage: of, from, to } of program.state ?? []) {
    const [left, kept] = [stage.tensors[from], stage.tensors[to]];
    if (of !== index || !left || !kept) continue;
    const difference = left.layout.partial.length > 0 ? `${from} is partial` : rankLayoutDifference(left, kept, sizeOf);
    if (difference !== null) return `state ${to} differs in type from ${from}: ${difference}`;
  }
  for (const { stage: of, name, tensor } of program.outputs) {
    const type = stage.tensors[tensor];
    if (of !== index || !type) continue;
    if (type.layout.partial.length > 0 || (type.varying ?? []).length > 0 || (type.first ?? []).length > 0)
      return `${name} is ${typeText(type)} on the ranks, which is partial, varying or on first ranks only`;
  }
  return null;
}

/** Shards are numbered by the axes that the weight is sharded over, in the order of the mesh. */
function weightProblem(
  stage: ProgramStage,
  name: string,
  weight: ProgramWeight,
  axes: readonly ProgramAxis[],
): string | null {
  const tensor = stage.tensors[name];
  if (tensor && weight.layout && typeText(tensor) !== weightType(weight))
    return `it is stored as ${weightType(weight)} and read as ${typeText(tensor)}`;
  if (weight.file !== null && weight.axes.length > 0 && !`${weight.file}${weight.key}`.includes('{k}'))
    return `it has ${shardCount(axes, weight.axes)} shards, and all share file ${weight.file}`;
  if (!weight.layout) return null;
  const cutting = new Set(weight.layout.dims.flatMap((pieces) => pieces.flatMap((piece) => piece.axes)));
  const wanted = subAxesOf(axes).flatMap((sub) => (cutting.has(sub.name) ? [sub.name] : []));
  return wanted.join() === weight.axes.join()
    ? null
    : `its shards are numbered by axes ${weight.axes.join(', ') || 'none'}, its layout is cut by ${wanted.join(', ') || 'none'}`;
}

function instructionProblem(
  stage: ProgramStage,
  instruction: Instruction,
  typeOf: (name: string) => string | undefined,
  sizeOf: (axis: string) => number,
): string | null {
  if (instruction.kind === 'compute') {
    const segment = stage.segments[instruction.segment];
    for (const role of ['inputs', 'weights', 'outputs'] as const)
      for (const [index, name] of instruction[role].entries()) {
        const expected = segment?.types[role][index];
        const weight = role === 'weights' ? stage.weights[name] : undefined;
        const found = weight ? weightType(weight) : typeOf(name);
        if (found !== expected)
          return (
            `${instruction.label}: segment ${instruction.segment} ${role === 'outputs' ? 'makes' : 'reads'} ` +
            `${expected ?? 'nothing'}, but ${name} is ${found ?? 'not declared'}`
          );
      }
    const problem = absenceProblem(stage, [...instruction.inputs, ...instruction.weights], instruction.outputs);
    if (problem !== null) return `${instruction.label}: ${problem}`;
  }
  if (instruction.kind === 'start') {
    const { collective, axes, input, output, label } = instruction;
    const problem = collectiveProblem(
      collective,
      axes,
      rankLayoutOf(stage, input),
      rankLayoutOf(stage, output),
      sizeOf,
    );
    if (problem !== null)
      return (
        `${label}: ${collective.kind} over ${axes.join(', ') || 'none'} of ${input} (${typeOf(input)}) to ` +
        `${output} (${typeOf(output)}): ${problem}`
      );
  }
  if (instruction.kind === 'accumulate' || instruction.kind === 'move') {
    const { kind, input, output } = instruction;
    const difference = rankLayoutDifference(rankLayoutOf(stage, input), rankLayoutOf(stage, output), sizeOf);
    const does = kind === 'move' ? 'is a copy of' : 'adds up';
    if (difference !== null) return `${output} ${does} ${input}, which differs in type: ${difference}`;
  }
  return null;
}

/** Ranks that hold a segment's results run it: all its results are on the same ranks, and these ranks hold all its operands. */
function absenceProblem(stage: ProgramStage, reads: readonly string[], makes: readonly string[]): string | null {
  const firstOf = (name: string) => (stage.tensors[name] ?? stage.weights[name])?.first ?? [];
  const [made = '', ...others] = makes;
  const first = firstOf(made);
  const other = others.find((name) => firstOf(name).join() !== first.join());
  if (other !== undefined) return `it makes ${made} and ${other}, which are on different ranks`;
  const missing = reads.find((name) => firstOf(name).some((axis) => !first.includes(axis)));
  return missing === undefined ? null : `it reads ${missing}, which some of the ranks with ${made} do not hold`;
}

/** How the ranks hold a named operand of an instruction: a tensor, or a weight. */
function rankLayoutOf(stage: ProgramStage, name: string): RankLayout {
  const tensor = stage.tensors[name];
  if (tensor) return tensor;
  const { layout, localShape = [], zeroUnlessFirst = [], first = [] } = stage.weights[name] ?? {};
  const partial = zeroUnlessFirst.map((axis) => ({ axis, reduction: 'sum' as const }));
  return { layout: { dims: localShape.map((size) => [{ size, axes: [] }]), ...layout, partial }, first };
}

/** A tensor has the same type at both ends of a transfer. */
function checkTransfers({ stages }: Program, axes: readonly ProgramAxis[]): string | null {
  const sizes = new Map(subAxesOf(axes).map(({ name, size }) => [name, size]));
  const sent = new Map<string, RankLayout>();
  const received = new Map<string, RankLayout>();
  for (const [index, stage] of stages.entries())
    for (const instruction of Object.values(stage.phases).flat()) {
      if (instruction.kind !== 'send' && instruction.kind !== 'recv') continue;
      const { kind, tensor, label, stage: other } = instruction;
      const [from, to] = kind === 'send' ? [index, other] : [other, index];
      (kind === 'send' ? sent : received).set(
        `${label} from stage ${from} to stage ${to}`,
        rankLayoutOf(stage, tensor),
      );
    }
  for (const [transfer, one] of sent) {
    const other = received.get(transfer);
    const difference = other && rankLayoutDifference(one, other, (axis) => sizes.get(axis) ?? 1);
    if (difference) return `${transfer} differs in type between sender and receiver: ${difference}`;
  }
  return null;
}
