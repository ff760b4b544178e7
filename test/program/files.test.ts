import { chmod, mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import {
  cannotWrite,
  makeParents,
  stableJson,
  streamFileAtomic,
  writeFileAtomic,
  writeFolderAtomic,
  writeJsonAtomic,
} from '../../src/program/atomic.js';
import { openSafetensors, writeSafetensors } from '../../src/program/safetensors.js';
import { AutoparError, byteLength, type DType, elementCount } from '../../src/program/values.js';

async function scratch(): Promise<string> {
  return mkdtemp(path.join(tmpdir(), 'autopar-files-'));
}

test('JSON has sorted keys and no trace of the order of insertion', (t) => {
  t.is(stableJson({ b: 1, a: [{ d: null, c: 'x' }] }), stableJson({ a: [{ c: 'x', d: null }], b: 1 }));
  t.true(stableJson({ b: 1, a: 2 }).startsWith('{\n  "a": 2'));
});

test('a file that cannot be finished leaves the old one and no temporary', async (t) => {
  const folder = await scratch();
  const file = path.join(folder, 'plan.json');
  await writeJsonAtomic(file, { old: true });
  await t.throwsAsync(
    streamFileAtomic(file, async (write) => {
      await write(Buffer.from('half'));
      throw new Error('stopped');
    }),
    { message: 'stopped' },
  );
  t.deepEqual(await readdir(folder), ['plan.json']);
  t.is(await readFile(file, 'utf8'), '{\n  "old": true\n}\n');
  await rm(folder, { recursive: true });
});

test('a folder is replaced whole or not at all', async (t) => {
  const folder = await scratch();
  const target = path.join(folder, 'out');
  await mkdir(target);
  await writeFile(path.join(target, 'old'), '');
  await t.throwsAsync(
    writeFolderAtomic(target, () => Promise.reject(new Error('stopped'))),
    { message: 'stopped' },
  );
  t.deepEqual([await readdir(folder), await readdir(target)], [['out'], ['old']]);
  await writeFolderAtomic(target, (temporary) => writeFile(path.join(temporary, 'new'), ''));
  t.deepEqual([await readdir(folder), await readdir(target)], [['out'], ['new']]);
  await rm(folder, { recursive: true });
});

test('one of several that replace a folder at the same time is there at the end, and nothing else', async (t) => {
  const folder = await scratch();
  const target = path.join(folder, 'out');
  const names = Array.from({ length: 12 }, (_, index) => `of-${index}`);
  await Promise.all(
    names.map((name) => writeFolderAtomic(target, (temporary) => writeFile(path.join(temporary, name), ''))),
  );
  t.deepEqual(await readdir(folder), ['out']);
  const [found, ...others] = await readdir(target);
  t.true(names.includes(found ?? ''));
  t.deepEqual(others, []);
  await rm(folder, { recursive: true });
});

test('folders are made one by one, by several at once too, and where none can be made that is an error', async (t) => {
  const folder = await scratch();
  const deep = path.join(folder, 'a', 'b', 'c');
  const made = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const own: string[] = [];
      await makeParents(deep, own);
      return own;
    }),
  );
  t.deepEqual(made.flat().sort(), [path.dirname(path.dirname(deep)), path.dirname(deep), deep]);
  await writeFile(path.join(folder, 'file'), '');
  await t.throwsAsync(makeParents(path.join(folder, 'file', 'x')), { code: 'ENOTDIR' });
  // With `recursive`, Node's mkdir has no end here.
  if (process.platform === 'linux') await t.throwsAsync(makeParents('/proc/autopar/x'), { code: 'ENOENT' });
  await rm(folder, { recursive: true });
});

test('a place that cannot be written is named, with exit cannotWrite', async (t) => {
  const folder = await scratch();
  const missing = path.join(folder, 'no', 'where');
  const error = await t.throwsAsync(writeFileAtomic(missing, 'x'), { instanceOf: AutoparError });
  t.is(error?.exit, 'cannotWrite');
  t.is(error?.message, `cannot write ${missing}: its folder does not exist`);
  if (process.getuid?.() !== 0) {
    await chmod(folder, 0o500);
    const refused = await t.throwsAsync(writeFileAtomic(path.join(folder, 'x'), 'x'), { instanceOf: AutoparError });
    t.regex(refused?.message ?? '', /permission denied/);
    await chmod(folder, 0o700);
  }
  await rm(folder, { recursive: true });
});

test('a full disk is named as such, and the temporary is removed', async (t) => {
  const folder = await scratch();
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', syscall: 'write' });
  const file = path.join(folder, 'weights');
  const error = await t.throwsAsync(
    streamFileAtomic(file, () => Promise.reject(full)),
    { instanceOf: AutoparError },
  );
  t.deepEqual([error?.code, error?.exit], ['disk-full', 'cannotWrite']);
  t.regex(error?.message ?? '', /the disk is full/);
  t.deepEqual(await readdir(folder), []);
  const other = new Error('not the file system');
  t.is(cannotWrite(other, file), other);
  await rm(folder, { recursive: true });
});

test('tensors survive safetensors, read by key', async (t) => {
  const folder = await scratch();
  const file = path.join(folder, 'x.safetensors');
  const dtypes: readonly DType[] = [
    'float32',
    'float16',
    'bfloat16',
    'int64',
    'bool',
    'uint8',
    'float64',
    'float8e5m2',
  ];
  const entries = fc.uniqueArray(
    fc.tuple(fc.string(), fc.constantFrom(...dtypes), fc.array(fc.nat(3), { maxLength: 3 })),
    {
      selector: ([key]) => key,
    },
  );
  await fc.assert(
    fc.asyncProperty(entries, async (list) => {
      const named = list.filter(([key]) => key !== '__metadata__' && key !== '__proto__');
      const tensors = named.map(([key, dtype, shape], index) => {
        const data = new Uint8Array(byteLength(dtype, elementCount(shape))).fill(index + 1);
        return { key, dtype, shape, data };
      });
      await writeSafetensors(
        file,
        tensors.map(({ data, ...entry }) => ({ ...entry, pieces: () => [data] })),
      );
      const opened = await openSafetensors(file);
      for (const { key, ...tensor } of tensors.toReversed()) t.deepEqual(await opened.read(key), tensor);
      t.is(opened.entries.size, tensors.length);
      await opened.close();
    }),
    { numRuns: 30 },
  );
  await rm(folder, { recursive: true });
});

test('a safetensors file is laid out as the format says', async (t) => {
  const folder = await scratch();
  const file = path.join(folder, 'x.safetensors');
  await writeSafetensors(file, [{ key: 'w', dtype: 'uint8', shape: [3], pieces: () => [Uint8Array.of(1, 2, 3)] }]);
  const bytes = await readFile(file);
  const length = Number(bytes.readBigUInt64LE());
  t.is(length % 8, 0);
  t.deepEqual(JSON.parse(bytes.subarray(8, 8 + length).toString()), {
    w: { dtype: 'U8', shape: [3], data_offsets: [0, 3] },
  });
  t.deepEqual([...bytes.subarray(8 + length)], [1, 2, 3]);
  await rm(folder, { recursive: true });
});

test('missing, cut and malformed safetensors files are named', async (t) => {
  const folder = await scratch();
  const file = path.join(folder, 'x.safetensors');
  const write = () =>
    writeSafetensors(file, [{ key: 'w', dtype: 'float32', shape: [2], pieces: () => [new Uint8Array(8)] }]);
  const header = (text: string) => {
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length));
    return Buffer.concat([length, Buffer.from(text)]);
  };
  const damage: [() => Promise<void>, RegExp][] = [
    [() => rm(file), /does not exist/],
    [() => truncate(file, 70), /is truncated: w ends at byte 8/],
    [() => truncate(file, 4), /is only 4 bytes long/],
    [() => truncate(file, 20), /states a header of/],
    [() => writeFile(file, header('nonsense')), /not JSON/],
    [() => writeFile(file, header('{"w":{"dtype":"F99","shape":[],"data_offsets":[0,4]}}')), /unknown dtype F99/],
    [() => writeFile(file, header('{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}')), /do not fit its shape/],
    [() => writeFile(file, header('{"w":{"dtype":"F32"}}')), /malformed entry for w/],
  ];
  for (const [harm, message] of damage) {
    await write();
    await harm();
    const error = await t.throwsAsync(openSafetensors(file), { instanceOf: AutoparError, message });
    t.is(error?.exit, 'input');
    t.is(error?.where.file, file);
  }
  await write();
  const opened = await openSafetensors(file);
  await t.throwsAsync(opened.read('v'), { message: /holds no tensor named v/ });
  await opened.close();
  await rm(file);
  await mkdir(file);
  const message = /is a folder or a device/;
  const error = await t.throwsAsync(openSafetensors(file), { instanceOf: AutoparError, message });
  t.is(error?.exit, 'input');
  await rm(folder, { recursive: true });
});
