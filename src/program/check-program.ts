/**
 * @file Whether a program is valid: every name refers to something, every collective that begins also ends and moves as many
 * bytes as its tensors say; that both halves of a micro-batch run the same (check-halves.ts); then that every tensor is there
 * when it is read (check-lifetimes.ts) and has the type that its readers expect (check-types.ts), and that no stages wait for one
 * another for ever (rendezvous.ts).
 */
import path from 'node:path';
import { byteLength, isDType } from '../ir/dtype.js';
import { elementCount } from '../ir/graph.js';
import { halvesFlaw } from './check-halves.js';
import { lifetimeFlaw } from './check-lifetimes.js';
import { checkMemoryPlaces } from './check-places.js';
import { checkTypes } from './check-types.js';
import { STAGE_AXIS, shardCount, stageAxes, subAxesOf } from './mesh.js';
import { partShape } from './micro-batch-parts.js';
import type {
  Instruction,
  Program,
  ProgramAxis,
  ProgramCollective,
  ProgramStage,
  ProgramTensor,
  StartInstruction,
} from './program.js';
import { canReduce } from './reduce.js';
import { endlessWait, type TransferEnd } from './rendezvous.js';
import { shardShape } from './shards.js';

/** The first problem with a program of the right form, in one sentence, or null if none. */
export function checkProgram(program: Program): string | null {
  try {
    checkMesh(program);
    const axes = stageAxes(program.mesh, program.stages.length);
    for (const [index, stage] of program.stages.entries())
      within(`stage ${index}`, () => checkStage(program, stage, axes));
    checkTransfers(program);
    for (const value of [...program.inputs, ...program.outputs]) checkValue(program, value);
    for (const { stage, phase } of program.schedule) {
      need(
        program.stages[stage]?.phases[phase],
        `the schedule runs phase ${phase} of stage ${stage}, which does not exist`,
      );
    }
    for (const [index, stage] of program.stages.entries()) {
      const flaw = halvesFlaw(stage) ?? lifetimeFlaw(program, index);
      if (flaw !== null) throw new Flaw(`stage ${index}: ${flaw}`);
    }
    return (
      checkTypes(program) ??
      checkMemoryPlaces(program) ??
      endlessWait(program.stages.map((_, stage) => transfersOf(program, stage)))
    );
  } catch (error) {
    if (error instanceof Flaw) return error.message;
    throw error;
  }
}

/** Thrown inside this file only: the sentence that `checkProgram` returns. */
class Flaw extends Error {}

function checkMesh(program: Program): void {
  checkSizes(program.mesh);
  const stages = program.stages.length;
  const pipeline = program.mesh.find((axis) => axis.axis === STAGE_AXIS);
  if (stages > 1 && (pipeline?.size !== stages || program.mesh[0] !== pipeline)) {
    throw new Flaw(`there are ${stages} stages, but the outermost mesh axis is not ${STAGE_AXIS} of that size`);
  }
  const shared = stageAxes(program.mesh, stages);
  for (const [index, { mesh }] of program.stages.entries()) {
    if (!mesh) continue;
    checkSizes(mesh);
    if (subAxesText(mesh) !== subAxesText(shared))
      throw new Flaw(
        `stage ${index} groups sub-axes ${subAxesText(mesh) || 'none'}, and those of a stage are ` +
          `${subAxesText(shared) || 'none'}`,
      );
  }
}

function checkSizes(mesh: readonly ProgramAxis[]): void {
  for (const { axis, size, subAxes } of mesh) {
    const product = subAxes.reduce((total, sub) => total * sub.size, 1);
    if (size < 1 || product !== size)
      throw new Flaw(`sub-axes of mesh axis ${axis} multiply to ${product}, not to ${size}`);
  }
}

function subAxesText(mesh: readonly ProgramAxis[]): string {
  return subAxesOf(mesh)
    .map(({ name, size }) => `${name} ${size}`)
    .join(', ');
}

function checkValue(program: Program, value: Program['inputs'][number]): void {
  const tensor = program.stages[value.stage]?.tensors[value.tensor];
  if (!tensor)
    throw new Flaw(`${value.name} is in tensor ${value.tensor} of stage ${value.stage}, which does not exist`);
  if (tensor.dtype !== value.dtype || tensor.shape.join() !== partShape(value).join()) {
    throw new Flaw(`${value.name} and its tensor ${value.tensor} differ in dtype or shape`);
  }
  if ((tensor.lifetime === 'micro') !== (value.microBatches !== undefined))
    throw new Flaw(`${value.name} and its tensor ${value.tensor} differ in whether micro-batches have parts of them`);
}

function checkStage(program: Program, stage: ProgramStage, axes: readonly ProgramAxis[]): void {
  for (const [name, tensor] of Object.entries(stage.tensors)) within(`tensor ${name}`, () => checkTensor(tensor, axes));
  for (const [name, weight] of Object.entries(stage.weights)) {
    within(`weight ${name}`, () => {
      if (!isDType(weight.dtype)) throw new Flaw(`unknown dtype ${weight.dtype}`);
      if (weight.file !== null) checkFile(weight.file);
      checkAxes([...weight.axes, ...weight.zeroUnlessFirst, ...(weight.first ?? [])], axes);
    });
  }
  for (const { file } of Object.values(stage.segments)) checkFile(file);
  for (const [name, { axes: names }] of Object.entries(stage.coordinates)) {
    within(`coordinate ${name}`, () => checkAxes(names, axes));
  }
  const index = program.stages.indexOf(stage);
  checkState(program, stage, index);
  const ahead = startsAhead(stage);
  for (const [phase, instructions] of Object.entries(stage.phases)) {
    within(`phase ${phase}`, () => checkPhase(program, stage, axes, instructions, ahead));
    within(`phase ${phase}`, () => checkBuckets(stage, instructions));
  }
  for (const id of ahead.keys()) throw new Flaw(`collective ${id} begins but is not waited for`);
}

/** Collectives that begin in one list and are waited for in another. */
function startsAhead({ phases }: ProgramStage): Map<number, StartInstruction> {
  const ahead = new Map<number, StartInstruction>();
  for (const instruction of Object.values(phases).flat()) {
    if (instruction.kind !== 'start' || !instruction.last) continue;
    if (ahead.has(instruction.id)) throw new Flaw(`collective ${instruction.id} begins twice`);
    ahead.set(instruction.id, instruction);
  }
  return ahead;
}

/** Collectives of a bucket are one message: they begin one after the other, and are of one kind. */
function checkBuckets({ tensors }: ProgramStage, instructions: readonly Instruction[]): void {
  const seen = new Set<number>();
  let before: StartInstruction | undefined;
  for (const [position, instruction] of instructions.entries()) {
    const start = instruction.kind === 'start' && instruction.bucket !== undefined ? instruction : undefined;
    if (start?.bucket !== undefined && start.bucket !== before?.bucket) {
      if (seen.has(start.bucket))
        throw new Flaw(`instruction ${position}: collectives of bucket ${start.bucket} do not begin together`);
      seen.add(start.bucket);
    } else if (start && before && sameMessage(start, tensors) !== sameMessage(before, tensors))
      throw new Flaw(
        `instruction ${position}: bucket ${start.bucket} holds ${sameMessage(before, tensors)} and ` +
          `${sameMessage(start, tensors)}`,
      );
    before = start;
  }
}

function sameMessage({ collective, axes, input, last }: StartInstruction, tensors: ProgramStage['tensors']): string {
  const reduction = 'reduction' in collective ? ` (${collective.reduction})` : '';
  return (
    `${collective.kind}${reduction} of ${tensors[input]?.dtype} over ` +
    `${axes.join(', ')}${last ? ' in the last micro-batch' : ''}`
  );
}

/** State of a stage: both tensors have the same local shape, and there is a first value. */
function checkState(program: Program, stage: ProgramStage, index: number): void {
  for (const { stage: of, from, to } of program.state ?? []) {
    if (of !== index) continue;
    const [left, kept] = [stage.tensors[from], stage.tensors[to]];
    if (!left || !kept)
      throw new Flaw(`state ${to} takes its next value from ${from}, and one of them is not declared`);
    if (!(to in stage.weights)) throw new Flaw(`state ${to} has no first value among the weights`);
    if (left.dtype !== kept.dtype || left.localShape.join() !== kept.localShape.join())
      throw new Flaw(`state ${to} differs from ${from} in dtype or local shape`);
    if (left.lifetime !== 'step' || kept.lifetime !== 'run')
      throw new Flaw(
        `state ${to} and its next value ${from} need lifetimes run and step, not ${kept.lifetime} and ${left.lifetime}`,
      );
  }
}

function checkTensor(tensor: ProgramTensor, axes: readonly ProgramAxis[]): void {
  if (!isDType(tensor.dtype)) throw new Flaw(`unknown dtype ${tensor.dtype}`);
  checkAxes(
    [
      ...tensor.layout.dims.flatMap((pieces) => pieces.flatMap((piece) => piece.axes)),
      ...tensor.layout.partial.map((partial) => partial.axis),
      ...(tensor.first ?? []),
    ],
    axes,
  );
  let local: readonly number[];
  try {
    local = shardShape(tensor.shape, tensor.layout, axes);
  } catch (error) {
    throw new Flaw(error instanceof Error ? error.message : String(error));
  }
  if (local.join() !== tensor.localShape.join()) {
    throw new Flaw(
      `its layout gives shards of [${local.join(', ')}], but localShape is [${tensor.localShape.join(', ')}]`,
    );
  }
}

/** A program reads files of its own folder only. */
function checkFile(file: string): void {
  const inside = !path.isAbsolute(file) && !file.split(/[\\/]/).includes('..');
  if (!inside) throw new Flaw(`file ${file} is outside the program's folder`);
}

function checkAxes(names: readonly string[], axes: readonly ProgramAxis[]): void {
  for (const name of names) {
    if (!axes.some((axis) => axis.subAxes.some((sub) => sub.name === name)))
      throw new Flaw(`the mesh has no sub-axis ${name}`);
  }
  if (new Set(names).size !== names.length) throw new Flaw(`a sub-axis occurs twice in ${names.join(', ')}`);
}

/** Names in an instruction are declared and fit; `lifetimeFlaw` checks that tensors exist when they are read. */
function checkPhase(
  program: Program,
  stage: ProgramStage,
  axes: readonly ProgramAxis[],
  instructions: readonly Instruction[],
  ahead: Map<number, StartInstruction>,
): void {
  const pending = new Map<number, StartInstruction>();
  const read = (name: string) => {
    if (!(name in stage.tensors) && !(name in stage.coordinates)) throw new Flaw(`tensor ${name} is not declared`);
  };
  const write = (name: string) => {
    if (!(name in stage.tensors)) throw new Flaw(`tensor ${name} is not declared`);
  };
  for (const [position, instruction] of instructions.entries()) {
    within(`instruction ${position}`, () => {
      if (instruction.kind === 'compute') {
        checkCompute(stage, instruction);
        instruction.inputs.forEach(read);
        instruction.outputs.forEach(write);
      } else if (instruction.kind === 'start') {
        read(instruction.input);
        if (!(instruction.output in stage.tensors)) throw new Flaw(`tensor ${instruction.output} is not declared`);
        if (pending.has(instruction.id)) throw new Flaw(`collective ${instruction.id} begins twice`);
        checkCollective(stage, axes, instruction);
        if (!instruction.last) pending.set(instruction.id, instruction);
      } else if (instruction.kind === 'wait') {
        const { id } = instruction;
        const start = need(pending.get(id) ?? ahead.get(id), `wait for collective ${id}, which has not begun`);
        if (pending.has(id) && start.half !== instruction.half)
          throw new Flaw(`collective ${id} begins in one half of a micro-batch and is waited for in the other`);
        write(start.output);
        if (!pending.delete(id)) ahead.delete(id);
      } else if (instruction.kind === 'accumulate') {
        read(instruction.input);
        write(instruction.output);
        const [part, sum] = [stage.tensors[instruction.input], stage.tensors[instruction.output]];
        if (part?.dtype !== sum?.dtype || part?.localShape.join() !== sum?.localShape.join())
          throw new Flaw(
            `${instruction.output} differs in dtype or local shape from ${instruction.input}, which is added to it`,
          );
        if (part && !canReduce(part.dtype)) throw new Flaw(`${part.dtype} cannot be summed`);
      } else if (instruction.kind === 'move') {
        read(instruction.input);
        write(instruction.output);
        const [from, to] = [stage.tensors[instruction.input], stage.tensors[instruction.output]];
        if (from?.dtype !== to?.dtype || from?.localShape.join() !== to?.localShape.join())
          throw new Flaw(`${instruction.output} differs in dtype or local shape from ${instruction.input}, its source`);
      } else if (instruction.kind === 'free') {
        instruction.tensors.forEach(read);
      } else {
        const other = program.stages[instruction.stage];
        if (!other || other === stage) throw new Flaw(`stage ${instruction.stage} is not another stage`);
        if (instruction.kind === 'send') read(instruction.tensor);
        else write(instruction.tensor);
      }
    });
  }
  for (const id of pending.keys()) throw new Flaw(`collective ${id} begins but is not waited for`);
}

/** Sends and receives of a stage in a step, in order. */
function transfersOf({ stages, schedule }: Program, stage: number): readonly TransferEnd[] {
  const { phases } = stages[stage] as ProgramStage;
  const ends = new Map(Object.entries(phases).map(([phase, list]) => [phase, endsIn(phase, list)]));
  return schedule
    .filter((action) => action.stage === stage)
    .flatMap(({ phase, microBatch }) =>
      (ends.get(phase) ?? []).map(({ half, ...end }) => ({
        ...end,
        microBatch: microBatch === null ? null : microBatch + half,
      })),
    );
}

/** An end of a transfer in a list, with the half of a micro-batch that it is of. */
type HalfTransferEnd = Omit<TransferEnd, 'microBatch'> & { readonly half: number };

function endsIn(phase: string, instructions: readonly Instruction[]): readonly HalfTransferEnd[] {
  return instructions.flatMap((instruction, position) => {
    if (instruction.kind !== 'send' && instruction.kind !== 'recv') return [];
    const { kind, stage: peer, label: tensor, half = 0 } = instruction;
    return [{ kind, peer, tensor, half, at: `phase ${phase}, instruction ${position}` }];
  });
}

/** The lists of a stage that one micro-batch goes through, with those that run once a step; each once. */
function turnsOf({ schedule }: Program, stage: number): readonly (readonly string[])[] {
  const turns = new Map<number | null, string[]>([[null, []]]);
  for (const { stage: own, microBatch, phase } of schedule)
    if (own === stage) turns.set(microBatch, [...(turns.get(microBatch) ?? []), phase]);
  const once = turns.get(null) ?? [];
  const distinct = new Map([...turns].map(([, turn]) => [turn.join('\n'), turn]));
  return [...distinct.values()].map((turn) => (turn === once ? once : [...once, ...turn]));
}

/** Every send of a micro-batch has one receive, and every receive one send, with equal local shapes. */
function checkTransfers(program: Program): void {
  const ends = { send: new Map<string, string>(), recv: new Map<string, string>() };
  for (const [stage, { phases, tensors }] of program.stages.entries())
    for (const turn of turnsOf(program, stage)) {
      const seen = new Set<string>();
      for (const instruction of turn.flatMap((phase) => phases[phase] ?? [])) {
        if (instruction.kind !== 'send' && instruction.kind !== 'recv') continue;
        const { kind, tensor, label, stage: other, half } = instruction;
        const [from, to] = kind === 'send' ? [stage, other] : [other, stage];
        const key = `${label}${half ? ' (second half)' : ''} from stage ${from} to stage ${to}`;
        const way = kind === 'send' ? 'sent' : 'received';
        if (seen.has(key)) throw new Flaw(`${key} is ${way} twice`);
        seen.add(key);
        const type = `${tensors[tensor]?.dtype} [${tensors[tensor]?.localShape.join(', ')}]`;
        const before = ends[kind].get(key) ?? type;
        if (before !== type) throw new Flaw(`${key} is ${way} as ${before} and as ${type}`);
        ends[kind].set(key, type);
      }
    }
  for (const [key, type] of ends.send) {
    const received = ends.recv.get(key);
    if (received === undefined) throw new Flaw(`${key} is sent and not received`);
    if (received !== type) throw new Flaw(`${key} is sent as ${type} and received as ${received}`);
  }
  for (const key of ends.recv.keys()) if (!ends.send.has(key)) throw new Flaw(`${key} is received and not sent`);
}

function checkCompute(stage: ProgramStage, instruction: Extract<Instruction, { kind: 'compute' }>): void {
  const segment = need(stage.segments[instruction.segment], `segment ${instruction.segment} is not declared`);
  if (instruction.outputs.length === 0) throw new Flaw(`segment ${instruction.segment} has no outputs`);
  for (const weight of instruction.weights) need(stage.weights[weight], `weight ${weight} is not declared`);
  for (const role of ['inputs', 'weights', 'outputs'] as const) {
    if (instruction[role].length !== segment[role].length) {
      throw new Flaw(
        `${instruction[role].length} ${role} for segment ${instruction.segment}, which has ${segment[role].length}`,
      );
    }
  }
}

/** A collective's bytes must fit its tensors: elements of its operand and of its result. */
function checkCollective(stage: ProgramStage, axes: readonly ProgramAxis[], start: StartInstruction): void {
  checkAxes(start.axes, axes);
  const input = need(stage.tensors[start.input], `tensor ${start.input} is not declared`);
  const output = need(stage.tensors[start.output], `tensor ${start.output} is not declared`);
  const members = shardCount(axes, start.axes);
  const [takes, gives] = elementsOf(start.collective, elementCount(input.localShape), members);
  if (input.dtype !== output.dtype)
    throw new Flaw(`${start.collective.kind} changes ${input.dtype} to ${output.dtype}`);
  if (takes !== elementCount(input.localShape) || gives !== elementCount(output.localShape)) {
    throw new Flaw(
      `${start.collective.kind} over ${members} ranks takes ${takes} and gives ${gives} elements, ` +
        `but ${start.input} is [${input.localShape.join(', ')}] and ${start.output} is [${output.localShape.join(', ')}]`,
    );
  }
  if ('reduction' in start.collective && !canReduce(input.dtype)) throw new Flaw(`${input.dtype} cannot be reduced`);
  if (byteLength(input.dtype, 2) !== 2 * byteLength(input.dtype, 1))
    throw new Flaw(`packed ${input.dtype} cannot be sent`);
}

function elementsOf(collective: ProgramCollective, given: number, members: number): readonly [number, number] {
  if (collective.kind === 'all-gather') {
    const rows = collective.outer * collective.inner;
    return [rows, rows * members];
  }
  if (collective.kind === 'reduce-scatter') {
    const rows = collective.outer * collective.inner;
    return [rows * members, rows];
  }
  if (collective.kind === 'all-to-all') {
    const { split, concat, filled = 1 } = collective;
    if (split.inner % filled !== 0) throw new Flaw(`rows of ${filled} elements do not divide slices of ${split.inner}`);
    return [split.outer * split.inner * members, concat.outer * concat.inner * members];
  }
  if (collective.kind === 'permute') {
    const targets = new Set(collective.to);
    if (collective.to.length !== members || targets.size !== members || collective.to.some((to) => to >= members)) {
      throw new Flaw(`permute [${collective.to.join(', ')}] is not a permutation of ${members} ranks`);
    }
  }
  return [given, given];
}

function within(place: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    throw error instanceof Flaw ? new Flaw(`${place}: ${error.message}`) : error;
  }
}

function need<T>(value: T | undefined, otherwise: string): T {
  if (value === undefined) throw new Flaw(otherwise);
  return value;
}
