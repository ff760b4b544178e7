/**
 * @file Recutting the weights of one program for another of the same model: each weight is assembled from the first
 * program's shards and sharded as the second requires, one at a time, so that no more than one whole weight is in memory.
 */
import { byteLength } from '../ir/dtype.js';
import { AutoparError } from '../ir/error.js';
import { type ConstantTensor, elementCount } from '../ir/graph.js';
import { ownFile } from './inside-folder.js';
import { rankCount, shardCount, shardIndex, shardText, stageAxes } from './mesh.js';
import type { Program, ProgramAxis, ProgramLayout, ProgramWeight } from './program.js';
import { openSafetensors, type SafetensorsEntry, type SafetensorsFile, writeSafetensors } from './safetensors.js';
import { assembleShards, cutShard, holders } from './shards.js';

/** A program and the folder that its weight files are relative to. */
export interface ProgramPlace {
  readonly program: Program;
  readonly folder: string;
}

/**
 * Writes the weight files of `to` from those of `from`: byte for byte the same as compiling from the original weights.
 * @param placeOf where to write a file that program.json names; its folder must exist
 * @param constantOf the model's constants: those that all ranks of `from` hold whole may be part of its segments, without a file
 * @throws AutoparError `weights-cannot-be-recut` (input) for programs of an older autopar and for a weight that `from` lacks
 *   or holds otherwise; (cannotWrite) where the disk is full
 */
export async function recutWeights(
  from: ProgramPlace,
  to: Program,
  placeOf: (file: string) => string,
  constantOf: (name: string) => Promise<ConstantTensor | null>,
  signal?: AbortSignal,
): Promise<void> {
  const sources = sourcesOf(from);
  const open = new Map<string, Promise<SafetensorsFile>>();
  const opened = (file: string): Promise<SafetensorsFile> => {
    const known = open.get(file) ?? ownFile(from.folder, file).then(openSafetensors);
    open.set(file, known);
    return known;
  };
  try {
    for (const [file, entries] of targets(
      to,
      (weight) => unshardedWeight(weight, sources, from, opened, constantOf),
      signal,
    ))
      await writeSafetensors(placeOf(file), entries);
  } finally {
    for (const file of open.values()) await file.then((found) => found.close()).catch(() => undefined);
  }
}

/** A weight with the fields that recutting needs. */
type CutWeight = ProgramWeight & {
  readonly source: string;
  readonly shape: readonly number[];
  readonly layout: ProgramLayout;
};

interface RecutSource {
  readonly weight: CutWeight;
  /** The mesh of its stage. */
  readonly axes: readonly ProgramAxis[];
}

/** For every weight: the record that needs the fewest shards to assemble it. */
function sourcesOf({ program, folder }: ProgramPlace): ReadonlyMap<string, RecutSource> {
  const axes = stageAxes(program.mesh, program.stages.length);
  const sources = new Map<string, RecutSource>();
  for (const place of program.stages.flatMap((stage) => Object.values(stage.weights))) {
    const weight = checked(place, folder);
    const before = sources.get(weight.source);
    if (!before || shardCount(axes, weight.axes) < shardCount(axes, before.weight.axes))
      sources.set(weight.source, { weight, axes });
  }
  return sources;
}

/** Per file of the target its entries, in the order in which codegen writes them: that of the sorted keys of program.json. */
function targets(
  { mesh, stages }: Program,
  whole: (weight: CutWeight) => Promise<Uint8Array>,
  signal: AbortSignal | undefined,
): ReadonlyMap<string, readonly SafetensorsEntry[]> {
  const axes = stageAxes(mesh, stages.length);
  const files = new Map<string, SafetensorsEntry[]>();
  for (const [, place] of stages.flatMap((stage) => Object.entries(stage.weights).sort(byName))) {
    const weight = checked(place, 'the target');
    const { file: pattern } = weight;
    if (pattern === null) continue;
    for (let shard = 0; shard < shardCount(axes, weight.axes); shard++) {
      const file = shardText(pattern, shard);
      const entries = files.get(file) ?? [];
      entries.push({
        key: weight.key,
        dtype: weight.dtype,
        shape: weight.localShape,
        pieces: async function* () {
          signal?.throwIfAborted();
          const bytes = await whole(weight);
          yield cutShard(bytes, weight.shape, weight.dtype, weight.layout, axes, rankOf(axes, weight.axes, shard));
        },
      });
      files.set(file, entries);
    }
  }
  return files;
}

async function unshardedWeight(
  wanted: CutWeight,
  sources: ReadonlyMap<string, RecutSource>,
  { folder }: ProgramPlace,
  opened: (file: string) => Promise<SafetensorsFile>,
  constantOf: (name: string) => Promise<ConstantTensor | null>,
): Promise<Uint8Array> {
  const found = sources.get(wanted.source);
  const constant = found ? null : await constantOf(wanted.source);
  const held = found?.weight ?? constant;
  if (!held) throw cannot(`the program in ${folder} has no weight ${wanted.source}`, folder, wanted.source);
  if (held.dtype !== wanted.dtype || held.shape.join() !== wanted.shape.join()) {
    const [one, other] = [held, wanted].map(({ dtype, shape }) => `${dtype} [${shape.join(', ')}]`);
    throw cannot(`weight ${wanted.source} is ${one} in ${folder} and ${other} in the target`, folder, wanted.source);
  }
  if (!found) return constant?.data ?? new Uint8Array();
  const { weight, axes } = found;
  if (weight.file === null) return new Uint8Array(byteLength(weight.dtype, elementCount(weight.shape)));
  const shards: Uint8Array[] = [];
  for (const rank of holders(weight.layout, axes)) {
    const file = await opened(shardText(weight.file, shardIndex(axes, weight.axes, rank)));
    shards[rank] = (await file.read(weight.key)).data;
  }
  return assembleShards(shards, weight.shape, weight.dtype, weight.layout, axes);
}

/** The first rank that holds a shard. */
function rankOf(axes: readonly ProgramAxis[], names: readonly string[], shard: number): number {
  for (let rank = 0; rank < rankCount(axes); rank++) if (shardIndex(axes, names, rank) === shard) return rank;
  throw new Error(`no rank holds shard ${shard}`);
}

function byName([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function checked(weight: ProgramWeight, folder: string): CutWeight {
  const { source, shape, layout } = weight;
  if (source !== undefined && shape && layout) return { ...weight, source, shape, layout };
  throw cannot(
    `${folder} was compiled by a version of autopar that did not record how weights are sharded`,
    folder,
    weight.key,
  );
}

function cannot(message: string, file: string, tensor: string): AutoparError {
  return new AutoparError('weights-cannot-be-recut', 'input', message, { file, tensor }, 'compile the model again');
}
