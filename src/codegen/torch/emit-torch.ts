/**
 * @file The torch target: a folder of readable Python that torchrun runs, from the same lowered form as program.json.
 */
import { copyFile, link, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { byteLength } from '../../ir/dtype.js';
import { elementCount } from '../../ir/graph.js';
import type { LoweredStage } from '../../partition/lower-stages.js';
import { actionsOf } from '../../partition/placed-actions.js';
import { walkStage } from '../../partition/stage-walk.js';
import { cannotWrite, writeFileAtomic, writeJsonAtomic } from '../../program/atomic.js';
import { rankCount, shardText } from '../../program/mesh.js';
import type { Program, ProgramWeight } from '../../program/program.js';
import { writeSafetensors } from '../../program/safetensors.js';
import { axesSize } from '../../sharding-propagation/mesh.js';
import { COLLECTIVES } from './files/collectives.js';
import { meshFile } from './files/mesh.js';
import { operatorsFile, REQUIREMENTS, RUFF, readme } from './files/texts.js';
import { MAIN, VALUES } from './files/values.js';
import { lacks } from './method.js';
import { inputsOf, modelFile, outputsOf } from './model-file.js';
import type { FiledConstant } from './module.js';
import { tensorOf } from './tensors.js';

/** What is written of the torch target, but for weights. */
export interface TorchProgram {
  /** By name: the text of a file. */
  readonly files: Readonly<Record<string, string>>;
  /** By parameter's dotted name: where its block is. */
  readonly index: Readonly<Record<string, TorchWeight>>;
  /** Files of the bundled runtime's program that hold its parameters. */
  readonly shards: readonly string[];
  readonly constants: readonly FiledConstant[];
}

/** An entry of weights/index.json; `{k}` in the file is the rank's index on `axes`. */
type TorchWeight = Pick<ProgramWeight, 'file' | 'key' | 'axes' | 'zeroUnlessFirst'> & {
  readonly layout: readonly (readonly (readonly [size: number, axes: readonly string[]])[])[] | null;
};

const CONSTANTS = 'weights/constants.safetensors';

/**
 * The Python of a program.
 * @throws AutoparError `target-lacks-plan`, `target-lacks-operator` (exit backendAbsent) for what the target has no code for
 */
export function torchProgram(lowered: readonly LoweredStage[], program: Program): TorchProgram {
  const [stage, ...others] = lowered;
  if (!stage || others.length > 0 || stage.sharded.pipeline)
    throw lacks(`pipelines of several stages (pp ${lowered.length})`, stage?.graph.nodes[0]?.name ?? '');
  const { sharded } = stage;
  for (const { tensor } of [...inputsOf(sharded), ...outputsOf(sharded)])
    if (tensorOf(sharded, tensor).layout.extents)
      throw lacks(`inputs and outputs that are padded (${tensor})`, sharded.nodes[0]?.origin ?? '');
  const walk = walkStage(sharded, actionsOf(lowered)[0] ?? []);
  const ranks = rankCount(program.mesh);
  const mesh = program.mesh.map(({ axis, size }) => `${axis} ${size}`).join(', ');
  const written = modelFile(sharded, walk, `${title(program.model.name)} on ${ranks} ranks: ${mesh}.`);
  const { named } = written.axes;
  const places = program.stages[0]?.weights ?? {};
  const index: Record<string, TorchWeight> = {};
  const shards = new Set<string>();
  for (const [tensor, name] of written.paths) {
    const place = places[tensor];
    if (!place) throw new Error(`weight ${tensor} has no file`);
    const { file, key, axes, zeroUnlessFirst } = place;
    for (let shard = 0; file !== null && shard < axesSize(sharded.mesh, axes); shard++)
      shards.add(shardText(file, shard));
    const { layout } = tensorOf(sharded, tensor);
    const isWhole = !layout.extents && layout.partial.length === 0;
    const pieces = layout.dims.map((dim) => dim.map((piece) => [piece.size, named(piece.axes)] as const));
    index[name] = {
      ...{ file, key, axes: named(axes), zeroUnlessFirst: named(zeroUnlessFirst) },
      layout: isWhole ? pieces : null,
    };
  }
  for (const { path: name, tensor } of written.constants)
    index[name] = { file: CONSTANTS, key: tensor, axes: [], zeroUnlessFirst: [], layout: null };
  const operators = operatorsFile(written.uses.operators);
  return {
    files: {
      'main.py': MAIN,
      'mesh.py': meshFile(written.axes, written.groups),
      'collectives.py': COLLECTIVES,
      'values.py': VALUES,
      'model.py': written.text,
      ...(operators === null ? {} : { 'operators.py': operators }),
      'requirements.txt': REQUIREMENTS,
      'ruff.toml': RUFF,
      'README.md': readme({ model: title(program.model.name), ranks, mesh, layers: [] }),
    },
    index,
    shards: [...shards],
    constants: written.constants,
  };
}

/** A model's name in a docstring. */
function title(name: string): string {
  return name.replace(/[\\"\n\r]+/g, ' ');
}

/**
 * Writes the program to `directory`, its weights being those of the bundled runtime's program in `beside`: the same files, under a
 * second name where the file system knows such.
 * @throws AutoparError (exit cannotWrite)
 */
export async function emitTorch(
  directory: string,
  { files, index, shards, constants }: TorchProgram,
  { sharded }: LoweredStage,
  beside: string,
  signal?: AbortSignal,
): Promise<void> {
  try {
    await mkdir(path.join(directory, 'weights'), { recursive: true });
    for (const file of shards) {
      signal?.throwIfAborted();
      await linked(path.join(beside, file), path.join(directory, file));
    }
  } catch (error) {
    throw cannotWrite(error, directory);
  }
  for (const [name, text] of Object.entries(files)) await writeFileAtomic(path.join(directory, name), text);
  await writeJsonAtomic(path.join(directory, 'weights', 'index.json'), index);
  const values = new Map(
    sharded.weights.flatMap(({ tensor, constant }) => (constant ? [[tensor, constant] as const] : [])),
  );
  const entries = [...new Set(constants.map(({ tensor }) => tensor))].map((tensor) => {
    const { dtype, localShape: shape } = tensorOf(sharded, tensor);
    const data = values.get(tensor) ?? sharded.constants.get(tensor)?.data;
    if (data?.byteLength !== byteLength(dtype, elementCount(shape))) throw new Error(`constant ${tensor} has no value`);
    return { key: tensor, dtype, shape, pieces: () => [data] };
  });
  if (entries.length > 0) await writeSafetensors(path.join(directory, CONSTANTS), entries);
}

/** A second name of a file, or a copy where there are none. */
async function linked(from: string, to: string): Promise<void> {
  await link(from, to).catch(() => copyFile(from, to));
}
