/**
 * @file A lowered operator run on all ranks, with every operator in ONNX Runtime and every collective by its meaning: the
 * whole tensor is put together from the operand's layout and sharded again by the result's.
 */

import { numbersOf } from '../../src/ir/ops/constants.js';
import type { Fragment } from '../../src/partition/fragment.js';
import type { ShardedTensor } from '../../src/partition/sharded-graph.js';
import { type Layout, localShape } from '../../src/sharding-propagation/layout.js';
import {
  coordinatesOf,
  deviceCount,
  indexOn,
  type Mesh,
  type SubAxis,
  subAxisSize,
} from '../../src/sharding-propagation/mesh.js';
import type { Run, Values } from '../ir/ops/one-node.js';
import { validPosition } from '../sharding-propagation/simulate.js';

/** Runs a fragment on whole operands (`in0`, …); returns the whole results asked for. */
export async function simulateFragment(
  fragment: Fragment,
  operands: ReadonlyMap<string, Values>,
  results: readonly string[],
  run: Run,
): Promise<readonly Values[]> {
  const { mesh } = fragment;
  const ranks = Array.from({ length: deviceCount(mesh) }, (_, rank) => rank);
  const held = new Map<string, readonly Values[]>();
  for (const [name, value] of operands) {
    const { layout, zeroPadded } = fragment.get(name);
    // Whatever an operator before left in the padding: nothing may depend on it.
    const padding = zeroPadded ? 0 : 1e3;
    held.set(
      name,
      ranks.map((rank) => cutShard(value, layout, mesh, rank, padding)),
    );
  }
  for (const [name, value] of fragment.constants) {
    const whole = { dtype: value.dtype, shape: value.shape, data: numbersOf(value) };
    held.set(
      name,
      ranks.map(() => whole),
    );
  }
  for (const { name, axes, block, bias } of fragment.coordinates.values()) {
    held.set(
      name,
      ranks.map((rank) => ({ dtype: 'int64', shape: [1], data: [indexOn(mesh, axes, rank) * block + bias] })),
    );
  }
  const need = (name: string) => {
    const found = held.get(name);
    if (!found) throw new Error(`${name} is read before it is made`);
    return found;
  };
  for (const node of fragment.nodes) {
    if (node.kind === 'communicate') {
      const [from, to] = [fragment.get(node.input), fragment.get(node.output)];
      const { collective, axes } = node;
      if (collective.kind === 'permute' && from.varying) {
        held.set(
          node.output,
          ranks.map((rank) => need(node.input)[senderTo(mesh, axes, rank, collective.to)] as Values),
        );
        continue;
      }
      held.set(
        node.output,
        ranks.map((rank) => exchanged(need(node.input), from, to.layout, mesh, rank)),
      );
      continue;
    }
    const wanted = node.outputs.map((name) =>
      name === null ? null : { dtype: fragment.get(name).dtype, shape: fragment.get(name).localShape },
    );
    const made: (readonly (Values | null)[])[] = [];
    for (const rank of ranks) {
      const inputs = node.inputs.map((name) => (name === null ? null : (need(name)[rank] ?? null)));
      made.push(await run(node, inputs, wanted));
    }
    node.outputs.forEach((name, index) => {
      if (name !== null)
        held.set(
          name,
          made.map((values) => values[index] as Values),
        );
    });
  }
  return results.map((name) => assemble(need(name), fragment.get(name), mesh, ranks));
}

/** The rank whose shard a permutation over axes brings to another. */
function senderTo(mesh: Mesh, axes: readonly SubAxis[], rank: number, to: readonly number[]): number {
  const own = coordinatesOf(mesh, rank);
  const isBeside = (other: ReadonlyMap<string, number>) =>
    [...own].every(([axis, at]) => axes.includes(axis) || other.get(axis) === at);
  const all = Array.from({ length: deviceCount(mesh) }, (_, other) => other);
  const sender = to.indexOf(indexOn(mesh, axes, rank));
  return all.findIndex((other) => indexOn(mesh, axes, other) === sender && isBeside(coordinatesOf(mesh, other)));
}

/** A rank's shard after a collective: the sum of the worlds that it reduces over, sharded by the new layout. */
function exchanged(from: readonly Values[], before: ShardedTensor, after: Layout, mesh: Mesh, rank: number): Values {
  const own = coordinatesOf(mesh, rank);
  const staying = after.partial.map(({ axis }) => axis);
  const world = from.flatMap((_, other) => {
    const place = coordinatesOf(mesh, other);
    return staying.every((axis) => place.get(axis) === own.get(axis)) ? [other] : [];
  });
  // A tensor that stays partial is the world's own share already.
  return cutShard(assemble(from, before, mesh, world), { ...after, partial: [] }, mesh, rank);
}

/** The whole tensor from the shards of some ranks; partial ones are reduced, replicas must agree. */
function assemble(shards: readonly Values[], tensor: ShardedTensor, mesh: Mesh, ranks: readonly number[]): Values {
  const count = tensor.shape.reduce((product, size) => product * size, 1);
  const whole: number[] = new Array<number>(count).fill(Number.NaN);
  const [reduction] = tensor.layout.partial.map((entry) => entry.reduction);
  const worlds = new Map<string, Map<number, number>>();
  for (const rank of ranks) {
    const place = coordinatesOf(mesh, rank);
    const key = tensor.layout.partial.map(({ axis }) => place.get(axis)).join();
    const world = worlds.get(key) ?? new Map<number, number>();
    worlds.set(key, world);
    positions(tensor.shape, tensor.layout, mesh, rank).forEach((position, index) => {
      if (position === null) return;
      const value = shards[rank]?.data[index] ?? Number.NaN;
      const known = world.get(position);
      if (known !== undefined && !Object.is(known, value) && Math.abs(known - value) > 1e-4 * (1 + Math.abs(known)))
        throw new Error(
          `replicas of a tensor in layout ${JSON.stringify(tensor.layout)} differ: ${known} and ${value}`,
        );
      world.set(position, value);
    });
  }
  const combine = { sum: (a: number, b: number) => a + b, max: Math.max, min: Math.min }[reduction ?? 'sum'];
  [...worlds.values()].forEach((world, index) => {
    for (const [position, value] of world)
      whole[position] = index === 0 ? value : combine(whole[position] ?? Number.NaN, value);
  });
  return { dtype: tensor.dtype, shape: tensor.shape, data: whole };
}

/** A rank's shard; for a sum, an arbitrary share. Padding holds values that nobody may rely on. */
function cutShard(value: Values, layout: Layout, mesh: Mesh, rank: number, padding = 0): Values {
  const shape = localShape(value.shape, layout, mesh);
  const axes = layout.partial.map(({ axis }) => axis);
  const data = positions(value.shape, layout, mesh, rank).map((position) => {
    if (position === null) return padding;
    const whole = value.data[position] ?? 0;
    if (layout.partial.some(({ reduction }) => reduction !== 'sum') || axes.length === 0) return whole;
    const shares = groupSize(mesh, axes);
    const part = (member: number) => ((position * 7 + member * 13) % 11) - 5;
    const member = indexOn(mesh, axes, rank);
    if (member > 0) return part(member);
    return (
      whole - Array.from({ length: shares - 1 }, (_, other) => part(other + 1)).reduce((sum, held) => sum + held, 0)
    );
  });
  return { dtype: value.dtype, shape, data };
}

/** The shape of the padded tensor that a layout cuts; the tensor's own where nothing is padded. */
function paddedShape(shape: readonly number[], layout: Layout): readonly number[] {
  if (!layout.extents) return shape;
  return shape.map((size, axis) => {
    const parts = layout.extents?.[axis];
    return parts ? parts.reduce((product, part) => product * part.size, 1) : size;
  });
}

function groupSize(mesh: Mesh, axes: readonly string[]): number {
  return axes.reduce((product, axis) => product * subAxisSize(mesh, axis), 1);
}

/** Places in the whole tensor of the elements of a rank's shard, in the shard's order; null for padding. */
function positions(shape: readonly number[], layout: Layout, mesh: Mesh, rank: number): readonly (number | null)[] {
  const padded = paddedShape(shape, layout);
  const dims = padded.map((size, axis) => {
    const pieces = layout.dims[axis]?.length ? (layout.dims[axis] ?? []) : [{ size, axes: [] }];
    return pieces.reduce<readonly number[]>(
      (before, piece) => {
        const count = piece.size / groupSize(mesh, piece.axes);
        const offset = indexOn(mesh, piece.axes, rank) * count;
        return before.flatMap((base) =>
          Array.from({ length: count }, (_, index) => base * piece.size + offset + index),
        );
      },
      [0],
    );
  });
  const valid = dims.map((list, axis) => list.map((position) => validPosition(position, layout.extents?.[axis])));
  return valid.reduce<readonly (number | null)[]>(
    (before, list, axis) =>
      before.flatMap((base) =>
        list.map((position) => (base === null || position === null ? null : base * (shape[axis] ?? 1) + position)),
      ),
    [0],
  );
}
