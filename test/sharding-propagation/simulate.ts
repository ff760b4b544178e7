/**
 * @file Resharding steps carried out on real numbers, all ranks at once, from `stepDetail` alone.
 */
import { type Extent, type Layout, localShape } from '../../src/sharding-propagation/layout.js';
import { deviceCount, groupsOn, indexOn, type Mesh } from '../../src/sharding-propagation/mesh.js';
import { type ReshardOp, reshardDetail } from '../../src/sharding-propagation/resharding.js';

export type Elements = readonly number[];

/** Every rank's shard of a whole tensor, straight from the definition of a layout; partial values sum to the whole. */
export function cutAll(whole: readonly number[], shape: readonly number[], layout: Layout, mesh: Mesh): Elements[] {
  return Array.from({ length: deviceCount(mesh) }, (_, rank) => {
    const positions = layout.dims.map((pieces, dimension) =>
      positionsOf(pieces, rank, mesh).map((position) => validPosition(position, layout.extents?.[dimension])),
    );
    const flat = positions.reduce<readonly (number | null)[]>(
      (offsets, inDimension, dimension) =>
        offsets.flatMap((offset) =>
          inDimension.map((position) =>
            offset === null || position === null ? null : offset * (shape[dimension] ?? 1) + position,
          ),
        ),
      [0],
    );
    return flat.map((index) => (index === null ? 0 : share(whole[index] ?? 0, layout, mesh, rank, index)));
  });
}

/** The place of a position of a padded dimension in the real one; null in the padding. */
export function validPosition(position: number, extents: readonly Extent[] | null | undefined): number | null {
  if (!extents) return position;
  let rest = position;
  let [result, stride]: [number | null, number] = [0, 1];
  for (const { size, valid } of [...extents].reverse()) {
    const digit = rest % size;
    rest = Math.floor(rest / size);
    result = result === null || digit >= valid ? null : result + digit * stride;
    stride *= valid;
  }
  return result;
}

/** The ranks' shards after all steps. */
export function carryOut(
  shards: readonly Elements[],
  steps: readonly ReshardOp[],
  shape: readonly number[],
  mesh: Mesh,
): readonly Elements[] {
  return steps.reduce((current, step) => {
    const after = carryOutStep(current, step, shape, mesh);
    const expected = localShape(shape, step.to, mesh).reduce((product, size) => product * size, 1);
    const wrong = after.findIndex((shard) => shard.length !== expected);
    if (wrong >= 0) throw new Error(`after ${step.kind} rank ${wrong} has ${after[wrong]?.length}, not ${expected}`);
    return after;
  }, shards);
}

/** The sum over the axes that a layout is partial over, so that two ways of splitting a sum compare equal. */
export function summed(shards: readonly Elements[], layout: Layout, mesh: Mesh): readonly Elements[] {
  const axes = layout.partial.map((entry) => entry.axis);
  const result: Elements[] = [...shards];
  for (const group of groupsOn(mesh, axes)) {
    const total = addUp(group.map((rank) => shards[rank] ?? []));
    for (const rank of group) result[rank] = total;
  }
  return result;
}

function carryOutStep(
  shards: readonly Elements[],
  step: ReshardOp,
  shape: readonly number[],
  mesh: Mesh,
): readonly Elements[] {
  const detail = reshardDetail(step, shape, mesh);
  if (detail.kind === 'repad') return shards.map((shard) => repadded(shard, step, shape, mesh));
  const result: Elements[] = [...shards];
  for (const group of groupsOn(mesh, step.axes)) {
    const held = group.map((rank) => shards[rank] ?? []);
    const after = exchange(held, detail);
    for (const [member, rank] of group.entries()) result[rank] = after[member] ?? [];
  }
  return result;
}

/** A shard whose uncut dimensions lose their padding and get another, of zeros. */
function repadded(shard: Elements, step: ReshardOp, shape: readonly number[], mesh: Mesh): Elements {
  const [before, after] = [step.from, step.to].map((layout) => localShape(shape, layout, mesh)) as [number[], number[]];
  const values = new Map<string, number>();
  const places = (sizes: readonly number[], layout: Layout) =>
    sizes.reduce<readonly (string | null)[]>(
      (all, size, dimension) =>
        all.flatMap((place) =>
          Array.from({ length: size }, (_, position) => {
            const isRepadded =
              JSON.stringify(step.from.extents?.[dimension]) !== JSON.stringify(step.to.extents?.[dimension]);
            const own = isRepadded ? validPosition(position, layout.extents?.[dimension]) : position;
            return place === null || own === null ? null : `${place},${own}`;
          }),
        ),
      [''],
    );
  for (const [index, place] of places(before, step.from).entries())
    if (place !== null) values.set(place, shard[index] ?? 0);
  return places(after, step.to).map((place) => (place === null ? 0 : (values.get(place) ?? Number.NaN)));
}

type Exchanged = Exclude<ReturnType<typeof reshardDetail>, { readonly kind: 'repad' }>;

function exchange(held: readonly Elements[], detail: Exchanged): readonly Elements[] {
  switch (detail.kind) {
    case 'slice':
      return held.map((shard, member) => sliceOf(shard, member, detail.outer, detail.count, detail.inner));
    case 'all-gather': {
      const joined = join(held, detail.outer, detail.inner);
      return held.map(() => joined);
    }
    case 'all-reduce': {
      const total = addUp(held);
      return held.map(() => total);
    }
    case 'reduce-scatter': {
      const total = addUp(held);
      return held.map((_, member) => sliceOf(total, member, detail.outer, detail.count, detail.inner));
    }
    case 'all-to-all':
      return held.map((_, receiver) => {
        const slices = held.map((shard) =>
          sliceOf(shard, receiver, detail.split.outer, detail.count, detail.split.inner),
        );
        return join(slices, detail.concat.outer, detail.concat.inner);
      });
    case 'permute':
      return held.map((_, receiver) => held[detail.to.indexOf(receiver)] ?? []);
    case 'to-partial':
      return held.map((shard, member) => (member === 0 ? shard : shard.map(() => 0)));
  }
}

/** Slice `member` of a shard seen as [outer, count, inner]. */
function sliceOf(shard: Elements, member: number, outer: number, count: number, inner: number): Elements {
  if (shard.length !== outer * count * inner) throw new Error('a shard is not [outer, count, inner]');
  return Array.from({ length: outer }, (_, row) => {
    const start = (row * count + member) * inner;
    return shard.slice(start, start + inner);
  }).flat();
}

/** Shards of [outer, inner] as one of [outer, n, inner]. */
function join(shards: readonly Elements[], outer: number, inner: number): Elements {
  if (shards.some((shard) => shard.length !== outer * inner)) throw new Error('a shard is not [outer, inner]');
  return Array.from({ length: outer }, (_, row) =>
    shards.flatMap((shard) => shard.slice(row * inner, (row + 1) * inner)),
  ).flat();
}

function addUp(shards: readonly Elements[]): Elements {
  return (shards[0] ?? []).map((_, index) => shards.reduce((sum, shard) => sum + (shard[index] ?? 0), 0));
}

/** Positions along a dimension that a rank holds: per piece its shard, the pieces combined major to minor. */
function positionsOf(pieces: Layout['dims'][number], rank: number, mesh: Mesh): readonly number[] {
  return pieces.reduce<readonly number[]>(
    (positions, { size, axes }) => {
      const shards = groupsOn(mesh, axes)[0]?.length ?? 1;
      const shard = size / shards;
      const start = indexOn(mesh, axes, rank) * shard;
      return positions.flatMap((position) =>
        Array.from({ length: shard }, (_, offset) => position * size + start + offset),
      );
    },
    [0],
  );
}

/** A rank's share of a value that is partial: uneven integers over the ranks that sum to the value. */
function share(value: number, layout: Layout, mesh: Mesh, rank: number, index: number): number {
  const axes = layout.partial.map((entry) => entry.axis);
  if (axes.length === 0) return value;
  const member = indexOn(mesh, axes, rank);
  const count = groupsOn(mesh, axes)[0]?.length ?? 1;
  const part = (who: number): number => ((index * 7 + who * 13) % 11) - 5;
  if (member > 0) return part(member);
  return value - Array.from({ length: count - 1 }, (_, who) => part(who + 1)).reduce((sum, held) => sum + held, 0);
}
