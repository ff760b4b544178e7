/**
 * @file The boxes of all ranks' shards make up the tensor, and shards of any layout are put together from boxes of any other.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import type { DimensionOrder } from '../../src/ir/graph.js';
import { boxesOf } from '../../src/program/boxes.js';
import { boxKey, type StoredBox } from '../../src/program/checkpoint.js';
import { BoxReader, writeBoxes } from '../../src/program/checkpoint-boxes.js';
import { rankCount } from '../../src/program/mesh.js';
import type { ProgramAxis, ProgramLayout } from '../../src/program/program.js';
import { cutShard, holders, shardShape } from '../../src/program/shards.js';
import { elementCount } from '../../src/program/values.js';

const MESH: readonly ProgramAxis[] = [
  { axis: 'dp', size: 2, subAxes: [{ name: 'dp', size: 2 }] },
  { axis: 'tp', size: 3, subAxes: [{ name: 'tp', size: 3 }] },
];

const SHAPE = [12, 10, 5];

/** Shardings of the tensor's dimensions: whole, inside of pieces, over both axes, padded, in zig-zag order. */
const DIMENSIONS: readonly (readonly Readonly<Record<string, unknown>>[])[] = [
  [
    { pieces: [[12]] },
    { pieces: [[12, 'dp']] },
    { pieces: [[12, 'dp']], order: { size: 12, minor: 1, pieces: 4 } },
    { pieces: [[12]], order: { size: 6, minor: 2, pieces: 6 } },
    { pieces: [[3], [4, 'dp']] },
    { pieces: [[2], [6, 'dp', 'tp']] },
    {
      pieces: [
        [3, 'tp'],
        [4, 'dp'],
      ],
    },
  ],
  [
    { pieces: [[10]] },
    { pieces: [[12, 'tp']], extents: [[12, 10]] },
    { pieces: [[2, 'dp'], [5]] },
    {
      pieces: [[2], [6, 'tp']],
      extents: [
        [2, 2],
        [6, 5],
      ],
    },
  ],
  [{ pieces: [[5]] }, { pieces: [[6, 'dp']], extents: [[6, 5]] }],
];

const layouts = fc
  .tuple(...DIMENSIONS.map((cuts) => fc.constantFrom(...cuts)))
  .filter((cuts) => {
    const axes = JSON.stringify(cuts.map(({ pieces }) => pieces)).match(/dp|tp/g) ?? [];
    return new Set(axes).size === axes.length;
  })
  .map((cuts): ProgramLayout => {
    const dims = cuts.map(({ pieces }) =>
      (pieces as [number, ...string[]][]).map(([size, ...axes]) => ({ size, axes })),
    );
    const extents = cuts.map(
      ({ extents: parts }) =>
        (parts as [number, number][] | undefined)?.map(([size, valid]) => ({ size, valid })) ?? null,
    );
    const order = cuts.map((cut) => (cut.order as DimensionOrder | undefined) ?? null);
    return {
      ...{ dims, partial: [] },
      ...(extents.some((parts) => parts) ? { extents } : {}),
      ...(order.some((own) => own) ? { order } : {}),
    };
  });

test('a tensor saved under one layout is read under another', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const whole = new Uint8Array(Int32Array.from({ length: elementCount(SHAPE) }, (_, index) => index + 1).buffer);
  let run = 0;
  await fc.assert(
    fc.asyncProperty(layouts, layouts, async (from, to) => {
      const boxes: StoredBox[] = [];
      for (const rank of holders(from, MESH)) {
        const file = `${++run}.safetensors`;
        const own = boxesOf(SHAPE, from, MESH, rank);
        const shard = cutShard(whole, SHAPE, 'int32', from, MESH, rank);
        const kept = {
          name: 'w',
          dtype: 'int32' as const,
          shape: SHAPE,
          shardShape: shardShape(SHAPE, from, MESH),
          boxes: own,
        };
        const digests = await writeBoxes(
          join(folder, file),
          [kept],
          () => shard,
          () => undefined,
        );
        for (const { offset, size } of own)
          boxes.push({ file, offset, size, sha256: digests[boxKey('w', SHAPE, { offset, size })] as string });
      }
      t.is(
        boxes.reduce((sum, { size }) => sum + elementCount(size), 0),
        elementCount(SHAPE),
      );
      const reader = new BoxReader(folder);
      const stored = { dtype: 'int32' as const, shape: SHAPE, boxes };
      for (let rank = 0; rank < rankCount(MESH); rank++) {
        const own = boxesOf(SHAPE, to, MESH, rank);
        const shard = await reader.shard('w', stored, shardShape(SHAPE, to, MESH), own);
        t.deepEqual(shard, cutShard(whole, SHAPE, 'int32', to, MESH, rank));
      }
      t.deepEqual(await reader.whole('w', stored), whole);
      await reader.close();
    }),
    { numRuns: 40 },
  );
});
