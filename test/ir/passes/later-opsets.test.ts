import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { ConstantTensor } from '../../../src/ir/graph.js';
import { encodeModel } from '../../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { float, model, node, saved, value } from '../model-maker.js';
import { compare, noise, operators } from '../same-results.js';

/** ONNX Runtime has no opset 28 yet: expected values are the operators' definitions. */
const OPSET = 28;

test('SwiGLU multiplies the value by the swish of its gate', async (t) => {
  const sides = ['a', 'b'].map((name) => value(name, [2, 3]));
  const file = model(
    { node: [node('SwiGLU', ['a', 'b'], ['y'], { alpha: float(1.5) })], input: sides, output: [value('y', [2, 3])] },
    OPSET,
  );
  const gate = [-2, -0.5, 0, 0.5, 1, 3];
  const other = [1, 2, 3, -4, 5, 6];
  const { graph } = await importModel(await saved(file));
  const expected = gate.map((number, index) => (number / (1 + Math.exp(-1.5 * number))) * (other[index] ?? 0));
  const feeds = { a: constant('float32', gate, [2, 3]), b: constant('float32', other, [2, 3]) };
  compare(t, await runOnnx(writeOnnx(graph), feeds), { y: constant('float32', expected, [2, 3]) });
});

test("SwiGLU's region is found as the one of Swish and Mul", async (t) => {
  const of = (written: ReturnType<typeof node>[]) =>
    model(
      {
        node: [
          node('MatMul', ['x', 'w'], ['a']),
          node('MatMul', ['x', 'v'], ['b']),
          ...written,
          node('MatMul', ['y', 'd'], ['z']),
        ],
        input: [value('x', [4, 8]), value('w', [8, 16]), value('v', [8, 16]), value('d', [16, 8])],
        output: [value('z', [4, 8])],
      },
      OPSET,
    );
  const one = await importModel(await saved(of([node('SwiGLU', ['a', 'b'], ['y'])])));
  const two = await importModel(await saved(of([node('Swish', ['a'], ['s']), node('Mul', ['s', 'b'], ['y'])])));
  t.deepEqual(operators(one), operators(two));
});

test('Mod of floating-point numbers has the sign of its divisor, without fmod', async (t) => {
  const dividends = [7, -7, 7, -7, 5.5, -5.5, 6, -6, 1, -1, 1, -1];
  const divisors = [3, 3, -3, -3, 2, 2, 3, 3, Infinity, Infinity, -Infinity, -Infinity];
  const expected = [1, 2, -2, -1, 1.5, 0.5, 0, 0, 1, Infinity, -Infinity, -1];
  const file = model(
    {
      node: [node('Mod', ['a', 'b'], ['y'])],
      input: ['a', 'b'].map((name) => value(name, [12])),
      output: [value('y', [12])],
    },
    OPSET,
  );
  const { graph } = await importModel(await saved(file));
  const feeds = { a: constant('float32', dividends, [12]), b: constant('float32', divisors, [12]) };
  compare(t, await runOnnx(writeOnnx(graph), feeds), { y: constant('float32', expected, [12]) });
});

test('Mod of integers, and with fmod, stays one operator', async (t) => {
  const of = (dtype: 'int32' | 'float32', fmod: number) =>
    model(
      {
        node: [node('Mod', ['a', 'b'], ['y'], { fmod })],
        input: ['a', 'b'].map((name) => value(name, [2], dtype)),
        output: [value('y', [2], dtype)],
      },
      OPSET,
    );
  for (const file of [of('int32', 0), of('float32', 1)])
    t.deepEqual(operators(await importModel(await saved(file))), ['Mod']);
});

test('SpaceToDepth orders channels and blocks by its mode', async (t) => {
  // Two channels of 4 × 2: 0 to 7, and 10 to 17.
  const image = [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17];
  // Each new channel has two rows: of the first block, and of the second.
  const byMode: Readonly<Record<string, readonly number[]>> = {
    DCR: [0, 4, 10, 14, 1, 5, 11, 15, 2, 6, 12, 16, 3, 7, 13, 17],
    CRD: [0, 4, 1, 5, 2, 6, 3, 7, 10, 14, 11, 15, 12, 16, 13, 17],
  };
  for (const [mode, expected] of Object.entries(byMode)) {
    const file = model(
      {
        node: [node('SpaceToDepth', ['x'], ['y'], { blocksize: 2, mode })],
        input: [value('x', [1, 2, 4, 2])],
        output: [value('y', [1, 8, 2, 1])],
      },
      OPSET,
    );
    const { graph } = await importModel(await saved(file));
    const results = await runOnnx(writeOnnx(graph), { x: constant('float32', image, [1, 2, 4, 2]) });
    compare(t, results, { y: constant('float32', expected, [1, 8, 2, 1]) });
  }
});

/** One sample, one head, four queries, six keys. */
const [QUERIES, KEYS] = [4, 6];
const heads = {
  q: noise([1, 1, QUERIES, 8], 2),
  k: noise([1, 1, KEYS, 8], 3),
  v: noise([1, 1, KEYS, 8], 4),
};
const operands = Object.entries(heads).map(([name, { shape }]) => value(name, shape));

/** Attention that sees the keys for which `sees` is true, in a mask of floating-point numbers. */
async function attended(sees: (query: number, key: number) => boolean, added = (_key: number) => 0) {
  const mask = Array.from({ length: QUERIES * KEYS }, (_, at) => {
    const [query, key] = [Math.floor(at / KEYS), at % KEYS];
    return sees(query, key) ? added(key) : -Infinity;
  });
  const file = model(
    {
      node: [node('Attention', ['q', 'k', 'v', 'm'], ['y'])],
      input: [...operands, value('m', [QUERIES, KEYS])],
      output: [value('y', [1, 1, QUERIES, 8])],
    },
    23,
  );
  return runOnnx(encodeModel(file), { ...heads, m: constant('float32', mask, [QUERIES, KEYS]) });
}

test('windows of attention are a part of its mask', async (t) => {
  const run = async (
    attributes: Readonly<Record<string, number>>,
    mask: { readonly m?: ConstantTensor } = {},
    opset = OPSET,
  ) => {
    const given = Object.entries(mask).map(([name, { dtype, shape }]) => value(name, shape, dtype));
    const file = model(
      {
        node: [node('Attention', ['q', 'k', 'v', ...given.map(({ name = '' }) => name)], ['y'], attributes)],
        input: [...operands, ...given],
        output: [value('y', [1, 1, QUERIES, 8])],
      },
      opset,
    );
    const { graph } = await importModel(await saved(file));
    t.deepEqual(
      graph.nodes.flatMap(({ attributes: kept }) => Object.keys(kept)).filter((name) => name.includes('window')),
      [],
    );
    return runOnnx(writeOnnx(graph), { ...heads, ...mask });
  };
  compare(
    t,
    await run({ left_window_size: 1, right_window_size: 2 }),
    await attended((query, key) => key >= query - 1 && key <= query + 2),
  );
  compare(
    t,
    await run({ left_window_size: 2, is_causal: 1 }),
    await attended((query, key) => key >= query - 2 && key <= query),
  );
  const bits = [1, 1, 1, 0, 1, 1];
  compare(
    t,
    await run({ right_window_size: 3 }, { m: constant('bool', bits, [KEYS]) }),
    await attended((query, key) => key <= query + 3 && bits[key] === 1),
  );
  compare(t, await run({}, { m: constant('bool', bits, [KEYS]) }), await attended((_query, key) => bits[key] === 1));
  const addend = [0.5, -1, 2, 0, -0.25, 1];
  compare(
    t,
    await run(
      { left_window_size: 2 },
      { m: constant('float32', [...addend, ...addend, ...addend, ...addend], [QUERIES, KEYS]) },
    ),
    await attended(
      (query, key) => key >= query - 2,
      (key) => addend[key] ?? 0,
    ),
  );
});

test('a window counts the keys of a cache, or as many as each sample has', async (t) => {
  const [cached, made] = [2, 4];
  const part = ({ dtype, data }: ConstantTensor, from: number, to: number) => ({
    dtype,
    shape: [1, 1, to - from, 8],
    data: data.slice(from * 32, to * 32),
  });
  const withCache = model(
    {
      node: [node('Attention', ['q', 'k', 'v', '', 'pk', 'pv'], ['y', 'nk', 'nv'], { left_window_size: 1 })],
      input: [
        value('q', [1, 1, QUERIES, 8]),
        value('k', [1, 1, made, 8]),
        value('v', [1, 1, made, 8]),
        value('pk', [1, 1, cached, 8]),
        value('pv', [1, 1, cached, 8]),
      ],
      output: [value('y', [1, 1, QUERIES, 8]), value('nk', [1, 1, KEYS, 8]), value('nv', [1, 1, KEYS, 8])],
    },
    OPSET,
  );
  const expected = await attended((query, key) => key >= query + cached - 1);
  const first = await importModel(await saved(withCache));
  const { y } = await runOnnx(writeOnnx(first.graph), {
    q: heads.q,
    k: part(heads.k, cached, KEYS),
    v: part(heads.v, cached, KEYS),
    pk: part(heads.k, 0, cached),
    pv: part(heads.v, 0, cached),
  });
  compare(t, y ? { y } : {}, expected);
  const withLengths = model(
    {
      node: [node('Attention', ['q', 'k', 'v', '', '', '', 'n'], ['y'], { left_window_size: 1 })],
      input: [...operands, value('n', [1], 'int64')],
      output: [value('y', [1, 1, QUERIES, 8])],
    },
    OPSET,
  );
  const second = await importModel(await saved(withLengths));
  compare(
    t,
    await runOnnx(writeOnnx(second.graph), { ...heads, n: constant('int64', [5], [1]) }),
    await attended((query, key) => key >= query + 5 - QUERIES - 1 && key < 5),
  );
});

test("linear attention and its convolution are ONNX Runtime's own operators", async (t) => {
  const parts = (domain: string) => [
    node(
      'LinearAttention',
      ['q', 'k', 'v', '', 'd', 'b'],
      ['y', 's'],
      { q_num_heads: 4, kv_num_heads: 2, update_rule: 'gated_delta' },
      { domain },
    ),
    node('CausalConvWithState', ['x', 'w'], ['z', 'r'], { activation: 'silu' }, { domain }),
  ];
  const shapes = { q: [2, 6, 16], k: [2, 6, 8], v: [2, 6, 8], d: [2, 6, 2], b: [2, 6, 2], x: [2, 4, 6], w: [4, 1, 3] };
  const feeds = Object.fromEntries(Object.entries(shapes).map(([name, shape], at) => [name, noise(shape, at + 1)]));
  const file = (domain: string, opset: number) =>
    model(
      {
        node: parts(domain),
        input: Object.entries(shapes).map(([name, shape]) => value(name, shape)),
        output: [value('y', [2, 6, 16]), value('s', [2, 2, 4, 4]), value('z', [2, 4, 6]), value('r', [2, 4, 2])],
      },
      opset,
    );
  const own = file('com.microsoft', 21);
  const expected = await runOnnx(
    encodeModel({ ...own, opset_import: [...(own.opset_import ?? []), { domain: 'com.microsoft', version: 1 }] }),
    feeds,
  );
  const { graph } = await importModel(await saved(file('', OPSET)));
  compare(t, await runOnnx(writeOnnx(graph), feeds), expected);
});
