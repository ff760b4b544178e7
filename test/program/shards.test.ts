import test from 'ava';
import fc from 'fast-check';
import { groupOf, rankCount, shardIndex, subAxesOf } from '../../src/program/mesh.js';
import type { ProgramAxis, ProgramLayout } from '../../src/program/program.js';
import { assembleShards, cutPieces, cutShard, holders, shardShape } from '../../src/program/shards.js';
import { asBytes } from '../../src/program/typed.js';
import { elementCount } from '../../src/program/values.js';

const MESH: readonly ProgramAxis[] = [
  { axis: 'dp', size: 2, subAxes: [{ name: 'dp', size: 2 }] },
  { axis: 'sp', size: 1, subAxes: [] },
  {
    axis: 'tp',
    size: 6,
    subAxes: [
      { name: 'tp.0', size: 3 },
      { name: 'tp.1', size: 2 },
    ],
  },
];

const layouts: fc.Arbitrary<ProgramLayout> = fc
  .tuple(
    fc.shuffledSubarray(['dp', 'tp.0', 'tp.1']),
    fc.array(fc.array(fc.integer({ min: 1, max: 3 }), { maxLength: 3 }), { minLength: 1, maxLength: 3 }),
    fc.array(fc.nat(20), { minLength: 3, maxLength: 3 }),
    fc.boolean(),
  )
  .map(([axes, dims, places, lastIsPartial]) => {
    const pieces = dims.map((sizes) => sizes.map((size) => ({ size, axes: [] as string[] })));
    const flat = pieces.flat();
    const partial: { axis: string; reduction: 'sum' }[] = [];
    for (const [index, axis] of axes.entries()) {
      const piece = flat[(places[index] as number) % Math.max(1, flat.length)];
      if (!piece || (lastIsPartial && index === axes.length - 1)) {
        partial.push({ axis, reduction: 'sum' });
      } else {
        piece.axes.push(axis);
        piece.size *= axis === 'tp.0' ? 3 : 2;
      }
    }
    return { dims: pieces, partial };
  });

test('pieces of a shard are the shard, whatever may be read at once', (t) => {
  fc.assert(
    fc.property(layouts, fc.integer({ min: 1, max: 40 }), (layout, most) => {
      const { shape, whole } = wholeOf(layout);
      const bytes = asBytes(whole);
      const read = (offset: number, length: number) => {
        t.true(length > 0 && length <= most && offset + length <= bytes.length);
        return bytes.subarray(offset, offset + length);
      };
      const unreduced = { ...layout, partial: [] };
      for (let rank = 0; rank < rankCount(MESH); rank++) {
        const pieces = Array.from(cutPieces(read, shape, 'int32', unreduced, MESH, rank, most), (piece) => [...piece]);
        t.true(pieces.every((piece) => piece.length <= most));
        t.deepEqual(pieces.flat(), [...cutShard(bytes, shape, 'int32', unreduced, MESH, rank)]);
      }
    }),
  );
});

test('a shard holds the elements that its digits on the pieces say', (t) => {
  fc.assert(
    fc.property(layouts, (layout) => {
      const { shape, whole } = wholeOf(layout);
      for (let rank = 0; rank < rankCount(MESH); rank++) {
        const shard = new Int32Array(cutShard(asBytes(whole), shape, 'int32', layout, MESH, rank).buffer);
        const first = layout.partial.every(({ axis }) => shardIndex(MESH, [axis], rank) === 0);
        const expected = [...whole]
          .filter((_, element) => owns(layout, element, rank))
          .map((value) => (first ? value : 0));
        t.deepEqual([...shard], expected);
        t.is(shard.length, elementCount(shardShape(shape, layout, MESH)));
      }
    }),
  );
});

test('shards put together give the whole, partial or not, from the holders alone', (t) => {
  fc.assert(
    fc.property(layouts, (layout) => {
      const { shape, whole } = wholeOf(layout);
      const needed = new Set(holders(layout, MESH));
      const shards = Array.from({ length: rankCount(MESH) }, (_, rank) =>
        needed.has(rank) ? cutShard(asBytes(whole), shape, 'int32', layout, MESH, rank) : undefined,
      );
      t.deepEqual([...new Int32Array(assembleShards(shards, shape, 'int32', layout, MESH).buffer)], [...whole]);
    }),
  );
});

test('fused query, key and value keep their parts', (t) => {
  const layout = {
    dims: [
      [
        { size: 3, axes: [] },
        { size: 4, axes: ['dp'] },
      ],
    ],
    partial: [],
  };
  const whole = Uint8Array.from({ length: 12 }, (_, index) => index);
  t.deepEqual([...cutShard(whole, [12], 'uint8', layout, MESH, 0)], [0, 1, 4, 5, 8, 9]);
  t.deepEqual([...cutShard(whole, [12], 'uint8', layout, MESH, 6)], [2, 3, 6, 7, 10, 11]);
});

test('groups are named by axes; members are ordered by their index on them', (t) => {
  t.deepEqual(groupOf(MESH, ['tp.0', 'tp.1'], 7), [6, 7, 8, 9, 10, 11]);
  t.deepEqual(groupOf(MESH, ['tp.1', 'tp.0'], 7), [6, 8, 10, 7, 9, 11]);
  t.deepEqual(groupOf(MESH, ['dp'], 7), [1, 7]);
  t.deepEqual(groupOf(MESH, [], 7), [7]);
  for (let rank = 0; rank < 12; rank++) {
    for (const axes of [
      ['tp.1', 'dp'],
      ['dp', 'tp.0'],
    ]) {
      t.is(groupOf(MESH, axes, rank)[shardIndex(MESH, axes, rank)], rank);
    }
  }
});

test('a layout that does not fit is a fault', (t) => {
  const layout = { dims: [[{ size: 5, axes: ['dp'] }]], partial: [] };
  t.throws(() => shardShape([5], layout, MESH), { message: /do not divide 5/ });
  t.throws(() => shardShape([6], layout, MESH), { message: /multiply to 5/ });
  t.throws(() => shardShape([5, 1], layout, MESH), { message: /does not fit/ });
});

function wholeOf(layout: ProgramLayout): { shape: number[]; whole: Int32Array } {
  const shape = layout.dims.map((pieces) => elementCount(pieces.map(({ size }) => size)));
  return { shape, whole: Int32Array.from({ length: elementCount(shape) }, (_, index) => index + 1) };
}

/** Digit by digit: the element's index in mixed radix over all pieces, each digit in the rank's shard of its piece. */
function owns(layout: ProgramLayout, element: number, rank: number): boolean {
  let rest = element;
  return layout.dims
    .flat()
    .toReversed()
    .every(({ size, axes }) => {
      const digit = rest % size;
      rest = Math.floor(rest / size);
      const count = axes.reduce(
        (product, axis) => product * (subAxesOf(MESH).find(({ name }) => name === axis)?.size ?? 1),
        1,
      );
      const part = axes.reduce((index, axis) => {
        const sub = subAxesOf(MESH).find(({ name }) => name === axis);
        return sub ? index * sub.size + (Math.floor(rank / sub.stride) % sub.size) : index;
      }, 0);
      return Math.floor(digit / (size / count)) === part;
    });
}
