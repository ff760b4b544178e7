/**
 * @file One measurement: a program that repeats one operation, run by the runtime that runs compiled programs.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import path from 'node:path';
import type { MeasuredSubject } from '../../cost-model/fit-profile.js';
import type { CollectiveKind } from '../../cost-model/levels.js';
import { onnxOfDtype } from '../../ir/dtype.js';
import type { ConstantTensor } from '../../ir/graph.js';
import { listening } from '../../ir/interruption.js';
import { encodeModel, type NodeProto, type ValueInfoProto } from '../../ir/onnx/schema.js';
import { describeSegments, type SegmentOutline, type StageOutline } from '../../program/describe-segments.js';
import {
  type Instruction,
  PROGRAM_VERSION,
  type Program,
  type ProgramCollective,
  type ProgramLayout,
  type ProgramTensor,
} from '../../program/program.js';
import { writeProgram } from '../../program/reader.js';
import { runProgram } from '../../runtime/run-program.js';

export interface Timing {
  /** Repetitions per step, and number of timed steps after one warm-up step. */
  readonly repeats: number;
  readonly steps: number;
}

/**
 * Seconds of one execution in the fastest step, which other processes disturbed least. Ranks that only compute do not wait for
 * other ranks: if other processes used the processor even in that step, the smaller processor time per rank counts. If ranks
 * outnumber the cores, the wall time counts, since the measurement is about ranks that share cores.
 * @throws AutoparError as `runProgram`
 */
export function measure(
  subject: MeasuredSubject,
  ranks: number,
  timing: Timing,
  signal?: AbortSignal,
): Promise<number> {
  return listening(signal, () => measured(subject, ranks, timing, signal));
}

async function measured(
  subject: MeasuredSubject,
  ranks: number,
  { repeats, steps }: Timing,
  signal: AbortSignal | undefined,
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
    const waits = subject.kind === 'collective' || ranks > availableParallelism();
    return (waits ? fastest : Math.min(fastest, processorSeconds / ranks)) / repeats;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

const SEGMENT_FILE = 'segments/measured.onnx';
const AXIS = 'tp';

interface MeasuredProgram {
  readonly program: Program;
  /** The model of the segment; null if nothing is computed. */
  readonly model: Uint8Array | null;
}

function programOf(subject: MeasuredSubject, ranks: number, repeats: number): MeasuredProgram {
  if (subject.kind === 'collective') return collectiveProgram(subject.collective, subject.elements, ranks, repeats);
  return computeProgram(segmentOf(subject), ranks, repeats);
}

interface SegmentModel {
  readonly inputs: Readonly<Record<string, readonly number[]>>;
  /** Weights that are stored in the model. */
  readonly weights?: Readonly<Record<string, readonly number[]>>;
  readonly results: Readonly<Record<string, readonly number[]>>;
  readonly nodes: readonly NodeProto[];
}

function segmentOf(subject: Exclude<MeasuredSubject, { kind: 'collective' }>): SegmentModel {
  if (subject.kind === 'wide') {
    const named = (letter: string) => Array.from({ length: subject.tensors }, (_, index) => `${letter}${index}`);
    const shapes = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, [subject.elements]]));
    const nodes = named('a').map((input, index) => ({ op_type: 'Neg', input: [input], output: [`y${index}`] }));
    return { inputs: shapes(named('a')), results: shapes(named('y')), nodes };
  }
  const { operators } = subject;
  // The operators alternate, so that no optimiser fuses them into one.
  if (subject.kind === 'chain') {
    const nodes = chain(operators, (index) => [index % 2 === 0 ? 'Exp' : 'Neg']);
    return { inputs: { a: [1] }, results: { y: [1] }, nodes };
  }
  // Each operator has its own operand, as in real programs: a shared operand would stay in the nearest cache.
  const others = Array.from({ length: operators }, (_, index) => `b${index}`);
  const nodes = chain(operators, (index) => [subject.kind === 'add' ? 'Add' : 'MatMul', `b${index}`]);
  const shape = subject.kind === 'add' ? [subject.elements] : [subject.rows, subject.side];
  const other = subject.kind === 'add' ? shape : [subject.side, subject.side];
  const operands = Object.fromEntries(others.map((name) => [name, other]));
  return subject.kind === 'matmul' && subject.stored
    ? { inputs: { a: shape }, weights: operands, results: { y: shape }, nodes }
    : { inputs: { a: shape, ...operands }, results: { y: shape }, nodes };
}

/** A chain of operators from a to y; each reads the result of the previous one, and its other operands. */
function chain(
  operators: number,
  at: (index: number) => readonly [type: string, ...others: string[]],
): readonly NodeProto[] {
  const name = (index: number) => (index === 0 ? 'a' : index === operators ? 'y' : `t${index}`);
  return Array.from({ length: operators }, (_, index) => {
    const [type, ...others] = at(index);
    return { op_type: type, input: [name(index), ...others], output: [name(index + 1)] };
  });
}

function computeProgram(segment: SegmentModel, ranks: number, repeats: number): MeasuredProgram {
  const [inputs, outputs] = [Object.keys(segment.inputs), Object.keys(segment.results)];
  const tensors = { ...unshardedTensors(segment.inputs, ranks), ...unshardedTensors(segment.results, ranks) };
  const once: readonly Instruction[] = [
    { kind: 'compute', segment: 'measured', inputs, weights: [], outputs, label: 'measured' },
    { kind: 'free', tensors: outputs },
  ];
  const stage = { tensors, segments: { measured: recordOf(segment) } };
  const instructions = Array.from({ length: repeats }, () => once).flat();
  const model = modelOf(segment);
  const files = new Map([[SEGMENT_FILE, model]]);
  return { program: describeSegments(program(segment.inputs, stage, instructions, ranks), files), model };
}

function unshardedTensors(shapes: Readonly<Record<string, readonly number[]>>, ranks: number) {
  const cut = (shape: readonly number[]) => shape.map(() => false);
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => [name, tensor(shape, { cut: cut(shape) }, ranks)]),
  );
}

function modelOf({ inputs, weights = {}, results, nodes }: SegmentModel): Uint8Array {
  const named = (shapes: Readonly<Record<string, readonly number[]>>) =>
    Object.entries(shapes).map(([name, shape]) => valueInfo(name, shape));
  return encodeModel({
    ir_version: 8,
    opset_import: [{ domain: '', version: 15 }],
    graph: {
      name: 'measured',
      node: nodes,
      input: named(inputs),
      output: named(results),
      initializer: Object.entries(weights).map(([name, shape]) => ({
        ...{ name, dims: shape, data_type: onnxOfDtype('float32') },
        raw_data: ones(shape).data,
      })),
    },
  });
}

function recordOf({ inputs, results, nodes }: SegmentModel): SegmentOutline {
  return {
    file: SEGMENT_FILE,
    inputs: Object.keys(inputs),
    weights: [],
    outputs: Object.keys(results),
    flops: 0,
    operators: [...new Set(nodes.map(({ op_type = '' }) => op_type))],
  };
}

function collectiveProgram(kind: CollectiveKind, elements: number, ranks: number, repeats: number): MeasuredProgram {
  const { collective, from, to, shape } = exchangeOf(kind, elements, ranks);
  const instructions = Array.from({ length: repeats }, (_, id): readonly Instruction[] => [
    { kind: 'start', id, collective, axes: [AXIS], input: 'a', output: 'y', label: 'measured' },
    { kind: 'wait', id },
    { kind: 'free', tensors: ['y'] },
  ]).flat();
  const tensors = { a: tensor(shape, from, ranks), y: tensor(shape, to, ranks) };
  const bare = program({ a: shape }, { tensors, segments: {} }, instructions, ranks);
  return { program: describeSegments(bare, new Map()), model: null };
}

interface MeasuredExchange {
  readonly collective: ProgramCollective;
  readonly shape: readonly number[];
  /** Placements before and after the collective. */
  readonly from: RankPlacement;
  readonly to: RankPlacement;
}

/** The dimensions that are sharded; whether ranks hold partial sums or unrelated values, or only the first rank holds all. */
interface RankPlacement {
  readonly cut: readonly boolean[];
  readonly partial?: boolean;
  readonly varies?: boolean;
  readonly first?: boolean;
}

function exchangeOf(kind: CollectiveKind, elements: number, ranks: number): MeasuredExchange {
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
    const varies = { cut: [false], varies: true };
    const round = Array.from({ length: ranks }, (_, rank) => (rank + 1) % ranks);
    return { collective: { kind, to: round }, shape: [elements], from: varies, to: varies };
  }
  const first = { cut: [false], first: true };
  if (kind === 'reduce') return { collective: { kind, reduction: 'sum' }, shape: [elements], from: partial, to: first };
  return { collective: { kind }, shape: [elements], from: first, to: whole };
}

function program(
  inputs: Readonly<Record<string, readonly number[]>>,
  { tensors, segments }: Pick<StageOutline, 'tensors' | 'segments'>,
  forward: readonly Instruction[],
  ranks: number,
): Parameters<typeof describeSegments>[0] {
  return {
    format: 'autopar-program',
    version: PROGRAM_VERSION,
    model: { name: 'measured', fingerprint: '0' },
    mesh: [{ axis: AXIS, size: ranks, subAxes: [{ name: AXIS, size: ranks }] }],
    inputs: Object.entries(inputs).map(([name, shape]) => ({ name, dtype: 'float32', shape, stage: 0, tensor: name })),
    outputs: [],
    stages: [{ tensors, segments, weights: {}, coordinates: {}, phases: { forward } }],
    schedule: [{ stage: 0, chunk: 0, microBatch: null, phase: 'forward' }],
  };
}

function tensor(
  shape: readonly number[],
  { cut, partial, varies, first }: RankPlacement,
  ranks: number,
): ProgramTensor {
  const layout: ProgramLayout = {
    dims: shape.map((size, index) => [{ size, axes: cut[index] ? [AXIS] : [] }]),
    partial: partial ? [{ axis: AXIS, reduction: 'sum' }] : [],
  };
  return {
    dtype: 'float32',
    shape,
    localShape: shape.map((size, index) => (cut[index] ? size / ranks : size)),
    layout,
    lifetime: 'step',
    ...(varies ? { varying: [AXIS] } : {}),
    ...(first ? { first: [AXIS] } : {}),
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
