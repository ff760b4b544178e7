import test from 'ava';
import type { ConstantTensor } from '../../../src/ir/graph.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { ATTENTION_FORMS, grouped, qkv } from './attention-forms.js';
import { attention, broadcastTo, matrices } from './formulas.js';
import { regionsOf, runRegion, type Written } from './written.js';

/** How a mask works on a score. */
const MASKS: Readonly<Record<string, (score: number, mask: number) => number>> = {
  add: (score, mask) => score + mask,
  subtract: (score, mask) => score - mask,
  keep: (score, mask) => (mask ? score : Number.NEGATIVE_INFINITY),
  hide: (score, mask) => (mask ? Number.NEGATIVE_INFINITY : score),
};

for (const [name, form] of Object.entries(ATTENTION_FORMS)) {
  test(`attention: ${name}`, async (t) => {
    const { graph, regions } = await regionsOf(form);
    t.deepEqual(
      regions.map((region) => region.kind),
      ['Attention'],
    );
    const [region] = regions;
    if (!region) return;
    t.is(region.nodes.length, form.inside);
    t.deepEqual(region.inputs, form.reads);
    t.deepEqual(Object.keys(region.attributes).sort(), Object.keys(form.attributes).sort());
    for (const [attribute, value] of Object.entries(form.attributes))
      t.true(Math.abs(Number(region.attributes[attribute]) - value) < 1e-6, attribute);
    const { inputs, output } = await runRegion(graph, region);
    const [query, key, values, ...masks] = inputs;
    if (!query || !key || !values) return t.fail();
    const [queries, keys, held] = [query, key, values].map((tensor, place) => matrices(tensor, form.perms?.[place]));
    if (!queries || !keys || !held) return t.fail();
    const told = region.attributes as { scale: number; softcap?: number; mask_scale?: number };
    const broadcast = masks.map((mask, place) =>
      broadcastTo(mask, form.scores?.[place] ?? [...query.shape.slice(0, -1), keys.rows]),
    );
    const expected = attention(
      queries,
      keys,
      held,
      told,
      (flat, score) =>
        (form.masks ?? []).reduce((sum, kind, place) => {
          const factor = kind === 'keep' || kind === 'hide' ? 1 : (told.mask_scale ?? 1);
          return MASKS[kind]?.(sum, factor * (broadcast[place]?.[flat] ?? 0)) ?? sum;
        }, score),
      form.head,
    );
    const actual = matricesInOrder(output, form.perms?.[3]);
    const worst = Math.max(...expected.map((number, flat) => Math.abs(number - (actual[flat] ?? Number.NaN))));
    t.is(actual.length, expected.length);
    t.true(worst < (form.precision ?? 2e-6), `off by ${worst}`);
  });
}

function matricesInOrder(tensor: ConstantTensor, perm: readonly number[] | undefined): readonly number[] {
  if (!perm) return numbersOf(tensor);
  const { count, rows, columns, at } = matrices(tensor, perm);
  return Array.from({ length: count * rows * columns }, (_, flat) =>
    at(Math.floor(flat / (rows * columns)), Math.floor(flat / columns) % rows, flat % columns),
  );
}

const plain = `
  kt = Transpose(k) {"perm": [0, 1, 3, 2]}
  s = MatMul(q, kt)
  t = Mul(s, 0.25)
  p = Softmax(t) {"axis": 3}
  y = MatMul(p, v)`;
const square = { q: [2, 4, 5, 8], k: [2, 4, 5, 8], v: [2, 4, 5, 8] };

const NEAR_MISSES: Readonly<Record<string, Written>> = {
  'softmax over the queries': { inputs: square, lines: plain.replace('"axis": 3', '"axis": 2') },
  'softmax over the heads': { inputs: square, lines: plain.replace('"axis": 3', '"axis": 1') },
  'probabilities are an output': { inputs: qkv, lines: plain, outputs: ['y', 'p'] },
  'scores are read elsewhere': { inputs: qkv, lines: `${plain}\n  z = Relu(s)`, outputs: ['y', 'z'] },
  'scores times a tensor': {
    inputs: { ...qkv, f: [4, 1, 1] },
    lines: plain.replace('Mul(s, 0.25)', 'Mul(s, f)'),
  },
  'keys are a weight: a linear layer': {
    inputs: { q: [2, 4, 5, 8], v: [2, 4, 7, 8] },
    weights: { 'layer.weight': [8, 7] },
    lines: 's = MatMul(q, layer.weight)\n p = Softmax(s) {"axis": 3}\n y = MatMul(p, v)',
  },
  'values are a weight: mixed embeddings': {
    inputs: { q: [2, 5, 8], k: [2, 8, 7] },
    weights: { 'layer.weight': [7, 3] },
    lines: 's = MatMul(q, k)\n p = Softmax(s) {"axis": 2}\n y = MatMul(p, layer.weight)',
  },
  'mask inside the cap': {
    inputs: { ...qkv, m: [5, 7] },
    lines: plain.replace('t = Mul(s, 0.25)', 'a = Add(s, m)\n h = Tanh(a)\n t = Mul(h, 3.0)'),
  },
  'masks of different scale': {
    inputs: { ...qkv, m: [5, 7], b: [5, 7] },
    lines: plain.replace('t = Mul(s, 0.25)', 'a = Add(s, m)\n h = Mul(a, 0.25)\n t = Add(h, b)'),
  },
  'filled with a number that is not −∞': {
    inputs: { ...qkv, m: ['bool', 5, 7] },
    lines: plain.replace('t = Mul(s, 0.25)', 't = Where(m, s, -1.0)'),
  },
  'guarded with another number than 0': {
    inputs: qkv,
    lines: plain.replace('y = MatMul(p, v)', 'n = IsNaN(p)\n g = Where(n, 0.5, p)\n y = MatMul(g, v)'),
  },
  'heads mixed between softmax and values': {
    inputs: square,
    lines: plain.replace('y = MatMul(p, v)', 'r = Transpose(p) {"perm": [0, 2, 1, 3]}\n y = MatMul(r, w)'),
  },
};

for (const [name, written] of Object.entries(NEAR_MISSES)) {
  test(`no attention: ${name}`, async (t) => {
    const inputs = written.lines.includes(', w)') ? { ...written.inputs, w: [2, 5, 5, 8] } : written.inputs;
    const { regions } = await regionsOf({ ...written, inputs });
    t.deepEqual(regions, []);
  });
}

test('keys that others read as well are taken turned or repeated', async (t) => {
  const { regions } = await regionsOf({
    inputs: grouped,
    lines: `
      kr = Tile(k, [1, 2, 1, 1])
      kt = Transpose(kr) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      p = Softmax(s) {"axis": 3}
      w = Tile(v, [1, 2, 1, 1])
      y = MatMul(p, w)
      z = Relu(kr)`,
    outputs: ['y', 'z'],
  });
  t.deepEqual(
    regions.map((region) => region.inputs),
    [['q', 'kr', 'v']],
  );
});

test('a region ends at the values product: heads are put together outside', async (t) => {
  const { regions } = await regionsOf({
    inputs: qkv,
    lines: `${plain}\n  o = Transpose(y) {"perm": [0, 2, 1, 3]}\n  r = Reshape(o, [2, 5, 32])`,
  });
  t.deepEqual(
    regions.map((region) => region.outputs),
    [['y']],
  );
});
