import test from 'ava';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { normalised } from './formulas.js';
import { regionsOf, runRegion, type Written } from './written.js';

interface Form extends Written {
  readonly kind: 'LayerNormalization' | 'RMSNormalization';
  readonly inside: number;
  readonly reads: readonly string[];
  readonly result?: string;
  readonly attributes?: { readonly axis: number; readonly epsilon: number };
  readonly precision?: number;
}

const x = { x: [2, 5, 16] };
const half = { x: ['float16', 2, 5, 16] } as const;
const scale = { 'norm.weight': [16] };
const affine = { 'norm.weight': [16], 'norm.bias': [16] };
const layer = 'LayerNormalization';
const rms = 'RMSNormalization';

const FORMS: Readonly<Record<string, Form>> = {
  'layer, Pow and Div, scale and bias': {
    kind: layer,
    inputs: x,
    weights: affine,
    lines: `
      m = ReduceMean(x, [-1])
      c = Sub(x, m)
      q = Pow(c, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      n = Div(c, r)
      s = Mul(n, norm.weight)
      y = Add(s, norm.bias)`,
    inside: 9,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'layer, a difference of its own, Mul, one over the root, factors turned around': {
    kind: layer,
    inputs: x,
    weights: affine,
    lines: `
      m = ReduceMean(x, [2])
      c = Sub(x, m)
      q = Mul(c, c)
      v = ReduceMean(q, [2])
      e = Add(0.001, v)
      r = Sqrt(e)
      i = Div(1.0, r)
      n = Mul(i, c)
      s = Mul(norm.weight, n)
      y = Add(norm.bias, s)`,
    inside: 10,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'layer without scale': {
    kind: layer,
    inputs: x,
    lines: `
      m = ReduceMean(x, [-1])
      c = Sub(x, m)
      q = Mul(c, c)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      y = Div(c, r)`,
    inside: 7,
    reads: ['x'],
  },
  'layer, a variance without the dimension and a Reshape that brings it back': {
    kind: layer,
    inputs: x,
    weights: scale,
    lines: `
      m = ReduceMean(x, [-1])
      c = Sub(x, m)
      q = Mul(c, c)
      v = ReduceMean(q, [-1]) {"keepdims": 0}
      w = Reshape(v, [2, 5, 1])
      e = Add(w, 0.001)
      r = Sqrt(e)
      i = Reciprocal(r)
      n = Mul(c, i)
      y = Mul(n, norm.weight)`,
    inside: 10,
    reads: ['x', 'norm.weight'],
  },
  'layer over two dimensions': {
    kind: layer,
    inputs: { x: [2, 3, 4, 5] },
    weights: { 'norm.weight': [4, 5], 'norm.bias': [4, 5] },
    lines: `
      m = ReduceMean(x, [-2, -1])
      c = Sub(x, m)
      q = Mul(c, c)
      v = ReduceMean(q, [2, 3])
      e = Add(v, 0.001)
      r = Sqrt(e)
      n = Div(c, r)
      s = Mul(n, norm.weight)
      y = Add(s, norm.bias)`,
    inside: 9,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'layer, cast up for the variance alone': {
    kind: layer,
    inputs: half,
    lines: `
      m = ReduceMean(x, [-1])
      c = Sub(x, m)
      u = Cast(c) {"to": 1}
      q = Pow(u, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      n = Div(u, r)
      y = Cast(n) {"to": 10}`,
    inside: 9,
    reads: ['x'],
    precision: 4e-3,
  },
  'layer, scale and bias folded into the mean': {
    kind: layer,
    inputs: x,
    weights: affine,
    lines: `
      m = ReduceMean(x, [-1])
      c = Sub(x, m)
      q = Mul(c, c)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      i = Reciprocal(r)
      s = Mul(i, norm.weight)
      a = Mul(x, s)
      b = Mul(m, s)
      d = Sub(norm.bias, b)
      y = Add(a, d)`,
    inside: 12,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'layer, pooled means, scale and bias folded into the negated mean': {
    kind: layer,
    inputs: x,
    weights: affine,
    lines: `
      m = GlobalAveragePool(x)
      g = Neg(m)
      c = Sub(x, m)
      q = Mul(c, c)
      v = GlobalAveragePool(q)
      e = Add(v, 0.001)
      r = Sqrt(e)
      i = Reciprocal(r)
      s = Mul(i, norm.weight)
      a = Mul(x, s)
      b = Mul(g, s)
      d = Add(b, norm.bias)
      y = Add(a, d)`,
    inside: 13,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'RMS, Pow and Reciprocal': {
    kind: rms,
    inputs: x,
    weights: scale,
    lines: `
      q = Pow(x, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      i = Reciprocal(r)
      n = Mul(x, i)
      y = Mul(norm.weight, n)`,
    inside: 7,
    reads: ['x', 'norm.weight'],
  },
  'RMS, Mul and Div, without scale': {
    kind: rms,
    inputs: x,
    lines: `
      q = Mul(x, x)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      y = Div(x, r)`,
    inside: 5,
    reads: ['x'],
  },
  'RMS, a power of −½': {
    kind: rms,
    inputs: x,
    weights: scale,
    lines: `
      q = Pow(x, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      i = Pow(e, -0.5)
      n = Mul(x, i)
      y = Mul(n, norm.weight)`,
    inside: 6,
    reads: ['x', 'norm.weight'],
  },
  'RMS in half precision, scaled after the cast back, as Llama has it': {
    kind: rms,
    inputs: { ...half, w: ['float16', 16] },
    lines: `
      u = Cast(x) {"to": 1}
      q = Pow(u, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      i = Reciprocal(r)
      n = Mul(u, i)
      h = Cast(n) {"to": 10}
      y = Mul(w, h)`,
    inside: 9,
    reads: ['x', 'w'],
    precision: 4e-3,
  },
  'RMS in half precision, scaled by 1 + w before the cast back, as Gemma has it': {
    kind: rms,
    inputs: { ...half, w: [16] },
    lines: `
      g = Add(1.0, w)
      u = Cast(x) {"to": 1}
      q = Pow(u, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      i = Pow(e, -0.5)
      n = Mul(u, i)
      s = Mul(n, g)
      y = Cast(s) {"to": 10}`,
    inside: 8,
    reads: ['x', 'g'],
    precision: 4e-3,
  },
  'RMS whose data in float32 are read elsewhere: the cast stays outside': {
    kind: rms,
    inputs: half,
    lines: `
      u = Cast(x) {"to": 1}
      q = Pow(u, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      n = Div(u, r)
      z = Add(u, n)`,
    inside: 5,
    reads: ['u'],
    result: 'n',
  },
  'layer, the variance as a difference of moments, as Flax writes it': {
    kind: layer,
    inputs: x,
    weights: affine,
    lines: `
      m = ReduceMean(x, [-1])
      c = Sub(x, m)
      q = Mul(x, x)
      p = ReduceMean(q, [-1])
      f = Mul(m, m)
      d = Sub(p, f)
      v = Max(d, 0.0)
      e = Add(v, 0.001)
      r = Sqrt(e)
      n = Div(c, r)
      s = Mul(n, norm.weight)
      y = Add(s, norm.bias)`,
    inside: 12,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'layer, moments without the dimension, the scale on the reciprocal root': {
    kind: layer,
    inputs: x,
    weights: affine,
    lines: `
      m = ReduceMean(x, [-1]) {"keepdims": 0}
      q = Mul(x, x)
      p = ReduceMean(q, [-1]) {"keepdims": 0}
      f = Pow(m, 2.0)
      d = Sub(p, f)
      w = Reshape(d, [2, 5, 1])
      k = Reshape(m, [2, 5, 1])
      c = Sub(x, k)
      e = Add(w, 0.001)
      r = Sqrt(e)
      i = Reciprocal(r)
      g = Mul(i, norm.weight)
      n = Mul(c, g)
      y = Add(n, norm.bias)`,
    inside: 14,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'layer, sums divided by the count, as JAX writes means': {
    kind: layer,
    inputs: x,
    weights: affine,
    lines: `
      a = ReduceSum(x, [-1]) {"keepdims": 0}
      b = Reshape(a, [2, 5, 1])
      m = Div(b, 16.0)
      c = Sub(x, m)
      q = ReduceSumSquare(c, [-1])
      v = Mul(q, 0.0625)
      e = Add(v, 0.001)
      r = Sqrt(e)
      i = Div(1.0, r)
      n = Mul(c, i)
      s = Mul(n, norm.weight)
      y = Add(s, norm.bias)`,
    inside: 12,
    reads: ['x', 'norm.weight', 'norm.bias'],
  },
  'RMS whose scale is followed by another factor over the batch': {
    kind: rms,
    inputs: { x: [2, 5, 16], g: [2, 1, 16] },
    weights: scale,
    lines: `
      q = Pow(x, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      n = Div(x, r)
      s = Mul(n, norm.weight)
      y = Mul(s, g)`,
    inside: 6,
    reads: ['x', 'norm.weight'],
    result: 's',
  },
};

for (const [name, form] of Object.entries(FORMS)) {
  test(`normalisation: ${name}`, async (t) => {
    const { graph, regions } = await regionsOf(form);
    t.deepEqual(
      regions.map((region) => region.kind),
      [form.kind],
    );
    const [region] = regions;
    if (!region) return;
    t.is(region.nodes.length, form.inside);
    t.deepEqual(region.inputs, form.reads);
    t.deepEqual(region.outputs, [form.result ?? 'y']);
    const { axis, epsilon } = region.attributes as { axis: number; epsilon: number };
    t.is(axis, 2);
    t.true(Math.abs(epsilon - 0.001) < 1e-9);
    const { inputs, output } = await runRegion(graph, region);
    const [data, weight, bias] = inputs.map(numbersOf);
    const size = inputs[0]?.shape.slice(axis).reduce((product, dim) => product * dim, 1) ?? 0;
    const expected = normalised(data ?? [], size, { epsilon, centred: form.kind === layer }, weight, bias);
    const actual = numbersOf(output);
    const worst = Math.max(...expected.map((number, place) => Math.abs(number - (actual[place] ?? Number.NaN))));
    t.true(worst < (form.precision ?? 2e-6), `off by ${worst}`);
  });
}

const plain = `
  m = ReduceMean(x, [-1])
  c = Sub(x, m)
  q = Pow(c, 2.0)
  v = ReduceMean(q, [-1])
  e = Add(v, 0.001)
  r = Sqrt(e)
  y = Div(c, r)`;
const square = { x: [5, 5, 5] };

const NEAR_MISSES: Readonly<Record<string, Written>> = {
  'over a dimension in the middle': { inputs: square, lines: plain.replaceAll('[-1]', '[1]') },
  'another power': { inputs: x, lines: plain.replace('2.0', '4.0') },
  'the root plus ε': {
    inputs: x,
    lines: plain
      .replace('e = Add(v, 0.001)', '')
      .replace('Sqrt(e)', 'Sqrt(v)')
      .replace('Div(c, r)', 'Div(c, f)')
      .replace('  y', '  f = Add(r, 0.001)\n  y'),
  },
  'without ε': { inputs: x, lines: plain.replace('e = Add(v, 0.001)', '').replace('Sqrt(e)', 'Sqrt(v)') },
  'the unbiased variance': {
    inputs: x,
    lines: plain.replace('Add(v', 'Add(u').replace('  e', '  u = Mul(v, 1.0667)\n  e'),
  },
  'the variance is an output': { inputs: x, lines: plain, outputs: ['y', 'v'] },
  'a sum of squares that another number divides': {
    inputs: x,
    lines: plain.replace('v = ReduceMean(q, [-1])', 'u = ReduceSum(q, [-1])\n  v = Div(u, 15.0)'),
  },
  'a sum of squares that nothing divides': {
    inputs: x,
    lines: plain.replace('v = ReduceMean(q, [-1])', 'v = ReduceSum(q, [-1])'),
  },
  'moments of two tensors': {
    inputs: { ...x, z: [2, 5, 16] },
    lines: plain
      .replace('Pow(c, 2.0)', 'Pow(x, 2.0)')
      .replace('  e = Add(v', '  g = ReduceMean(z, [-1])\n  f = Mul(g, g)\n  d = Sub(v, f)\n  e = Add(d'),
  },
  'moments, and the dividend is not less its mean': {
    inputs: x,
    lines: plain
      .replace('Pow(c, 2.0)', 'Pow(x, 2.0)')
      .replace('  e = Add(v', '  f = Mul(m, m)\n  d = Sub(v, f)\n  e = Add(d')
      .replace('Div(c, r)', 'Div(x, r)'),
  },
  'the root divided by the difference': { inputs: x, lines: plain.replace('Div(c, r)', 'Div(r, c)') },
  'another tensor divided': { inputs: { ...x, z: [2, 5, 16] }, lines: plain.replace('Div(c, r)', 'Div(z, r)') },
  'the difference is read elsewhere and is not what is divided': {
    inputs: x,
    lines: plain.replace('y = Div(c, r)', 'y = Div(x, r)'),
  },
};

for (const [name, written] of Object.entries(NEAR_MISSES)) {
  test(`no normalisation: ${name}`, async (t) => {
    t.deepEqual((await regionsOf(written)).regions, []);
  });
}

test('a mean over other dimensions leaves RMS normalisation of the difference', async (t) => {
  const { regions } = await regionsOf({
    inputs: square,
    lines: plain.replace('m = ReduceMean(x, [-1])', 'm = ReduceMean(x, [1])'),
  });
  t.deepEqual(
    regions.map(({ kind, inputs }) => ({ kind, inputs })),
    [{ kind: rms, inputs: ['c'] }],
  );
});
