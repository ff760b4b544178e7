/**
 * @file Hand-made segments and programs for tests: ONNX models encoded by onnx-proto, independent of our own writer.
 */
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import onnxProto from 'onnx-proto';
import { type DType, onnxOfDtype } from '../../src/ir/dtype.js';
import type { Lifetime } from '../../src/ir/graph.js';
import { describeSegments, type StageOutline } from '../../src/program/describe-segments.js';
import {
  PROGRAM_VERSION,
  type Program,
  type ProgramLayout,
  type ProgramStage,
  type ProgramTensor,
} from '../../src/program/program.js';
import { writeProgram } from '../../src/program/reader.js';
import { type SafetensorsEntry, writeSafetensors } from '../../src/program/safetensors.js';
import type { ConstantTensor } from '../../src/program/values.js';

const { onnx } = onnxProto;

export interface TinyValue {
  readonly name: string;
  readonly dtype?: DType;
  readonly shape: readonly number[];
}

export interface TinyNode {
  readonly op: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

/** An ONNX file; `weights` are initializers whose data is at the external location of their own name. */
export function tinyModel(
  nodes: readonly TinyNode[],
  inputs: readonly TinyValue[],
  outputs: readonly TinyValue[],
  weights: readonly TinyValue[] = [],
): Uint8Array {
  const valueInfo = ({ name, dtype = 'float32', shape }: TinyValue) => ({
    name,
    type: { tensorType: { elemType: onnxOfDtype(dtype), shape: { dim: shape.map((size) => ({ dimValue: size })) } } },
  });
  const model = onnx.ModelProto.create({
    irVersion: 8,
    opsetImport: [{ domain: '', version: 15 }],
    graph: {
      name: 'tiny',
      node: nodes.map(({ op, inputs: read, outputs: written }, index) => ({
        name: `${op}_${index}`,
        opType: op,
        input: [...read],
        output: [...written],
      })),
      input: inputs.map(valueInfo),
      output: outputs.map(valueInfo),
      initializer: weights.map(({ name, dtype = 'float32', shape }) => ({
        name,
        dataType: onnxOfDtype(dtype),
        dims: [...shape],
        dataLocation: onnx.TensorProto.DataLocation.EXTERNAL,
        externalData: [{ key: 'location', value: name }],
      })),
    },
  });
  return onnx.ModelProto.encode(model).finish();
}

export function float32(values: readonly number[], shape: readonly number[]): ConstantTensor {
  return { dtype: 'float32', shape, data: new Uint8Array(Float32Array.from(values).buffer) };
}

export function floats(tensor: ConstantTensor | undefined): number[] {
  const data = tensor?.data.slice() ?? new Uint8Array();
  return [...new Float32Array(data.buffer)];
}

/** `[dp, -]` as `layout([['dp'], []], shape)`, one piece a dimension. */
function layout(axes: readonly (readonly string[])[], shape: readonly number[], partial: string[] = []): ProgramLayout {
  return {
    dims: axes.map((names, index) => [{ size: shape[index] as number, axes: names }]),
    partial: partial.map((axis) => ({ axis, reduction: 'sum' })),
  };
}

export function tensor(
  shape: readonly number[],
  localShape: readonly number[],
  axes: readonly (readonly string[])[],
  more: { partial?: string[]; source?: string; dtype?: DType; lifetime?: Lifetime } = {},
): ProgramTensor {
  return {
    dtype: more.dtype ?? 'float32',
    shape,
    localShape,
    layout: layout(axes, shape, more.partial),
    lifetime: more.lifetime ?? 'step',
    ...(more.source === undefined ? {} : { source: more.source }),
  };
}

/** Segments need no types: `writeTiny` adds them. */
export function stageOf(parts: Partial<StageOutline>): ProgramStage {
  const outline: StageOutline = {
    tensors: {},
    segments: {},
    weights: {},
    coordinates: {},
    phases: { forward: [] },
    ...parts,
  };
  return outline as ProgramStage;
}

export function programOf(parts: Pick<Program, 'stages' | 'mesh'> & Partial<Program>): Program {
  return {
    format: 'autopar-program',
    version: PROGRAM_VERSION,
    model: { name: 'tiny', fingerprint: '0' },
    inputs: [],
    outputs: [],
    schedule: parts.stages.map((_, stage) => ({ stage, chunk: 0, microBatch: null, phase: 'forward' })),
    ...parts,
  };
}

export function axis(name: string, size: number): Program['mesh'][number] {
  return { axis: name, size, subAxes: [{ name, size }] };
}

/** A fresh folder, filled with program.json, segments and safetensors files. */
export async function writeTiny(
  program: Program,
  segments: Readonly<Record<string, Uint8Array>>,
  weights: Readonly<Record<string, readonly SafetensorsEntry[]>> = {},
  change: (program: Program) => Program = (same) => same,
): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'autopar-test-'));
  await mkdir(path.join(folder, 'segments'));
  await mkdir(path.join(folder, 'weights'));
  for (const [file, bytes] of Object.entries(segments)) await writeFile(path.join(folder, 'segments', file), bytes);
  for (const [file, entries] of Object.entries(weights))
    await writeSafetensors(path.join(folder, 'weights', file), entries);
  const files = new Map(Object.entries(segments).map(([file, bytes]) => [`segments/${file}`, bytes]));
  await writeProgram(folder, change(describeSegments(program, files)));
  return folder;
}

/**
 * y = relu(x) · w over 2 ranks, the inner dimension sharded: x [2, 4] as [-, tp], w [4, 3] as [tp, -], then an
 * all-reduce; out = y + offset of the rank's coordinate, gathered over ranks into [2, 2, 3]'s first dimension.
 */
export async function tinyMatmul(change: (program: Program) => Program = (same) => same): Promise<string> {
  const program = programOf({
    mesh: [axis('tp', 2)],
    inputs: [{ name: 'x', dtype: 'float32', shape: [2, 4], stage: 0, tensor: 'x' }],
    outputs: [
      { name: 'y', dtype: 'float32', shape: [2, 3], stage: 0, tensor: 'y' },
      { name: 'offset', dtype: 'float32', shape: [2], stage: 0, tensor: 'offset' },
    ],
    stages: [
      stageOf({
        tensors: {
          x: tensor([2, 4], [2, 2], [[], ['tp']], { source: 'x' }),
          p: tensor([2, 3], [2, 3], [[], []], { partial: ['tp'], source: 'm' }),
          y: tensor([2, 3], [2, 3], [[], []], { source: 'm' }),
          offset: tensor([2], [1], [['tp']]),
        },
        segments: {
          mm: {
            file: 'segments/mm.onnx',
            inputs: ['a'],
            weights: ['w'],
            outputs: ['b'],
            flops: 24,
            operators: ['Relu', 'MatMul'],
          },
          cast: {
            file: 'segments/cast.onnx',
            inputs: ['i'],
            weights: [],
            outputs: ['f'],
            flops: 1,
            operators: ['Sqrt'],
          },
        },
        weights: {
          w: {
            file: 'weights/w-{k}.safetensors',
            key: 'w',
            axes: ['tp'],
            dtype: 'float32',
            localShape: [2, 3],
            zeroUnlessFirst: [],
          },
        },
        coordinates: { c: { axes: ['tp'], block: 4, bias: 1 } },
        phases: {
          forward: [
            { kind: 'compute', segment: 'mm', inputs: ['x'], weights: ['w'], outputs: ['p'], label: 'layer 0 MatMul' },
            {
              kind: 'start',
              id: 0,
              collective: { kind: 'all-reduce', reduction: 'sum' },
              axes: ['tp'],
              input: 'p',
              output: 'y',
              label: 'layer 0 MatMul',
            },
            { kind: 'compute', segment: 'cast', inputs: ['c'], weights: [], outputs: ['offset'], label: 'offset' },
            { kind: 'wait', id: 0 },
            { kind: 'free', tensors: ['x', 'p'] },
          ],
        },
      }),
    ],
  });
  const matmul = tinyModel(
    [
      { op: 'Relu', inputs: ['a'], outputs: ['r'] },
      { op: 'MatMul', inputs: ['r', 'w'], outputs: ['b'] },
    ],
    [{ name: 'a', shape: [2, 2] }],
    [{ name: 'b', shape: [2, 3] }],
    [{ name: 'w', shape: [2, 3] }],
  );
  const cast = tinyCast();
  const shard = (rows: readonly number[]): SafetensorsEntry => ({
    key: 'w',
    ...float32(rows, [2, 3]),
    pieces: () => [float32(rows, [2, 3]).data],
  });
  return writeTiny(
    program,
    { 'mm.onnx': matmul, 'cast.onnx': cast },
    { 'w-0.safetensors': [shard([1, 2, 3, 4, 5, 6])], 'w-1.safetensors': [shard([7, 8, 9, 10, 11, 12])] },
    change,
  );
}

/** int64 [1] → float32 [1]. */
function tinyCast(): Uint8Array {
  const model = onnx.ModelProto.decode(
    tinyModel(
      [{ op: 'Cast', inputs: ['i'], outputs: ['f'] }],
      [{ name: 'i', dtype: 'int64', shape: [1] }],
      [{ name: 'f', shape: [1] }],
    ),
  );
  const node = model.graph?.node?.[0];
  if (node) node.attribute = [{ name: 'to', type: onnx.AttributeProto.AttributeType.INT, i: 1 }];
  return onnx.ModelProto.encode(model).finish();
}
