/**
 * @file The ONNX target: a model per rank, whose collectives are operators, and index.json, which states how whole tensors are
 * sharded over the ranks.
 */
import path from 'node:path';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { writeFileAtomic, writeJsonAtomic } from '../../program/atomic.js';
import { boxesOf, type PlacedBox } from '../../program/boxes.js';
import { rankCount } from '../../program/mesh.js';
import type { Program, ProgramValue } from '../../program/program.js';
import { openSafetensors } from '../../program/safetensors.js';
import { shardShape } from '../../program/shards.js';
import { linkShards } from '../link-shards.js';
import { type FileSpan, type RankModels, rankModels } from './rank-models.js';
import { onnxReadme } from './readme.js';
import { axesOfStage, type OnnxStageGraph, type RankTransfer, stageGraph } from './stage-graph.js';

/** The files of the ONNX target, except weights. */
export interface OnnxProgram {
  readonly stages: readonly (OnnxStageGraph & RankModels)[];
  readonly program: Program;
}

/**
 * The models of a program's ranks.
 * @throws AutoparError `target-lacks-plan` (exit backendAbsent) for a step that one pass through the stages is not
 */
export function onnxProgram(lowered: readonly LoweredStage[], program: Program): OnnxProgram {
  const stages = lowered.map((own, stage) => {
    const made = stageGraph(own, stage, program);
    const axes = axesOfStage(program, stage);
    const record = program.stages[stage];
    if (!record) throw new Error(`the program has no stage ${stage}`);
    return { ...made, ...rankModels(made, record, axes, rankCount(axes)) };
  });
  return { stages, program };
}

/**
 * Writes the models to `directory`, which is there; their weights are those of the bundled runtime's program in `beside`.
 * @throws AutoparError (exit cannotWrite)
 */
export async function emitOnnx(
  directory: string,
  { stages, program }: OnnxProgram,
  beside: string,
  signal?: AbortSignal,
): Promise<void> {
  await linkShards(new Set(stages.flatMap(({ shards }) => [...shards])), beside, directory, true, signal);
  const ranks: object[] = [];
  for (const [stage, own] of stages.entries()) {
    const spanOf = await spansIn(directory, own.shards);
    const files = new Map<string, string>();
    const count = rankCount(axesOfStage(program, stage));
    for (let inStage = 0; inStage < count; inStage++) {
      signal?.throwIfAborted();
      const rank = stage * count + inStage;
      const key = own.keyOf(inStage);
      const file = files.get(key) ?? `rank-${rank}.onnx`;
      if (!files.has(key)) await writeFileAtomic(path.join(directory, file), own.model(inStage, spanOf));
      files.set(key, file);
      ranks.push({ rank, stage, file, ...valuesOf(program, stage, own, inStage) });
    }
  }
  await writeFileAtomic(path.join(directory, 'README.md'), onnxReadme(program));
  const mesh = program.mesh.map(({ axis, size }) => ({ axis, size }));
  await writeJsonAtomic(path.join(directory, 'index.json'), { format: 'autopar-onnx', version: 1, mesh, ranks });
}

async function spansIn(
  directory: string,
  shards: ReadonlySet<string>,
): Promise<(file: string, key: string) => FileSpan> {
  const known = new Map<string, ReadonlyMap<string, FileSpan>>();
  for (const shard of shards) {
    const { entries, start, close } = await openSafetensors(path.join(directory, shard));
    await close();
    known.set(
      shard,
      new Map([...entries].map(([key, { offset, length }]) => [key, { offset: start + offset, length }])),
    );
  }
  return (file, key) => {
    const span = known.get(file)?.get(key);
    if (!span) throw new Error(`${file} holds no ${key}`);
    return span;
  };
}

/** A box as index.json has it. */
function boxInFile({ offset, size, inShard }: PlacedBox): object {
  return { offset, size, inBlock: inShard };
}

/** A rank's entry of index.json: its inputs and outputs, its sends to and receives from other stages, its state. */
function valuesOf(program: Program, stage: number, own: OnnxStageGraph & RankModels, inStage: number): object {
  const axes = axesOfStage(program, stage);
  const value = ({ name, tensor, shape, dtype }: ProgramValue) => {
    const layout = program.stages[stage]?.tensors[tensor]?.layout ?? { dims: [], partial: [] };
    const boxes = boxesOf(shape, layout, axes, inStage);
    return { name, dtype, whole: shape, block: shardShape(shape, layout, axes), boxes: boxes.map(boxInFile) };
  };
  const peer = ({ stage: other, label }: RankTransfer) => ({ rank: other * rankCount(axes) + inStage, label });
  const leaving = (tensor: string) => own.outputs.get(tensor) ?? tensor;
  const here = (values: readonly ProgramValue[]) => values.filter((each) => each.stage === stage);
  return {
    inputs: here(program.inputs).map((each) => ({ tensor: each.tensor, ...value(each) })),
    outputs: here(program.outputs).map((each) => ({ ...value(each), tensor: leaving(each.tensor) })),
    receives: own.receives.map((each) => ({ tensor: each.tensor, ...peer(each) })),
    sends: own.sends.map((each) => ({ tensor: leaving(each.tensor), ...peer(each) })),
    state: (program.state ?? [])
      .filter((each) => each.stage === stage)
      .map(({ from, to }) => ({ output: leaving(from), input: to, zeros: own.zeros.has(to) })),
  };
}
