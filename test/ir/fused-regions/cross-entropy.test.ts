import test from 'ava';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { crossEntropy, matrices } from './formulas.js';
import { regionsOf, runRegion, type Shapes, type Written } from './written.js';

interface Form extends Written {
  readonly inside: number;
  readonly attributes: Readonly<Record<string, string | number>>;
  readonly reads: readonly string[];
  readonly labels?: readonly number[];
  readonly precision?: number;
}

const batch: Shapes = { x: [10, 11], y: ['int64', 10] };
const sequence: Shapes = { x: [2, 5, 11], y: ['int64', 2, 5] };
const LABELS = [3, 0, 10, 7, 7, 1, 9, 4, 2, 5];
const SOME_IGNORED = [3, -100, 10, 7, -100, 1, 9, 4, 2, 5];
const mean = { reduction: 'mean' };
const ignoring = { reduction: 'mean', ignore_index: -100 };

const FORMS: Readonly<Record<string, Form>> = {
  'LogSoftmax, GatherElements, mean': {
    inputs: sequence,
    lines: `
      l = LogSoftmax(x) {"axis": -1}
      i = Unsqueeze(y, [-1])
      g = GatherElements(l, i) {"axis": -1}
      q = Squeeze(g, [-1])
      m = ReduceMean(q, [0, 1])
      w = Squeeze(m, [0, 1])
      z = Neg(w)`,
    inside: 7,
    attributes: mean,
    reads: ['x', 'y'],
  },
  'negated before the mean, Log of Softmax': {
    inputs: sequence,
    lines: `
      p = Softmax(x) {"axis": 2}
      l = Log(p)
      i = Unsqueeze(y, [2])
      g = GatherElements(l, i) {"axis": 2}
      n = Mul(g, -1.0)
      z = ReduceMean(n) {"keepdims": 0}`,
    inside: 6,
    attributes: mean,
    reads: ['x', 'y'],
  },
  'sum, in half precision': {
    inputs: { x: ['float16', 10, 11], y: ['int64', 10] },
    lines: `
      u = Cast(x) {"to": 1}
      l = LogSoftmax(u) {"axis": 1}
      i = Unsqueeze(y, [1])
      g = GatherElements(l, i) {"axis": 1}
      n = Neg(g)
      z = ReduceSum(n) {"keepdims": 0}`,
    inside: 6,
    attributes: { reduction: 'sum' },
    reads: ['x', 'y'],
    precision: 1e-4,
  },
  'with labels that are ignored, as the second exporter once took it apart': {
    inputs: batch,
    lines: `
      e = Equal(y, -100i)
      keep = Not(e)
      s = Where(keep, y, 0i)
      l = LogSoftmax(x) {"axis": 1}
      i = Unsqueeze(s, [1])
      g = GatherElements(l, i) {"axis": 1}
      q = Squeeze(g, [1])
      n = Neg(q)
      w = Where(keep, n, 0.0)
      k = Cast(keep) {"to": 7}
      c = ReduceSum(k) {"keepdims": 0}
      d = Cast(c) {"to": 1}
      t = ReduceSum(w) {"keepdims": 0}
      z = Div(t, d)`,
    inside: 14,
    attributes: ignoring,
    reads: ['x', 'y'],
    labels: SOME_IGNORED,
  },
  'with a mask as a factor': {
    inputs: sequence,
    lines: `
      l = LogSoftmax(x) {"axis": 2}
      s = Clip(y, 0i)
      i = Unsqueeze(s, [2])
      g = GatherElements(l, i) {"axis": 2}
      q = Squeeze(g, [2])
      n = Neg(q)
      e = Equal(y, -100i)
      o = Not(e)
      k = Cast(o) {"to": 1}
      w = Mul(n, k)
      t = ReduceSum(w) {"keepdims": 0}
      c = ReduceSum(k) {"keepdims": 0}
      z = Div(t, c)`,
    inside: 13,
    attributes: ignoring,
    reads: ['x', 'y'],
    labels: SOME_IGNORED,
  },
  NegativeLogLikelihoodLoss: {
    inputs: batch,
    lines: `
      l = LogSoftmax(x) {"axis": 1}
      z = NegativeLogLikelihoodLoss(l, y) {"reduction": "mean", "ignore_index": -100}`,
    inside: 2,
    attributes: ignoring,
    reads: ['x', 'y'],
    labels: SOME_IGNORED,
  },
  'less the logarithm of the sum': {
    inputs: sequence,
    lines: `
      l = ReduceLogSumExp(x, [-1]) {"keepdims": 0}
      i = Unsqueeze(y, [-1])
      g = GatherElements(x, i) {"axis": 2}
      q = Squeeze(g, [-1])
      d = Sub(l, q)
      z = ReduceMean(d, [0, 1]) {"keepdims": 0}`,
    inside: 6,
    attributes: mean,
    reads: ['x', 'y'],
  },
  'by rows and labels': {
    inputs: batch,
    lines: `
      l = LogSoftmax(x) {"axis": 1}
      i = Unsqueeze(y, [1])
      r = Reshape([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 1])
      p = Concat(r, i) {"axis": 1}
      g = GatherND(l, p)
      m = ReduceMean(g) {"keepdims": 0}
      z = Neg(m)`,
    inside: 6,
    attributes: mean,
    reads: ['x', 'y', 'constant.1'],
  },
  'by position in the flattened rows': {
    inputs: batch,
    lines: `
      l = LogSoftmax(x) {"axis": 1}
      f = Reshape(l, [110, 1])
      i = Add(y, [0, 11, 22, 33, 44, 55, 66, 77, 88, 99])
      g = Gather(f, i) {"axis": 0}
      h = Reshape(g, [10])
      m = ReduceMean(h) {"keepdims": 0}
      z = Neg(m)`,
    inside: 7,
    attributes: mean,
    reads: ['x', 'y', 'constant.1'],
  },
  'with one-hot labels by comparison': {
    inputs: sequence,
    lines: `
      i = Unsqueeze(y, [2])
      e = Equal(i, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
      o = Cast(e) {"to": 7}
      h = Cast(o) {"to": 1}
      l = LogSoftmax(x) {"axis": 2}
      p = Mul(h, l)
      s = ReduceSum(p, [2]) {"keepdims": 0}
      n = Neg(s)
      z = ReduceMean(n) {"keepdims": 0}`,
    inside: 9,
    attributes: mean,
    reads: ['x', 'y', 'constant.1'],
  },
};

for (const [name, form] of Object.entries(FORMS)) {
  test(`cross entropy: ${name}`, async (t) => {
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
          kind: 'CrossEntropy',
          attributes: form.attributes,
          inputs: form.reads,
          outputs: ['z'],
          nodes: form.inside,
        },
      ],
    );
    if (!region) return;
    const labels = form.labels ?? LABELS;
    const { inputs, output } = await runRegion(graph, region, labels);
    const [logits] = inputs;
    if (!logits) return t.fail();
    const rows = { ...logits, shape: [10, 11] };
    const { reduction, ignore_index: ignore } = region.attributes as { reduction: string; ignore_index?: number };
    const expected = crossEntropy(matrices(rows), labels, { reduction, ignore });
    const [actual = Number.NaN] = numbersOf(output);
    t.true(
      Math.abs(actual - expected) < (form.precision ?? 3e-6) * Math.max(1, expected),
      `${actual}, not ${expected}`,
    );
  });
}

test('without a reduction the region ends at the losses of all samples', async (t) => {
  const { regions } = await regionsOf({
    inputs: batch,
    lines: `
      l = LogSoftmax(x) {"axis": 1}
      i = Unsqueeze(y, [1])
      g = GatherElements(l, i) {"axis": 1}
      n = Neg(g)
      z = Relu(n)`,
  });
  t.deepEqual(
    regions.map(({ attributes, outputs }) => ({ attributes, outputs })),
    [{ attributes: { reduction: 'none' }, outputs: ['n'] }],
  );
});

test('a count that is an output stays outside, and one of what is not masked has no name', async (t) => {
  const { regions } = await regionsOf({
    inputs: batch,
    lines: `
      l = LogSoftmax(x) {"axis": 1}
      i = Unsqueeze(y, [1])
      g = GatherElements(l, i) {"axis": 1}
      n = Neg(g)
      t = ReduceSum(n) {"keepdims": 0}
      e = Equal(y, -100i)
      o = Not(e)
      k = Cast(o) {"to": 1}
      c = ReduceSum(k) {"keepdims": 0}
      z = Div(t, c)`,
    outputs: ['z', 'c'],
  });
  t.deepEqual(
    regions.map(({ attributes, inputs, outputs }) => ({ attributes, inputs, outputs })),
    [{ attributes: {}, inputs: ['x', 'y', 'c'], outputs: ['z'] }],
  );
});

test('a mask of another origin is an input, and the loss has no name in ONNX', async (t) => {
  const { regions } = await regionsOf({
    inputs: { ...batch, m: [10] },
    lines: `
      l = LogSoftmax(x) {"axis": 1}
      i = Unsqueeze(y, [1])
      g = GatherElements(l, i) {"axis": 1}
      q = Squeeze(g, [1])
      n = Neg(q)
      w = Mul(n, m)
      z = ReduceSum(w) {"keepdims": 0}`,
  });
  t.deepEqual(
    regions.map(({ attributes, inputs }) => ({ attributes, inputs })),
    [{ attributes: {}, inputs: ['x', 'y', 'm'] }],
  );
});

const plain = `
  l = LogSoftmax(x) {"axis": 1}
  i = Unsqueeze(y, [1])
  g = GatherElements(l, i) {"axis": 1}
  n = Neg(g)
  z = ReduceMean(n) {"keepdims": 0}`;

const NEAR_MISSES: Readonly<Record<string, Written>> = {
  'never negated': { inputs: batch, lines: plain.replace('Neg(g)', 'Relu(g)') },
  'log-probabilities are read elsewhere': { inputs: batch, lines: plain, outputs: ['z', 'l'] },
  'softmax over the samples': {
    inputs: { x: [10, 10], y: ['int64', 10] },
    lines: plain.replace('(x) {"axis": 1}', '(x) {"axis": 0}'),
  },
  'several labels for each sample': {
    inputs: { x: [10, 11], j: ['int64', 10, 3] },
    lines: plain.replace('i = Unsqueeze(y, [1])', '').replace('(l, i)', '(l, j)'),
  },
  'probabilities without logarithm': { inputs: batch, lines: plain.replace('LogSoftmax', 'Softmax') },
  'a target of another origin': {
    inputs: { x: [10, 11], p: [10, 11] },
    lines: 'l = LogSoftmax(x) {"axis": 1}\n m = Mul(l, p)\n s = ReduceSum(m, [1]) {"keepdims": 0}\n z = Neg(s)',
  },
};

for (const [name, written] of Object.entries(NEAR_MISSES)) {
  test(`no cross entropy: ${name}`, async (t) => {
    t.deepEqual((await regionsOf(written)).regions, []);
  });
}

test('the one operator is no region', async (t) => {
  const { regions } = await regionsOf({ inputs: batch, lines: 'z = SoftmaxCrossEntropyLoss(x, y)' });
  t.deepEqual(regions, []);
});
