/**
 * @file Weight shards: each weight sharded by its layout, once per distinct shard.
 *
 * Weights that are sharded over the same axes are in one file per shard number: `weights/whole.safetensors`,
 * `weights/tp-0.safetensors`, `weights/tp-1.safetensors`, …. A rank reads the file with its index on these axes.
 */
import { AutoparError } from '../ir/error.js';
import { type Graph, storedIn, type Weight } from '../ir/graph.js';
import { withoutData } from '../ir/onnx/external-data.js';
import { loadWeight } from '../ir/onnx/tensors.js';
import { openWeight, PIECE, type Room } from '../ir/onnx/weight-reader.js';
import type { ShardedGraph, ShardedTensor } from '../partition/sharded-graph.js';
import { shardText } from '../program/mesh.js';
import type { ProgramAxis, ProgramLayout, ProgramWeight } from '../program/program.js';
import { type SafetensorsEntry, writeSafetensors } from '../program/safetensors.js';
import { cutPieces, cutShard } from '../program/shards.js';
import type { SubAxis } from '../sharding-propagation/mesh.js';
import { axesSize, subAxes, subAxisSize } from '../sharding-propagation/mesh.js';

/** A tensor of the sharded graph, and the weight that its shards are read from. */
export interface ShardSource {
  readonly tensor: string;
  readonly weight: string;
}

/** Weights, and state as it is before the first step. */
function storedTensors(sharded: ShardedGraph): readonly ShardSource[] {
  return [...sharded.weights, ...sharded.state.map(({ to }) => ({ tensor: to, weight: to }))];
}

/** Where each bound weight's shard is found: by tensor of the sharded graph. `prefix` begins the names of files. */
export function placeWeights(
  graph: Graph,
  sharded: ShardedGraph,
  bound: ReadonlySet<string>,
  prefix: string,
): Readonly<Record<string, ProgramWeight>> {
  const result: Record<string, ProgramWeight> = {};
  for (const { tensor, weight } of storedTensors(sharded)) {
    if (!bound.has(tensor)) continue;
    const type = typeOfTensor(sharded, tensor);
    const axes = cutAxes(sharded, type);
    result[tensor] = {
      file: isZero(graph, weight)
        ? null
        : `weights/${prefix}${axes.length === 0 ? 'whole' : `${axes.join('+')}-{k}`}.safetensors`,
      key: tensor,
      axes,
      dtype: type.dtype,
      localShape: type.localShape,
      zeroUnlessFirst: type.layout.partial.map((partial) => partial.axis),
      ...(type.first ? { first: type.first } : {}),
      source: weight,
      shape: type.shape,
      layout: { ...type.layout, partial: [] },
    };
  }
  return result;
}

/**
 * Writes all shard files below `directory`, in the order in which program.json lists them. No more than a window of a weight is
 * in memory, and in `whole` one that is turned or padded. Ends at the next piece when `signal` aborts.
 */
export async function writeWeights(
  directory: string,
  graph: Graph,
  sharded: ShardedGraph,
  places: Readonly<Record<string, ProgramWeight>>,
  mesh: readonly ProgramAxis[],
  whole: Room,
  signal?: AbortSignal,
): Promise<void> {
  const files = new Map<string, SafetensorsEntry[]>();
  for (const { tensor, weight } of inOrder(storedTensors(sharded))) {
    const place = places[tensor];
    if (!place || place.file === null) continue;
    const { file: pattern } = place;
    const source = storedIn(graph, weight);
    if (!source) throw new Error(`graph has no weight ${weight}`);
    const layout: ProgramLayout = { ...typeOfTensor(sharded, tensor).layout, partial: [] };
    for (let shard = 0; shard < axesSize(sharded.mesh, place.axes); shard++) {
      const file = shardText(pattern, shard);
      const rank = rankAt(sharded, place.axes, shard);
      const entries = files.get(file) ?? [];
      entries.push({
        key: place.key,
        dtype: place.dtype,
        shape: place.localShape,
        pieces: () => shardPieces(weight, source, { layout, mesh, rank }, whole, signal),
      });
      files.set(file, entries);
    }
  }
  for (const [file, entries] of files) await writeSafetensors(`${directory}/${file}`, entries);
}

/** The shard of one rank. */
async function* shardPieces(
  name: string,
  weight: Weight,
  {
    layout,
    mesh,
    rank,
  }: { readonly layout: ProgramLayout; readonly mesh: readonly ProgramAxis[]; readonly rank: number },
  whole: Room,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  signal?.throwIfAborted();
  if (layout.extents) {
    yield cutShard(await weightBytes(name, weight), weight.shape, weight.dtype, layout, mesh, rank);
    return;
  }
  const reader = openWeight(weight.source, whole);
  if (!reader) throw withoutValue(name, weight);
  try {
    for (const piece of cutPieces(reader.read, weight.shape, weight.dtype, layout, mesh, rank, PIECE)) {
      signal?.throwIfAborted();
      yield piece;
    }
  } finally {
    reader.close();
  }
}

/**
 * A weight's bytes from where they are.
 * @throws AutoparError `weight-absent` for a weight without a value; `external-data-missing`, `external-data-outside`,
 * `external-data-short` where its data file cannot be read.
 */
export async function weightBytes(name: string, weight: Weight): Promise<Uint8Array> {
  const data = await loadWeight(weight.source);
  if (data) return data;
  throw withoutValue(name, weight);
}

function withoutValue(name: string, weight: Weight): AutoparError {
  if (weight.source.kind === 'absent' && weight.source.data) return withoutData(name, weight.source.data);
  return new AutoparError('weight-absent', 'input', `the model file holds no value for weight ${name}`, {
    tensor: name,
  });
}

/** Whether a rank makes the value itself. */
function isZero(graph: Graph, name: string): boolean {
  return storedIn(graph, name)?.source.kind === 'zero';
}

/** By name, as JSON's sorted keys are. */
function inOrder(weights: readonly ShardSource[]): readonly ShardSource[] {
  return [...weights].sort((a, b) => (a.tensor < b.tensor ? -1 : a.tensor > b.tensor ? 1 : 0));
}

/** Axes that a tensor is sharded over, in mesh order. */
function cutAxes(sharded: ShardedGraph, type: ShardedTensor): readonly SubAxis[] {
  const used = new Set(type.layout.dims.flatMap((pieces) => pieces.flatMap((piece) => piece.axes)));
  return subAxes(sharded.mesh)
    .map((sub) => sub.name)
    .filter((name) => used.has(name));
}

/** The first rank whose index on `axes` is `shard`: the digits of `shard` on these axes, 0 on all others. */
function rankAt(sharded: ShardedGraph, axes: readonly SubAxis[], shard: number): number {
  const digits = new Map<SubAxis, number>();
  let rest = shard;
  for (const name of [...axes].reverse()) {
    const size = subAxisSize(sharded.mesh, name);
    digits.set(name, rest % size);
    rest = Math.floor(rest / size);
  }
  return subAxes(sharded.mesh).reduce((rank, { name, size }) => rank * size + (digits.get(name) ?? 0), 0);
}

function typeOfTensor(sharded: ShardedGraph, tensor: string): ShardedTensor {
  const type = sharded.tensors.get(tensor);
  if (!type) throw new Error(`sharded graph has no tensor ${tensor}`);
  return type;
}
