/**
 * @file One measurement: a program that does one thing over and over, run by the runtime that runs compiled programs.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Subject } from '../../cost-model/fit-profile.js';
import type { CollectiveKind } from '../../cost-model/levels.js';
import { onnxOfDtype } from '../../ir/dtype.js';
import type { ConstantTensor } from '../../ir/graph.js';
import { encodeModel, type NodeProto, type ValueInfoProto } from '../../ir/onnx/schema.js';
import type { Instruction, Program, ProgramCollective, ProgramLayout, ProgramTensor } from '../../program/program.js';
import { writeProgram } from '../../program/reader.js';
import { runProgram } from '../../runtime/run-program.js';

export interface Timing {
  /** How often it is done in one step, and how many steps are timed after one that is not. */
  readonly repeats: number;
  readonly steps: number;
}

/**
 * Seconds of one execution: of the fastest step, which others on the machine disturbed least. Ranks that only compute wait for
 * nobody: where the processor was busy with others even then, the time that it gave to a rank is less, and counts.
 * @throws AutoparError as `runProgram`
 */
export async function measure(
  subject: Subject,
  ranks: number,
  { repeats, steps }: Timing,
  signal?: AbortSignal,
): Promise<number> {
  const folder = await mkdtemp(path.join(tmpdir(), 'autopar-profile-'));
  try {
    const { program, model } = programOf(subject, ranks, repeats);
    await mkdir(path.join(folder, 'segments'));
    if (model) await writeFile(path.join(folder, SEGMENT_FILE), model);
    await writeProgram(folder, program);
    const inputs = Object.fromEntries(program.inputs.map(({ name, shape }) => [name, ones(shape)] as const));
    const options = { steps, warmup: 1, ...(signal ? { signal } : {}) };
    const { stepSeconds, processorSeconds } = await runProgram(folder, inputs, options);
    const fastest = Math.min(...stepSeconds);
    return (subject.kind === 'collective' ? fastest : Math.min(fastest, processorSeconds / ranks)) / repeats;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const SEGMENT_FILE = 'segments/measured.onnx';
const AXIS = 'tp';

interface Measured {
  readonly program: Program;
  /** The segment, where something is computed. */
  readonly model: Uint8Array | null;
}

function programOf(subject: Subject, ranks: number, repeats: number): Measured {
  return subject.kind === 'collective'
    ? collectiveProgram(subject.collective, subject.elements, ranks, repeats)
    : computeProgram(segmentOf(subject), ranks, repeats);
}

interface SegmentModel {
  readonly inputs: Readonly<Record<string, readonly number[]>>;
  readonly result: readonly number[];
  readonly nodes: readonly NodeProto[];
}

function segmentOf(subject: Exclude<Subject, { kind: 'collective' }>): SegmentModel {
  if (subject.kind === 'matmul') {
    const { rows, columns, depth } = subject;
    return {
      inputs: { a: [rows, depth], b: [depth, columns] },
      result: [rows, columns],
      nodes: [{ op_type: 'MatMul', input: ['a', 'b'], output: ['y'] }],
    };
  }
  if (subject.kind === 'add') {
    const shape = [subject.elements];
    return {
      inputs: { a: shape, b: shape },
      result: shape,
      nodes: [{ op_type: 'Add', input: ['a', 'b'], output: ['y'] }],
    };
  }
  const name = (index: number) => (index === 0 ? 'a' : index === subject.operators ? 'y' : `t${index}`);
  return {
    inputs: { a: [1] },
    result: [1],
    // Alternating, so that no optimiser makes one of them.
    nodes: Array.from({ length: subject.operators }, (_, index) => ({
      op_type: index % 2 === 0 ? 'Exp' : 'Neg',
      input: [name(index)],
      output: [name(index + 1)],
    })),
  };
}

function computeProgram({ inputs, result, nodes }: SegmentModel, ranks: number, repeats: number): Measured {
  const names = Object.keys(inputs);
  const whole = (shape: readonly number[]) =>
    tensor(
      shape,
      shape.map(() => false),
      ranks,
    );
  const model = encodeModel({
    ir_version: 8,
    opset_import: [{ domain: '', version: 15 }],
    graph: {
      name: 'measured',
      node: nodes,
      input: names.map((name) => valueInfo(name, inputs[name] ?? [])),
      output: [valueInfo('y', result)],
    },
  });
  const once: readonly Instruction[] = [
    { kind: 'compute', segment: 'measured', inputs: names, weights: [], outputs: ['y'], label: 'measured' },
    { kind: 'free', tensors: ['y'] },
  ];
  const segment = {
    file: SEGMENT_FILE,
    inputs: names,
    weights: [],
    outputs: ['y'],
    flops: 0,
    operators: nodes.map(({ op_type = '' }) => op_type),
  };
  const tensors = { ...Object.fromEntries(names.map((name) => [name, whole(inputs[name] ?? [])])), y: whole(result) };
  const instructions = Array.from({ length: repeats }, () => once).flat();
  return { program: program(inputs, tensors, { measured: segment }, instructions, ranks), model };
}

function collectiveProgram(kind: CollectiveKind, elements: number, ranks: number, repeats: number): Measured {
  const { collective, from, to, shape } = exchangeOf(kind, elements, ranks);
  const instructions = Array.from({ length: repeats }, (_, id): readonly Instruction[] => [
    { kind: 'start', id, collective, axes: [AXIS], input: 'a', output: 'y', label: 'measured' },
    { kind: 'wait', id },
    { kind: 'free', tensors: ['y'] },
  ]).flat();
  const tensors = { a: tensor(shape, from.cut, ranks, from.partial), y: tensor(shape, to.cut, ranks) };
  return { program: program({ a: shape }, tensors, {}, instructions, ranks), model: null };
}

interface Exchange {
  readonly collective: ProgramCollective;
  readonly shape: readonly number[];
  /** Which dimensions the ranks cut, before and after. */
  readonly from: { readonly cut: readonly boolean[]; readonly partial?: boolean };
  readonly to: { readonly cut: readonly boolean[] };
}

function exchangeOf(kind: CollectiveKind, elements: number, ranks: number): Exchange {
  const [whole, cut] = [{ cut: [false] }, { cut: [true] }];
  const partial = { cut: [false], partial: true };
  const inner = elements / ranks;
  if (kind === 'all-reduce')
    return { collective: { kind, reduction: 'sum' }, shape: [elements], from: partial, to: whole };
  if (kind === 'all-gather') return { collective: { kind, outer: 1, inner }, shape: [elements], from: cut, to: whole };
  if (kind === 'reduce-scatter')
    return { collective: { kind, reduction: 'sum', outer: 1, inner }, shape: [elements], from: partial, to: cut };
  if (kind === 'all-to-all') {
    const halves = { outer: 1, inner };
    return {
      collective: { kind, split: halves, concat: halves },
      shape: [ranks, elements],
      from: { cut: [true, false] },
      to: { cut: [false, true] },
    };
  }
  if (kind === 'permute') {
    const round = Array.from({ length: ranks }, (_, rank) => (rank + 1) % ranks);
    return { collective: { kind, to: round }, shape: [elements * ranks], from: cut, to: cut };
  }
  return { collective: { kind }, shape: [elements], from: whole, to: whole };
}

function program(
  inputs: Readonly<Record<string, readonly number[]>>,
  tensors: Readonly<Record<string, ProgramTensor>>,
  segments: Program['stages'][number]['segments'],
  forward: readonly Instruction[],
  ranks: number,
): Program {
  return {
    format: 'autopar-program',
    version: 1,
    model: { name: 'measured', fingerprint: '0' },
    mesh: [{ axis: AXIS, size: ranks, subAxes: [{ name: AXIS, size: ranks }] }],
    inputs: Object.entries(inputs).map(([name, shape]) => ({ name, dtype: 'float32', shape, stage: 0, tensor: name })),
    outputs: [],
    stages: [{ tensors, segments, weights: {}, coordinates: {}, phases: { forward } }],
    schedule: [{ stage: 0, chunk: 0, microBatch: 0, phase: 'forward' }],
  };
}

function tensor(shape: readonly number[], cut: readonly boolean[], ranks: number, partial = false): ProgramTensor {
  const layout: ProgramLayout = {
    dims: shape.map((size, index) => [{ size, axes: cut[index] ? [AXIS] : [] }]),
    partial: partial ? [{ axis: AXIS, reduction: 'sum' }] : [],
  };
  return {
    dtype: 'float32',
    shape,
    localShape: shape.map((size, index) => (cut[index] ? size / ranks : size)),
    layout,
  };
}

function valueInfo(name: string, shape: readonly number[]): ValueInfoProto {
  const dim = shape.map((size) => ({ dim_value: size }));
  return { name, type: { tensor_type: { elem_type: onnxOfDtype('float32'), shape: { dim } } } };
}

function ones(shape: readonly number[]): ConstantTensor {
  const values = new Float32Array(shape.reduce((product, size) => product * size, 1)).fill(1);
  return { dtype: 'float32', shape, data: new Uint8Array(values.buffer) };
}
