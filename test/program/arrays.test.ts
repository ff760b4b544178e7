import test from 'ava';
import fc from 'fast-check';
import { npyNote, readNpy, writeNpy } from '../../src/program/arrays/npy.js';
import { readNpz, writeNpz } from '../../src/program/arrays/npz.js';
import { asBytes } from '../../src/program/typed.js';
import { AutoparError, byteLength, type DType, elementCount } from '../../src/program/values.js';

const DTYPES: readonly DType[] = [
  'float16',
  'float32',
  'float64',
  'int8',
  'int16',
  'int32',
  'int64',
  'uint8',
  'uint16',
  'uint32',
  'uint64',
  'bool',
  'complex64',
  'complex128',
];

test('arrays of every dtype and shape survive .npy and .npz', (t) => {
  const tensors = fc
    .tuple(fc.constantFrom(...DTYPES), fc.array(fc.nat(4), { maxLength: 4 }))
    .chain(([dtype, shape]) => {
      const length = byteLength(dtype, elementCount(shape));
      return fc.uint8Array({ minLength: length, maxLength: length }).map((data) => ({ dtype, shape, data }));
    });
  fc.assert(fc.property(tensors, (tensor) => void t.deepEqual(readNpy(writeNpy(tensor), 'x'), tensor)));
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom('x', 'y/z', 'a.b'), tensors), (arrays) => {
      t.deepEqual(readNpz(writeNpz(arrays), 'f'), { ...arrays });
    }),
    { numRuns: 20 },
  );
});

test('a file is what numpy.save writes, byte by byte', (t) => {
  // numpy.save of numpy.array([[1, 2, 3], [4, 5, 6]], numpy.float32) and of numpy.int64(7)
  const matrix = float32([1, 2, 3, 4, 5, 6]);
  t.deepEqual(writeNpy({ dtype: 'float32', shape: [2, 3], data: matrix }), npy(HEADER_2X3, matrix));
  const scalar = asBytes(BigInt64Array.of(7n));
  const header = "{'descr': '<i8', 'fortran_order': False, 'shape': (), }".padEnd(117);
  t.deepEqual(writeNpy({ dtype: 'int64', shape: [], data: scalar }), npy(header, scalar));
  const vector = Uint8Array.of(1, 0);
  const line = "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }".padEnd(117);
  t.deepEqual(writeNpy({ dtype: 'bool', shape: [2], data: vector }), npy(line, vector));
});

test('column order, big-endian and later header versions are read', (t) => {
  const fortran = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", float32([1, 4, 2, 5, 3, 6]));
  t.deepEqual(readNpy(fortran, 'x').data, float32([1, 2, 3, 4, 5, 6]));
  const big = npy("{'descr': '>i2', 'fortran_order': False, 'shape': (2,)}", Uint8Array.of(1, 2, 3, 4));
  t.deepEqual(readNpy(big, 'x'), { dtype: 'int16', shape: [2], data: Uint8Array.of(2, 1, 4, 3) });
  const plain = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", Uint8Array.of(9));
  const second = Buffer.concat([
    plain.subarray(0, 6),
    Buffer.of(2, 0),
    plain.subarray(8, 10),
    Buffer.of(0, 0),
    plain.subarray(10),
  ]);
  t.deepEqual([...readNpy(second, 'x').data], [9]);
  const odd = npy("{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", Uint8Array.of(0x80, 0x3f));
  t.is(readNpy(odd, 'x').dtype, 'bfloat16');
});

test('bfloat16 is written as patterns, with a note', (t) => {
  const data = Uint8Array.of(0x80, 0x3f);
  t.deepEqual(readNpy(writeNpy({ dtype: 'bfloat16', shape: [1], data }), 'x'), { dtype: 'uint16', shape: [1], data });
  t.regex(npyNote('bfloat16') ?? '', /uint16/);
  t.is(npyNote('float32'), null);
});

test('a deflated archive is read', (t) => {
  // numpy.savez_compressed('f.npz', x=numpy.arange(3, dtype=numpy.int8))
  const archive = Buffer.from(COMPRESSED, 'base64');
  t.deepEqual(readNpz(archive, 'f.npz'), { x: { dtype: 'int8', shape: [3], data: Uint8Array.of(0, 1, 2) } });
});

test('bad files are refused by name', (t) => {
  const good = writeNpy({ dtype: 'float32', shape: [2], data: float32([1, 2]) });
  const cases: [() => unknown, RegExp][] = [
    [() => readNpy(Uint8Array.of(1, 2, 3), 'a.npy'), /a\.npy is not a \.npy file/],
    [() => readNpy(good.subarray(0, good.length - 1), 'a.npy'), /a\.npy is truncated: float32 \[2\] needs 8 bytes, 7/],
    [() => readNpy(good.subarray(0, 40), 'a.npy'), /a\.npy ends inside its header/],
    [() => readNpy(npy("{'descr': '<U3', 'fortran_order': False, 'shape': (1,)}", good), 'a.npy'), /type '<U3'/],
    [() => readNpy(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", good), 'a.npy'), /type '\|O'/],
    [
      () => readNpy(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", good), 'a.npy'),
      /named fields/,
    ],
    [() => readNpy(npy('{}', good), 'a.npy'), /malformed header/],
    [() => readNpz(good, 'b.npz'), /b\.npz is not a readable \.npz archive/],
  ];
  for (const [read, message] of cases) {
    const error = t.throws(read, { instanceOf: AutoparError, message });
    t.is(error?.exit, 'input');
  }
});

const HEADER_2X3 = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".padEnd(117);

const COMPRESSED =
  'UEsDBC0AAAAIAAAAIQCsmP8z//////////8FABQAeC5ucHkBABAAgwAAAAAAAABHAAAAAAAAAJvsF+obEMnIUMZQrZ6SWpxcpG6l' +
  'oF6Taaiuo6Cell9UUpSYF59flJIKEndLzClOBYoXZyQWpAL5GsY6mjoKtQoUAC4GRiYAUEsBAi0DLQAAAAgAAAAhAKyY/zNHAAAA' +
  'gwAAAAUAAAAAAAAAAAAAAIABAAAAAHgubnB5UEsFBgAAAAABAAEAMwAAAH4AAAAAAA==';

function float32(values: readonly number[]): Uint8Array {
  return asBytes(Float32Array.from(values));
}

function npy(header: string, data: Uint8Array): Uint8Array {
  const text = Buffer.from(`${header}\n`, 'latin1');
  const bytes = Buffer.concat([
    Buffer.from('\x93NUMPY\x01\x00', 'latin1'),
    Buffer.of(text.length & 255, text.length >> 8),
    text,
    data,
  ]);
  return new Uint8Array(bytes);
}
