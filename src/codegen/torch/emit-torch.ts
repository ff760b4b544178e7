/**
 * @file The torch target: a folder of readable Python that torchrun runs, from the same lowered form as program.json.
 */
import path from 'node:path';
import { byteLength, type DType } from '../../ir/dtype.js';
import { elementCount } from '../../ir/graph.js';
import type { ValueRange } from '../../ir/value-range.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { BEGIN, programPhases, UPDATE } from '../../partition/program-phases.js';
import type { ShardedGraph } from '../../partition/sharded-graph.js';
import { type StageWalk, walkStage } from '../../partition/stage-walk.js';
import { writeFileAtomic, writeJsonAtomic } from '../../program/atomic.js';
import { rankCount, shardText } from '../../program/mesh.js';
import type { Program, ProgramWeight } from '../../program/program.js';
import { type SafetensorsEntry, writeSafetensors } from '../../program/safetensors.js';
import { axesSize } from '../../sharding-propagation/mesh.js';
import { linkShards } from '../link-shards.js';
import { listNames } from '../schedule-csv.js';
import { COLLECTIVES } from './files/collectives.js';
import { CHECKPOINT, MAIN, REQUIREMENTS, STEPS } from './files/main.js';
import { meshFile } from './files/mesh.js';
import { operatorsFile, RUFF, torchReadme } from './files/texts.js';
import { VALUES } from './files/values.js';
import { type ListNames, type ModelFiles, modelFiles } from './model-file.js';
import { dtypeText } from './operators/operator.js';
import { withOwnFunctions } from './own-functions.js';
import { tensorOf } from './tensors.js';
import { withoutCopies } from './without-copies.js';

/** The files of the torch target, except weights. */
export interface TorchProgram {
  /** By name: the text of a file. */
  readonly files: Readonly<Record<string, string>>;
  /** Per stage, by parameter's dotted name: where its shard is. */
  readonly index: readonly Readonly<Record<string, TorchWeight>>[];
  /** Files of the bundled runtime's program that hold its parameters. */
  readonly shards: readonly string[];
  /** Constants that are in a file of their own. */
  readonly constants: readonly SafetensorsEntry[];
}

/** An entry of weights/index.json; `{k}` in the file is the rank's index on `axes`. */
type TorchWeight = Required<Pick<ProgramWeight, 'file' | 'key' | 'axes' | 'zeroUnlessFirst' | 'first'>> & {
  readonly dtype: string;
  /** null for a weight that is not a shard of a whole tensor. */
  readonly layout: readonly (readonly (readonly [size: number, axes: readonly string[]])[])[] | null;
  /** Per dimension of a layout that is padded: its parts, of which the first places are valid. */
  readonly extents: readonly (readonly (readonly [size: number, valid: number])[] | null)[] | null;
  /** Whether steps give it other values: a weight that is trained, or other state. */
  readonly kept: boolean;
  /** Whether it is in the host's memory, or on disk, while no operator reads it. */
  readonly onHost: boolean;
};

const CONSTANTS = 'weights/constants.safetensors';

/**
 * The Python of a program.
 * @param ranges by input: the values that it may hold, which the program checks
 * @throws AutoparError `target-lacks-operator` (exit backendAbsent) for an operator that torch has no function for
 */
export function torchProgram(
  given: readonly LoweredStage[],
  program: Program,
  ranges: ReadonlyMap<string, ValueRange> = new Map(),
): TorchProgram {
  const lowered = given.map((stage) => ({ ...stage, sharded: withoutCopies(withOwnFunctions(stage.sharded)) }));
  const graphs = lowered.map(({ sharded }) => sharded);
  const ranks = rankCount(program.mesh);
  const mesh = program.mesh.map(({ axis, size }) => `${axis} ${size}`).join(', ');
  const model = title(program.model.name);
  const names = lowered.length > 1 ? namedLists(graphs) : [];
  const walks = graphs.map((sharded, index) =>
    walkStage(
      // Both halves of a micro-batch run the same methods.
      { ...sharded, interleave: 1 },
      program.schedule
        .filter(({ stage }) => stage === index)
        .map(({ chunk, microBatch, phase }) => ({ chunk, microBatch, list: phase })),
    ),
  );
  const written = modelFiles(lowered, walks, names, `${model} on ${ranks} ranks: ${mesh}.`, ranges);
  const modules = Object.keys(written.files).filter((name) => name !== 'layers.py' && name !== 'optimizer.py');
  const operators = operatorsFile(Object.values(written.files).join('\n'));
  return {
    files: {
      'main.py': MAIN,
      'steps.py': STEPS,
      'checkpoint.py': CHECKPOINT,
      'mesh.py': meshFile(written, modules),
      'collectives.py': COLLECTIVES,
      'values.py': VALUES,
      ...written.files,
      ...(operators === null ? {} : { 'operators.py': operators }),
      ...(lowered.length > 1 ? { 'schedule.csv': scheduleRows(graphs, walks, names) } : {}),
      'requirements.txt': REQUIREMENTS,
      'ruff.toml': RUFF,
      'README.md': torchReadme({ model, ranks, mesh, isPipeline: lowered.length > 1 }),
    },
    ...weightsOf(lowered, program, written),
  };
}

/** The lists that run for each micro-batch, in PyTorch's action grammar; a list without a name there keeps its own. */
function namedLists(graphs: readonly ShardedGraph[]): ListNames {
  const known = listNames(graphs);
  return graphs.map((sharded, stage) => {
    const lists = programPhases(sharded).map(({ phase }) => phase);
    return new Map(
      lists
        .filter((list) => list !== BEGIN && list !== UPDATE)
        .map((list) => [list, known[stage]?.get(list) ?? `${list.replaceAll(' ', '_')}_`]),
    );
  });
}

/**
 * schedule.csv: a row per stage, an action of which is a list's name and the number of the micro-batch. A list without steps,
 * as the input gradient of an embedding alone, has no method and no action.
 */
function scheduleRows(stages: readonly ShardedGraph[], walks: readonly StageWalk[], names: ListNames): string {
  return walks
    .map(({ actions, lists }, stage) => {
      const { interleave = 1 } = stages[stage] ?? {};
      const empty = new Set(lists.filter(({ instructions }) => instructions.length === 0).map((list) => list.name));
      const row = actions.flatMap(({ list, microBatch }) => {
        if (empty.has(list)) return [];
        const name = names[stage]?.get(list) ?? names[stage]?.get(list.replace(/ \(last\)$/, ''));
        // Halves are numbered in the program, whole micro-batches in the schedule.
        return name === undefined ? [] : [`${name}${(microBatch ?? 0) / interleave}`];
      });
      return `${row.join(',')}\n`;
    })
    .join('');
}

function weightsOf(
  lowered: readonly LoweredStage[],
  { stages }: Program,
  { stages: written, axes: { named } }: ModelFiles,
): Pick<TorchProgram, 'index' | 'shards' | 'constants'> {
  const shards = new Set<string>();
  const constants = new Map<string, SafetensorsEntry>();
  const index = lowered.map(({ sharded }, stage) => {
    const { paths = new Map<string, string>(), constants: filed = [] } = written[stage] ?? {};
    const own: Record<string, TorchWeight> = {};
    const kept = new Set(sharded.state.map(({ to }) => to));
    for (const [tensor, name] of paths) {
      const place = stages[stage]?.weights[tensor];
      if (!place) throw new Error(`weight ${tensor} has no file`);
      const { file, key, axes, zeroUnlessFirst, dtype } = place;
      for (let shard = 0; file !== null && shard < axesSize(sharded.mesh, axes); shard++)
        shards.add(shardText(file, shard));
      const { layout, place: where, first = [] } = tensorOf(sharded, tensor);
      const isWhole = layout.partial.length === 0;
      const extents = layout.extents?.map((parts) => parts?.map(({ size, valid }) => [size, valid] as const) ?? null);
      const pieces = layout.dims.map((dim) => dim.map((piece) => [piece.size, named(piece.axes)] as const));
      own[name] = {
        ...{ file, key, axes: named(axes), zeroUnlessFirst: named(zeroUnlessFirst), first: named(first) },
        dtype: pythonDtype(dtype),
        layout: isWhole ? pieces : null,
        extents: extents ?? null,
        kept: kept.has(tensor),
        onHost: where !== undefined,
      };
    }
    for (const { path: name, tensor } of filed) {
      const key = `stage-${stage}/${tensor}`;
      const entry = constantEntry(sharded, tensor, key);
      constants.set(key, entry);
      const dtype = pythonDtype(entry.dtype);
      own[name] = {
        file: CONSTANTS,
        key,
        axes: [],
        zeroUnlessFirst: [],
        first: [],
        dtype,
        layout: null,
        extents: null,
        kept: false,
        onHost: false,
      };
    }
    return own;
  });
  return { index, shards: [...shards], constants: [...constants.values()] };
}

function pythonDtype(dtype: DType): string {
  return dtypeText(dtype).replace('torch.', '');
}

function constantEntry(sharded: ShardedGraph, tensor: string, key: string): SafetensorsEntry {
  const { dtype, localShape: shape } = tensorOf(sharded, tensor);
  const own = sharded.weights.find((weight) => weight.tensor === tensor)?.constant;
  const data = own ?? sharded.constants.get(tensor)?.data;
  if (data?.byteLength !== byteLength(dtype, elementCount(shape))) throw new Error(`constant ${tensor} has no value`);
  return { key, dtype, shape, pieces: () => [data] };
}

/** A model's name in a docstring. */
function title(name: string): string {
  return name.replace(/[\\"\n\r]+/g, ' ');
}

/**
 * Writes the program to `directory`, its weights being those of the bundled runtime's program in `beside`: the same files, under
 * a second name where the file system knows such.
 * @throws AutoparError (exit cannotWrite)
 */
export async function emitTorch(
  directory: string,
  { files, index, shards, constants }: TorchProgram,
  beside: string,
  signal?: AbortSignal,
): Promise<void> {
  await linkShards(shards, beside, directory, false, signal);
  for (const [name, text] of Object.entries(files)) await writeFileAtomic(path.join(directory, name), text);
  await writeJsonAtomic(path.join(directory, 'weights', 'index.json'), index);
  if (constants.length > 0) await writeSafetensors(path.join(directory, CONSTANTS), constants);
}
