import test from 'ava';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { broadcastTo, rotated } from './formulas.js';
import { regionsOf, runRegion, type Written } from './written.js';

interface Form extends Written {
  readonly interleaved: 0 | 1;
  readonly inside: number;
  readonly reads?: readonly string[];
  readonly result?: string;
  readonly precision?: number;
}

const whole = { x: [2, 4, 5, 8], c: [1, 1, 5, 8], s: [1, 1, 5, 8] };
const halves = { x: [2, 4, 5, 8], c: [5, 4], s: [5, 4] };
const sliced = `
  a = Slice(x, [0], [4], [3])
  b = Slice(x, [4], [100], [3])`;
const strided = `
  a = Slice(x, [0], [8], [-1], [2])
  b = Slice(x, [1], [8], [-1], [2])`;
const turnedHalves = `
  n = Neg(b)
  r = Concat(n, a) {"axis": -1}`;
const sum = `
  p = Mul(x, c)
  q = Mul(r, s)
  y = Add(p, q)`;
const pairs = `
  ac = Mul(a, c)
  bs = Mul(b, s)
  f = Sub(ac, bs)
  bc = Mul(b, c)
  as = Mul(a, s)
  g = Add(bc, as)`;
const stacked = `
  fu = Unsqueeze(f, [4])
  gu = Unsqueeze(g, [4])
  st = Concat(fu, gu) {"axis": 4}
  y = Reshape(st, [2, 4, 5, 8])`;

const FORMS: Readonly<Record<string, Form>> = {
  'whole head, halves by Slice': { interleaved: 0, inside: 7, inputs: whole, lines: sliced + turnedHalves + sum },
  'whole head, halves by Split, factors and terms turned around': {
    interleaved: 0,
    inside: 6,
    inputs: whole,
    lines: `a, b = Split(x, [4, 4]) {"axis": 3}${turnedHalves}
      q = Mul(s, r)
      p = Mul(c, x)
      y = Add(q, p)`,
  },
  'whole head, halves by a Reshape to [… , 2, d/2]': {
    interleaved: 0,
    inside: 8,
    inputs: whole,
    lines: `
      v = Reshape(x, [2, 4, 5, 2, 4])
      a = Gather(v, 0i) {"axis": 3}
      b = Gather(v, 1i) {"axis": -2}${turnedHalves}${sum}`,
  },
  'whole head, interleaved': {
    interleaved: 1,
    inside: 10,
    inputs: whole,
    lines: `${strided}
      n = Neg(b)
      nu = Unsqueeze(n, [4])
      au = Unsqueeze(a, [-1])
      st = Concat(nu, au) {"axis": -1}
      r = Reshape(st, [2, 4, 5, 8])${sum}`,
  },
  'whole head, interleaved by a Reshape to [… , d/2, 2] and Split': {
    interleaved: 1,
    inside: 12,
    inputs: whole,
    lines: `
      v = Reshape(x, [2, 4, 5, 4, 2])
      a1, b1 = Split(v, [1, 1]) {"axis": 4}
      a = Squeeze(a1, [4])
      b = Squeeze(b1, [4])
      n = Mul(b, -1.0)
      nu = Unsqueeze(n, [4])
      au = Unsqueeze(a, [4])
      st = Concat(nu, au) {"axis": 4}
      r = Reshape(st, [2, 4, 5, 8])${sum}`,
  },
  'pair by pair, halves': {
    interleaved: 0,
    inside: 9,
    inputs: halves,
    lines: `${sliced}${pairs}\n  y = Concat(f, g) {"axis": 3}`,
  },
  'pair by pair, interleaved': { interleaved: 1, inside: 12, inputs: halves, lines: strided + pairs + stacked },
  'pair by pair, as complex numbers become': {
    interleaved: 1,
    inside: 13,
    inputs: halves,
    lines: `
      v = Reshape(x, [2, 4, 5, 4, 2])
      a = Gather(v, 0i) {"axis": 4}
      b = Gather(v, 1i) {"axis": 4}${pairs}${stacked}`,
  },
  'part of the head': {
    interleaved: 0,
    inside: 7,
    inputs: { z: [2, 4, 5, 12], c: [1, 1, 5, 8], s: [1, 1, 5, 8] },
    lines: `
      x = Slice(z, [0], [8], [3])
      rest = Slice(z, [8], [12], [3])${sliced}${turnedHalves}${sum}
      out = Concat(y, rest) {"axis": 3}`,
  },
  'in half precision between casts': {
    interleaved: 0,
    inside: 9,
    inputs: { h: ['float16', 2, 4, 5, 8], c: [1, 1, 5, 8], s: [1, 1, 5, 8] },
    lines: `x = Cast(h) {"to": 1}${sliced}${turnedHalves}${sum}\n  z = Cast(y) {"to": 10}`,
    reads: ['h', 'c', 's'],
    result: 'z',
    precision: 2e-3,
  },
};

for (const [name, form] of Object.entries(FORMS)) {
  test(`rotary embedding: ${name}`, async (t) => {
    const { graph, regions } = await regionsOf(form);
    const [region] = regions;
    t.deepEqual(
      regions.map(({ kind, attributes, inputs, outputs, nodes }) => ({
        kind,
        attributes,
        inputs,
        outputs,
        nodes: nodes.length,
      })),
      [
        {
          kind: 'RotaryEmbedding',
          attributes: { interleaved: form.interleaved },
          inputs: form.reads ?? ['x', 'c', 's'],
          outputs: [form.result ?? 'y'],
          nodes: form.inside,
        },
      ],
    );
    if (!region) return;
    const { inputs, output } = await runRegion(graph, region);
    const [data, cos, sin] = inputs;
    if (!data || !cos || !sin) return t.fail();
    // One angle for each pair serves both of its members.
    const spread = (angles: typeof cos): readonly number[] => {
      if (angles.shape.at(-1) === 8) return broadcastTo(angles, data.shape);
      const each = broadcastTo(angles, [2, 4, 5, 4]);
      return Array.from({ length: 320 }, (_, flat) => {
        const place = form.interleaved ? Math.floor((flat % 8) / 2) : flat % 4;
        return each[Math.floor(flat / 8) * 4 + place] ?? Number.NaN;
      });
    };
    const expected = rotated(numbersOf(data), spread(cos), spread(sin), 8, form.interleaved === 1);
    const actual = numbersOf(output);
    const worst = Math.max(...expected.map((number, place) => Math.abs(number - (actual[place] ?? Number.NaN))));
    t.true(worst < (form.precision ?? 2e-6), `off by ${worst}`);
  });
}

const plain = sliced + turnedHalves + sum;

const NEAR_MISSES: Readonly<Record<string, Written>> = {
  'the other half is negated': { inputs: whole, lines: plain.replace('Neg(b)', 'Neg(a)').replace('(n, a)', '(n, b)') },
  'halves are not swapped': { inputs: whole, lines: plain.replace('(n, a)', '(a, n)') },
  'parts are unequal': {
    inputs: whole,
    lines: plain.replaceAll('[4]', '[3]'),
  },
  'another dimension is halved': {
    inputs: { x: [2, 4, 8, 8], c: [8, 8], s: [8, 8] },
    lines: plain.replaceAll('[3])', '[2])').replace('"axis": -1', '"axis": 2'),
  },
  'cos of another tensor': { inputs: { ...whole, z: [2, 4, 5, 8] }, lines: plain.replace('Mul(x, c)', 'Mul(z, c)') },
  'the turned half is read elsewhere': { inputs: whole, lines: `${plain}\n  z = Relu(r)`, outputs: ['y', 'z'] },
  'one angle for all': {
    inputs: { x: [2, 4, 5, 8] },
    lines: plain.replace('(x, c)', '(x, 0.6)').replace('(r, s)', '(r, 0.8)'),
  },
  'interleaved parts joined as halves': { inputs: whole, lines: strided + turnedHalves + sum },
  'a difference twice': {
    inputs: halves,
    lines: `${sliced}${pairs.replace('Add(bc', 'Sub(bc')}\n  y = Concat(f, g) {"axis": 3}`,
  },
};

for (const [name, written] of Object.entries(NEAR_MISSES)) {
  test(`no rotary embedding: ${name}`, async (t) => {
    t.deepEqual((await regionsOf(written)).regions, []);
  });
}
