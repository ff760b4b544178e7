import test from 'ava';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { gelu } from './formulas.js';
import { regionsOf, runRegion, type Shapes, type Written } from './written.js';

const x: Shapes = { x: [2, 5, 16] };
const half: Shapes = { x: ['float16', 2, 5, 16] };

const GELUS: Readonly<Record<string, Written & { readonly approximate: string; readonly precision?: number }>> = {
  'erf, as the first exporter writes it': {
    approximate: 'none',
    inputs: x,
    lines: 'd = Div(x, 1.4142135)\n e = Erf(d)\n a = Add(e, 1.0)\n m = Mul(x, a)\n y = Mul(m, 0.5)',
  },
  'erf, as the second writes it': {
    approximate: 'none',
    inputs: x,
    lines: 'd = Div(x, 1.4142135)\n e = Erf(d)\n a = Add(e, 1.0)\n h = Mul(0.5, a)\n y = Mul(x, h)',
  },
  'erf, half of x first': {
    approximate: 'none',
    inputs: x,
    lines: 'h = Mul(x, 0.5)\n d = Mul(0.70710678, x)\n e = Erf(d)\n a = Add(1.0, e)\n y = Mul(h, a)',
  },
  'erf, multiplied out': {
    approximate: 'none',
    inputs: x,
    lines: 'd = Mul(x, 0.7071)\n e = Erf(d)\n m = Mul(x, e)\n n = Mul(m, 0.5)\n h = Mul(x, 0.5)\n y = Add(n, h)',
    precision: 1e-5,
  },
  'erf, the distribution function first': {
    approximate: 'none',
    inputs: x,
    lines: 'd = Mul(x, 0.70710678)\n e = Erf(d)\n h = Mul(e, 0.5)\n a = Add(h, 0.5)\n y = Mul(a, x)',
  },
  'erf, divided by 2': {
    approximate: 'none',
    inputs: x,
    lines: 'd = Div(x, 1.4142135)\n e = Erf(d)\n a = Add(e, 1.0)\n m = Mul(a, x)\n y = Div(m, 2.0)',
  },
  'erf in half precision': {
    approximate: 'none',
    inputs: half,
    lines: 'd = Div(x, 1.4142135h)\n e = Erf(d)\n a = Add(e, 1.0h)\n m = Mul(x, a)\n y = Mul(m, 0.5h)',
    precision: 2e-3,
  },
  'erf between casts': {
    approximate: 'none',
    inputs: half,
    lines:
      'u = Cast(x) {"to": 1}\n d = Div(u, 1.4142135)\n e = Erf(d)\n a = Add(e, 1.0)\n m = Mul(u, a)\n n = Mul(m, ' +
      '0.5)\n y = Cast(n) {"to": 10}',
    precision: 1e-3,
  },
  'tanh, with Pow': {
    approximate: 'tanh',
    inputs: x,
    lines: `
      h = Mul(0.5, x)
      p = Pow(x, 3.0)
      k = Mul(p, 0.044715)
      i = Add(x, k)
      u = Mul(i, 0.7978845608)
      e = Tanh(u)
      a = Add(e, 1.0)
      y = Mul(h, a)`,
  },
  'tanh, with Mul · Mul': {
    approximate: 'tanh',
    inputs: x,
    lines: `
      q = Mul(x, x)
      p = Mul(x, q)
      k = Mul(0.044715, p)
      i = Add(x, k)
      u = Mul(0.7978845608, i)
      e = Tanh(u)
      a = Add(1.0, e)
      m = Mul(x, a)
      y = Mul(0.5, m)`,
  },
  'tanh, factored as the fast one is': {
    approximate: 'tanh',
    inputs: x,
    lines: `
      h = Mul(x, 0.5)
      w = Mul(x, 0.79788456)
      k = Mul(x, 0.044715)
      q = Mul(k, x)
      i = Add(q, 1.0)
      u = Mul(w, i)
      e = Tanh(u)
      a = Add(e, 1.0)
      y = Mul(h, a)`,
  },
  'tanh in bfloat16': {
    approximate: 'tanh',
    inputs: { x: ['bfloat16', 2, 5, 16] },
    lines: `
      p = Pow(x, 3.0b)
      k = Mul(p, 0.044715b)
      i = Add(x, k)
      u = Mul(i, 0.7978845608b)
      e = Tanh(u)
      a = Add(e, 1.0b)
      h = Mul(x, 0.5b)
      y = Mul(h, a)`,
  },
  'the quick one': {
    approximate: 'quick',
    inputs: x,
    lines: 'd = Mul(x, 1.702)\n e = Sigmoid(d)\n y = Mul(x, e)',
  },
};

for (const [name, form] of Object.entries(GELUS)) {
  test(`Gelu: ${name}`, async (t) => {
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
          kind: 'Gelu',
          attributes: { approximate: form.approximate },
          inputs: ['x'],
          outputs: ['y'],
          nodes: graph.nodes.length,
        },
      ],
    );
    // ONNX Runtime has no Pow of bfloat16 on a CPU.
    if (!region || form.inputs['x']?.[0] === 'bfloat16') return;
    const { inputs, output } = await runRegion(graph, region);
    const actual = numbersOf(output);
    const expected = inputs.flatMap(numbersOf).map((number) => gelu(number, form.approximate));
    const worst = Math.max(...expected.map((number, place) => Math.abs(number - (actual[place] ?? Number.NaN))));
    t.true(worst < (form.precision ?? 2e-6), `off by ${worst}`);
  });
}

const erf = 'd = Div(x, 1.4142135)\n e = Erf(d)\n a = Add(e, 1.0)\n m = Mul(x, a)\n y = Mul(m, 0.5)';
const tanh =
  'p = Pow(x, 3.0)\n k = Mul(p, 0.044715)\n i = Add(x, k)\n u = Mul(i, 0.79788456)\n e = Tanh(u)\n a = Add(e, ' +
  '1.0)\n h = Mul(x, 0.5)\n y = Mul(h, a)';

const NO_GELUS: Readonly<Record<string, Written>> = {
  'another divisor': { inputs: x, lines: erf.replace('1.4142135', '1.5') },
  'not halved': { inputs: x, lines: erf.replace('0.5', '1.0') },
  'one is missing': { inputs: x, lines: erf.replace('1.0', '0.9') },
  'another tensor multiplied': {
    inputs: { x: [2, 5, 16], z: [2, 5, 16] },
    lines: erf.replace('Mul(x, a)', 'Mul(z, a)'),
  },
  'what is inside is read elsewhere': { inputs: x, lines: `${erf}\n z = Relu(a)`, outputs: ['y', 'z'] },
  'what is inside is an output': { inputs: x, lines: erf, outputs: ['y', 'e'] },
  'tanh with another cubic term': { inputs: x, lines: tanh.replace('0.044715', '0.05') },
  'tanh with another slope': { inputs: x, lines: tanh.replace('0.79788456', '0.8') },
  'a square for the cube': { inputs: x, lines: tanh.replace('3.0', '2.0') },
  'a sigmoid of x: that is SiLU': { inputs: x, lines: 'e = Sigmoid(x)\n y = Mul(x, e)' },
  'a factor that is a parameter': {
    inputs: { x: [2, 5, 16], f: [1] },
    lines: 'd = Mul(x, f)\n e = Sigmoid(d)\n y = Mul(x, e)',
  },
};

for (const [name, written] of Object.entries(NO_GELUS)) {
  test(`no Gelu: ${name}`, async (t) => {
    t.deepEqual((await regionsOf(written)).regions, []);
  });
}

const gated: Shapes = { g: [2, 5, 16], u: [2, 5, 16] };
const silu = 's = Sigmoid(g)\n m = Mul(g, s)\n y = Mul(m, u)';

const SWIGLUS: Readonly<Record<string, Written & { readonly precision?: number }>> = {
  'Sigmoid and Mul': { inputs: gated, lines: silu },
  'factors turned around': { inputs: gated, lines: 's = Sigmoid(g)\n m = Mul(s, g)\n y = Mul(u, m)' },
  Swish: { inputs: gated, lines: 'm = Swish(g)\n y = Mul(m, u)', opset: 24 },
  'between casts': {
    inputs: { g: ['float16', 2, 5, 16], u: ['float16', 2, 5, 16] },
    lines:
      `h = Cast(g) {"to": 1}\n v = Cast(u) {"to": 1}\n s = Sigmoid(h)\n m = Mul(h, s)\n n = Mul(m, v)\n y = ` +
      'Cast(n) {"to": 10}',
    precision: 1e-3,
  },
};

for (const [name, form] of Object.entries(SWIGLUS)) {
  test(`SwiGLU: ${name}`, async (t) => {
    const { graph, regions } = await regionsOf(form);
    const [region] = regions;
    t.deepEqual(
      regions.map(({ kind, inputs, outputs, nodes }) => ({ kind, inputs, outputs, nodes: nodes.length })),
      [{ kind: 'SwiGLU', inputs: ['g', 'u'], outputs: ['y'], nodes: graph.nodes.length }],
    );
    if (!region) return;
    const { inputs, output } = await runRegion(graph, region);
    const [gate = [], up = []] = inputs.map(numbersOf);
    const actual = numbersOf(output);
    const worst = Math.max(
      ...gate.map((number, place) =>
        Math.abs((number / (1 + Math.exp(-number))) * (up[place] ?? 0) - (actual[place] ?? Number.NaN)),
      ),
    );
    t.true(worst < (form.precision ?? 2e-6), `off by ${worst}`);
  });
}

const NO_SWIGLUS: Readonly<Record<string, Written>> = {
  'the other factor is a number': { inputs: gated, lines: silu.replace('Mul(m, u)', 'Mul(m, 2.0)') },
  'the other factor is broadcast': { inputs: { g: [2, 5, 16], u: [2, 5, 1] }, lines: silu },
  'the activated gate is read elsewhere': { inputs: gated, lines: `${silu}\n z = Relu(m)`, outputs: ['y', 'z'] },
  'a sigmoid of another tensor': { inputs: gated, lines: silu.replace('Sigmoid(g)', 'Sigmoid(u)') },
  'Swish with another slope': { inputs: gated, lines: 'm = Swish(g) {"alpha": 1.5}\n y = Mul(m, u)', opset: 24 },
};

for (const [name, written] of Object.entries(NO_SWIGLUS)) {
  test(`no SwiGLU: ${name}`, async (t) => {
    t.deepEqual((await regionsOf(written)).regions, []);
  });
}

test('a gated GELU is a Gelu and a Mul', async (t) => {
  const { regions } = await regionsOf({ inputs: { x: [2, 5, 16], u: [2, 5, 16] }, lines: `${erf}\n z = Mul(y, u)` });
  t.deepEqual(
    regions.map(({ kind, outputs }) => ({ kind, outputs })),
    [{ kind: 'Gelu', outputs: ['y'] }],
  );
});
