/**
 * @file Which elements of a tensor of the file each rank has: as an ONNX annotation says, and as a program's shards hold them.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readCompiled } from '../../src/api/output/folder.js';
import { byteLength } from '../../src/ir/dtype.js';
import { decodeModel, type ShardingSpecProto } from '../../src/ir/onnx/schema.js';
import { integerOf } from '../../src/ir/onnx/tensors.js';
import { shardIndex } from '../../src/program/mesh.js';
import { openSafetensors } from '../../src/program/safetensors.js';

/** Annotations of a model's nodes, in the order of the file. */
export async function specsOf(file: string, node?: string): Promise<readonly ShardingSpecProto[]> {
  const nodes = decodeModel(await readFile(file)).graph?.node ?? [];
  const chosen = nodes.filter(({ name }) => node === undefined || name === node);
  return chosen.flatMap((each) => (each.device_configurations ?? []).flatMap((own) => own.sharding_spec ?? []));
}

/** Row-major positions that a spec gives each rank; null if a dimension is not a multiple of its number of shards. */
export function positionsBySpec(spec: ShardingSpecProto, shape: readonly number[]): readonly number[][] | null {
  const pieces = shape.map((size, axis) => {
    const cut = spec.sharded_dim?.find((dim) => integerOf(dim.axis) === axis)?.simple_sharding ?? [];
    const own = cut.map((piece) => ({ size: integerOf(piece.dim_value), parts: integerOf(piece.num_shards) }));
    return own.length === 0 ? [{ size, parts: 1 }] : own;
  });
  const flat = pieces.flat();
  if (flat.some(({ size, parts }) => size % parts !== 0)) return null;
  const count = shape.reduce((product, size) => product * size, 1);
  // Pieces multiply to their dimensions, so that an element's digits over all pieces are its position's.
  if (flat.reduce((product, { size }) => product * size, 1) !== count) throw new Error('pieces of another shape');
  const groups = new Map(
    (spec.index_to_device_group_map ?? []).map(({ key, value = [] }) => [integerOf(key), value.map(integerOf)]),
  );
  const held: number[][] = [];
  for (let position = 0; position < count; position++) {
    let [rest, shard, below] = [position, 0, 1];
    for (const { size, parts } of flat.toReversed()) {
      shard += below * Math.floor((rest % size) / (size / parts));
      below *= parts;
      rest = Math.floor(rest / size);
    }
    const device = integerOf(spec.device?.[shard]);
    for (const rank of groups.get(device) ?? [device]) {
      held[rank] ??= [];
      held[rank].push(position);
    }
  }
  return held;
}

/** A rank's shard of a weight. */
export interface HeldShard {
  /** The graph's weight. */
  readonly source: string;
  /** Elements' bytes by rank, in no order of meaning. */
  readonly ranks: readonly BigUint64Array[];
}

/** The shards of every weight on the ranks of a compiled folder. */
export async function heldShards(directory: string): Promise<readonly HeldShard[]> {
  const { program } = await readCompiled(directory);
  const count = program.mesh.reduce((product, { size }) => product * size, 1);
  const weights = program.stages.flatMap((stage) => Object.values(stage.weights));
  const held: HeldShard[] = [];
  for (const weight of weights) {
    const ranks: BigUint64Array[] = [];
    for (let rank = 0; rank < count; rank++) {
      const shard = shardIndex(program.mesh, weight.axes, rank);
      const elements = weight.localShape.reduce((product, size) => product * size, 1);
      if (weight.file === null) {
        ranks.push(elementsOf(new Uint8Array(byteLength(weight.dtype, elements)), elements));
        continue;
      }
      const file = await openSafetensors(join(directory, 'program', weight.file.replace('{k}', String(shard))));
      const { data } = await file.read(weight.key);
      await file.close();
      ranks.push(elementsOf(data, elements));
    }
    held.push({ source: weight.source ?? weight.key, ranks });
  }
  return held;
}

/** Elements of a tensor, all of them or those at given positions: their bytes as numbers, sorted. */
export function elementsOf(data: Uint8Array, count: number, positions?: readonly number[]): BigUint64Array {
  const width = data.byteLength / count;
  const chosen = positions ?? Array.from({ length: count }, (_, index) => index);
  const wide = new Uint8Array(8 * chosen.length);
  for (const [place, index] of chosen.entries())
    for (let byte = 0; byte < width; byte++) wide[8 * place + byte] = data[width * index + byte] as number;
  return new BigUint64Array(wide.buffer).sort();
}
