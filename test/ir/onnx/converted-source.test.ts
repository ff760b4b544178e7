/**
 * @file Weights in another type than their file has them in: the elements are those that ONNX Runtime's Cast makes, wherever the
 * bytes are and in whatever pieces they are read.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { onnxOfDtype } from '../../../src/ir/dtype.js';
import type { WeightSource } from '../../../src/ir/graph.js';
import { convertedSource } from '../../../src/ir/onnx/converted-source.js';
import { encodeModel } from '../../../src/ir/onnx/schema.js';
import { readWeight } from '../../../src/ir/onnx/tensors.js';
import { openWeight, PIECE, room } from '../../../src/ir/onnx/weight-reader.js';
import { WeightReader } from '../../../src/ir/parameters/weight-reader.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { model, node, value } from '../model-maker.js';

/** A file of these bytes behind two others, removed when the test ends. */
function stored(t: ExecutionContext, bytes: Uint8Array): Extract<WeightSource, { kind: 'external' }> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'weights.bin');
  writeFileSync(file, Buffer.concat([Buffer.from('ab'), bytes]));
  return { kind: 'external', file, offset: 2, length: bytes.length };
}

/** Patterns of all signs and exponents, infinities and numbers that are not numbers among them, and halves between neighbours. */
function patterns(count: number): Float32Array {
  const bits = Uint32Array.from({ length: count }, (_, index) => {
    const mixed = Math.imul(index + 1, 0x9e3779b1);
    return index % 3 === 0 ? mixed : index % 3 === 1 ? (mixed & 0xffff0000) | 0x8000 : (mixed & 0xffffe000) | 0x1000;
  });
  bits.set([
    0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x80000000,
  ]);
  return new Float32Array(bits.buffer);
}

/** The numbers after a Cast to the type and one back. */
async function castByOnnxRuntime(numbers: Float32Array, low: 'float16' | 'bfloat16'): Promise<Uint32Array> {
  const graph = {
    node: [
      node('Cast', ['x'], ['low'], { to: onnxOfDtype(low) }),
      node('Cast', ['low'], ['y'], { to: onnxOfDtype('float32') }),
    ],
    input: [value('x', [numbers.length])],
    output: [value('y', [numbers.length])],
  };
  const x = { dtype: 'float32', shape: [numbers.length], data: new Uint8Array(numbers.buffer) } as const;
  const { y } = await runOnnx(encodeModel(model(graph)), { x }, { optimised: false });
  return bitsOf(y?.data ?? new Uint8Array());
}

/** Of all numbers that are not numbers one pattern. */
function bitsOf(data: Uint8Array): Uint32Array {
  const bits = new Uint32Array(data.slice().buffer);
  return bits.map((word) => ((word & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : word));
}

const ROWS = 24;

for (const low of ['float16', 'bfloat16'] as const)
  test(`rounded to ${low} and widened, a weight has the values of two Casts, wherever its bytes are`, async (t) => {
    const numbers = patterns(ROWS * 4000);
    const bytes = new Uint8Array(numbers.buffer);
    const columns = numbers.length / ROWS;
    const turned = Float32Array.from(
      numbers,
      (_, index) => numbers[(index % ROWS) * columns + Math.floor(index / ROWS)] ?? 0,
    );
    const half = bytes.length / 2;
    const parts = [stored(t, bytes.subarray(0, half)), { kind: 'inline', data: bytes.subarray(half) }] as const;
    const transposition = { shape: [ROWS, columns], order: [1, 0] };
    const cases: readonly (readonly [WeightSource, Float32Array])[] = [
      [{ kind: 'inline', data: bytes }, numbers],
      [stored(t, bytes), numbers],
      [{ ...stored(t, bytes), transposition }, turned],
      [{ kind: 'stacked', length: bytes.length, parts }, numbers],
      [{ kind: 'zero', length: 40 }, new Float32Array(10)],
    ];
    for (const [source, whole] of cases) {
      const rounded = convertedSource(source, 'float32', low);
      const data = readWeight(rounded);
      t.is(data?.length, 2 * whole.length);
      const widened = convertedSource(rounded, low, 'float32');
      t.deepEqual(bitsOf(readWeight(widened) ?? new Uint8Array()), await castByOnnxRuntime(whole, low), source.kind);
      for (const reader of [openWeight(rounded, room()), new WeightReader()]) {
        const read = (offset: number, length: number) =>
          reader instanceof WeightReader ? reader.read(rounded, offset, length) : reader?.read(offset, length);
        for (const [offset, length] of [
          [0, 6],
          [10, 10],
          [2, 4],
        ] as const)
          t.deepEqual([...(read(offset, length) ?? [])], [...(data ?? []).slice(offset, offset + length)], source.kind);
        reader?.close();
      }
    }
  });

test('a converted weight larger than a window of its file is read in pieces, none of them larger', (t) => {
  const numbers = Float32Array.from({ length: PIECE / 2 + 1000 }, (_, index) => index % 251);
  const rounded = convertedSource(stored(t, new Uint8Array(numbers.buffer)), 'float32', 'float16');
  const reader = openWeight(rounded, room());
  if (!reader) return t.fail();
  const widened = openWeight(convertedSource(rounded, 'float16', 'float32'), room());
  for (const first of [0, 999, 1]) {
    const piece = reader.read(2 * first, PIECE);
    t.is(piece.length, PIECE);
    const again = new Float32Array(widened?.read(4 * first, PIECE).slice().buffer ?? []);
    t.is(
      again.findIndex((number, index) => number !== (first + index) % 251),
      -1,
    );
  }
  reader.close();
  widened?.close();
});

test('a weight without a value stays without one', (t) => {
  const absent = convertedSource({ kind: 'absent' }, 'float32', 'bfloat16');
  t.is(readWeight(absent), null);
  t.is(openWeight(convertedSource(absent, 'bfloat16', 'float32'), room()), null);
});
