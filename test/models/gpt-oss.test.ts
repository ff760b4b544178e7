/**
 * @file Models with windows, attention sinks, and experts with biases and a clamp (GPT-OSS), against their equations written out.
 */
import test from 'ava';
import { generatedModel } from '../../models/families.js';
import { languageModel } from '../../models/language-model.js';
import { modelWork } from '../../src/api/planning/step-works.js';
import { runGraph } from '../../src/api/verification/reference.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { elementCount } from '../../src/ir/graph.js';
import { constant, numbersOf } from '../../src/ir/ops/constants.js';

type Rows = readonly (readonly number[])[];

const SHAPE = {
  hidden: 12,
  heads: 4,
  keyHeads: 2,
  width: 8,
  ffn: 10,
  experts: 3,
  vocabulary: 11,
  sequence: 8,
  window: 3,
};
const TEXT =
  'moe:layers=2,hidden=12,heads=4,kv_heads=2,head_width=8,ffn=10,experts=3,topk=3,vocab=11,seq=8,window=3,sinks=1,bias=1,clamp=1';

test('a model with windows, sinks, biases and a clamp computes what its equations say', async (t) => {
  const { language } = generatedModel(TEXT);
  if (!language) return t.fail();
  const graph = languageModel('model', { ...language, batch: 1 }, 5);
  const tokens = [3, 1, 4, 1, 5, 9, 2, 6];
  const { logits } = await runGraph(graph, { ids: constant('int64', tokens, [1, tokens.length]) }, ['logits']);
  const weight = (name: string) => {
    const found = graph.weights.get(name);
    if (found?.source.kind !== 'inline') throw new Error(`no weight ${name}`);
    return numbersOf({ ...found, data: found.source.data });
  };
  const expected = reference(tokens, weight).flat();
  const computed = logits ? numbersOf(logits) : [];
  t.is(computed.length, expected.length);
  for (const [at, value] of expected.entries())
    t.true(Math.abs(value - (computed[at] ?? NaN)) < 1e-4, `${at}: ${computed[at]}, not ${value}`);
  return undefined;
});

test('GPT-OSS has the parameters that are published of it', (t) => {
  const sizes =
    'hidden=2880,heads=64,kv_heads=8,head_width=64,ffn=2880,topk=4,vocab=201088,window=128,sinks=1,bias=1,clamp=7';
  for (const [text, billions] of [
    [`moe:layers=24,experts=32,${sizes}`, 20.91],
    [`moe:layers=36,experts=128,${sizes}`, 116.83],
  ] as const) {
    const weights = [...generatedModel(text).build(1).weights.values()].filter(({ role }) => role === 'parameter');
    const count = weights.reduce((sum, { shape }) => sum + elementCount(shape), 0);
    t.is((count / 1e9).toFixed(2), `${billions}`, text);
  }
});

test('every second layer attends to a window, and is a class of its own', async (t) => {
  const { language } = generatedModel(TEXT.replace('layers=2', 'layers=5'));
  if (!language) return t.fail();
  const work = await modelWork({ ...language, batch: 2 }, 1, parseCluster('1x1:h100-sxm-80', undefined));
  // Behind the last layer nothing reads the angles any more, so that less is live in it.
  t.deepEqual(work.order, [0, 1, 0, 1, 2]);
  const attention = work.layers.map(({ part }) => part.forward.find(({ kind }) => kind === 'attention'));
  const shared = { batch: 2, heads: 4, keyHeads: 2, queries: 8, keys: 8, width: 8, valueWidth: 8, causal: true };
  t.deepEqual(attention[0], { kind: 'attention', backward: false, ...shared, window: 3 });
  t.deepEqual(attention[1], { kind: 'attention', backward: false, ...shared });
  return undefined;
});

/** Logits of one sequence: 2 layers, the first with a window; every expert takes every token. */
function reference(tokens: readonly number[], weight: (name: string) => readonly number[]): Rows {
  const { hidden, vocabulary } = SHAPE;
  const table = weight('embed.weight');
  let state: Rows = tokens.map((token) => table.slice(token * hidden, (token + 1) * hidden));
  for (const layer of [0, 1]) {
    const of = (name: string) => weight(`layers.${layer}.${name}`);
    const attended = attention(normed(state, of('attention_norm.weight')), of, layer === 0 ? SHAPE.window : Infinity);
    state = added(state, attended);
    state = added(state, experts(normed(state, of('feed_forward_norm.weight')), of));
  }
  return product(normed(state, weight('norm.weight')), weight('head.weight'), vocabulary);
}

function attention(rows: Rows, of: (name: string) => readonly number[], window: number): Rows {
  const { heads, keyHeads, width, hidden } = SHAPE;
  const projected = (name: string, columns: number) =>
    product(rows, of(`attention.${name}.weight`), columns, of(`attention.${name}.bias`));
  const both = projected('key_value', 2 * keyHeads * width);
  const query = projected('query', heads * width).map((row, at) => rotated(row, at));
  const key = both.map((row, at) => rotated(row.slice(0, keyHeads * width), at));
  const value = both.map((row) => row.slice(keyHeads * width));
  const sinks = of('attention.sinks');
  const part = (row: readonly number[] | undefined, head: number) =>
    (row ?? []).slice(head * width, (head + 1) * width);
  const attended = query.map((row, at) =>
    sinks.flatMap((sink, head) => {
      const shared = Math.floor(head / (heads / keyHeads));
      const seen = rows.flatMap((_, other) => (other <= at && other > at - window ? [other] : []));
      const shares = seen.map((other) => Math.exp(dot(part(row, head), part(key[other], shared)) / Math.sqrt(width)));
      const total = Math.exp(sink) + shares.reduce((sum, share) => sum + share, 0);
      return Array.from({ length: width }, (_, feature) =>
        seen.reduce(
          (sum, other, index) => sum + ((shares[index] ?? NaN) / total) * (part(value[other], shared)[feature] ?? NaN),
          0,
        ),
      );
    }),
  );
  return product(attended, of('attention.output.weight'), hidden, of('attention.output.bias'));
}

function experts(rows: Rows, of: (name: string) => readonly number[]): Rows {
  const { experts: count, ffn, hidden } = SHAPE;
  const slice = (name: string, expert: number, size: number) =>
    of(`experts.${name}`).slice(expert * size, (expert + 1) * size);
  const scores = product(rows, of('experts.router.weight'), count, of('experts.router.bias')).map((row) => {
    const powers = row.map(Math.exp);
    return powers.map((power) => power / powers.reduce((sum, other) => sum + other, 0));
  });
  return rows.map((row, at) => {
    const results = (scores[at] ?? []).map((score, expert) => {
      const [wide = []] = product([row], slice('up.weight', expert, hidden * 2 * ffn), 2 * ffn);
      const [gates, values] = [slice('gate_bias', expert, ffn), slice('value_bias', expert, ffn)];
      const inner = gates.map((bias, feature) => {
        const gate = Math.min(1, (wide[feature] ?? NaN) + bias);
        const value = Math.max(-1, Math.min(1, (wide[ffn + feature] ?? NaN) + (values[feature] ?? NaN)));
        return (gate / (1 + Math.exp(-1.702 * gate))) * (value + 1);
      });
      const [down = []] = product(
        [inner],
        slice('down.weight', expert, ffn * hidden),
        hidden,
        slice('down_bias', expert, hidden),
      );
      return down.map((value) => score * value);
    });
    return row.map((_, feature) => results.reduce((sum, result) => sum + (result[feature] ?? NaN), 0));
  });
}

/** Halves of every head turned by the angles of a position. */
function rotated(row: readonly number[], position: number): readonly number[] {
  const { width } = SHAPE;
  const half = width / 2;
  return row.map((value, at) => {
    const place = at % width;
    const angle = position / 10000 ** ((place % half) / half);
    const other = place < half ? -(row[at + half] ?? NaN) : (row[at - half] ?? NaN);
    return value * Math.cos(angle) + other * Math.sin(angle);
  });
}

function normed(rows: Rows, scale: readonly number[]): Rows {
  return rows.map((row) => {
    const square = row.reduce((sum, value) => sum + value * value, 0) / row.length;
    return row.map((value, at) => (value / Math.sqrt(square + 1e-5)) * (scale[at] ?? NaN));
  });
}

function product(rows: Rows, matrix: readonly number[], columns: number, bias: readonly number[] = []): Rows {
  return rows.map((row) =>
    Array.from({ length: columns }, (_, column) =>
      row.reduce((sum, value, at) => sum + value * (matrix[at * columns + column] ?? NaN), bias[column] ?? 0),
    ),
  );
}

function added(rows: Rows, others: Rows): Rows {
  return rows.map((row, index) => row.map((value, at) => value + (others[index]?.[at] ?? NaN)));
}

function dot(a: readonly number[], b: readonly number[]): number {
  return a.reduce((sum, value, at) => sum + value * (b[at] ?? NaN), 0);
}
