/**
 * @file Attention in plain operators gives what ONNX Runtime's operator gives, and becomes a fused region that can take its
 * keys in chunks.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { ConstantTensor } from '../../../src/ir/graph.js';
import { encodeModel } from '../../../src/ir/onnx/schema.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { ruleOf } from '../../../src/ir/ops/index.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { float, type Given, model, node, saved, tensor, value } from '../model-maker.js';
import { compare, noise } from '../same-results.js';

/** [batch, heads, positions, width], or with heads and width as one. */
interface Case {
  readonly says: string;
  readonly shapes: readonly [query: readonly number[], key: readonly number[], value: readonly number[]];
  readonly result: readonly number[];
  readonly attributes?: Readonly<Record<string, Given>>;
  readonly mask?: 'bool' | 'float32';
}

const FLAT = { q_num_heads: 4, kv_num_heads: 2 };

const CASES: readonly Case[] = [
  {
    says: 'causal, with grouped heads in one dimension',
    shapes: [
      [2, 6, 16],
      [2, 6, 8],
      [2, 6, 8],
    ],
    result: [2, 6, 16],
    attributes: { ...FLAT, is_causal: 1 },
  },
  {
    says: 'causal with a float mask, heads apart',
    shapes: [
      [2, 4, 6, 4],
      [2, 4, 6, 4],
      [2, 4, 6, 6],
    ],
    result: [2, 4, 6, 6],
    attributes: { is_causal: 1, scale: float(0.3) },
    mask: 'float32',
  },
  {
    says: 'across sequences of two lengths, with a mask of truth values and a soft cap',
    shapes: [
      [2, 4, 3, 4],
      [2, 2, 6, 4],
      [2, 2, 6, 4],
    ],
    result: [2, 4, 3, 4],
    attributes: { softcap: float(0.5) },
    mask: 'bool',
  },
];

for (const { says, shapes, result, attributes, mask } of CASES)
  test(`attention written out: ${says}`, async (t) => {
    const [rows = 1, columns = 1] = [shapes[0].at(-2), shapes[1].at(-2)];
    const graph = model(
      {
        node: [node('Attention', ['q', 'k', 'v', ...(mask ? ['mask'] : [])], ['y'], attributes)],
        input: [
          ...['q', 'k', 'v'].map((name, index) => value(name, shapes[index] ?? [])),
          ...(mask ? [value('mask', [rows, columns], mask)] : []),
        ],
        output: [value('y', result)],
      },
      23,
    );
    const feeds = {
      q: noise(shapes[0], 3),
      k: noise(shapes[1], 5),
      v: noise(shapes[2], 7),
      ...(mask === 'float32' ? { mask: noise([rows, columns], 9) } : {}),
      ...(mask === 'bool'
        ? {
            mask: constant(
              'bool',
              Array.from({ length: rows * columns }, (_, at) => (at % 3 === 1 ? 0 : 1)),
              [rows, columns],
            ),
          }
        : {}),
    };
    const { graph: written } = await importModel(await saved(graph), { sharesSequence: true });
    compare(t, await runOnnx(writeOnnx(flattenRegions(written)), feeds), await runOnnx(encodeModel(graph), feeds));
    const region = written.nodes.find(({ op }) => op === 'Attention');
    t.true(region !== undefined && ruleOf(operatorOf(written, region)).factors.get('t')?.streams);
  });

/** A case of GroupQueryAttention, over 6 positions and heads of 16 features. */
interface GroupedCase {
  readonly says: string;
  readonly attributes: Readonly<Record<string, Given>>;
  readonly operands?: readonly ('sink' | 'bias' | 'angles')[];
  readonly isPacked?: boolean;
  /** Last positions of the samples. */
  readonly last?: readonly number[];
}

const GROUPED: readonly GroupedCase[] = [
  { says: 'a window and sinks', attributes: { local_window_size: 3 }, operands: ['sink'] },
  {
    says: 'a sink of zero, a soft cap and a bias',
    attributes: { smooth_softmax: 1, softcap: float(0.7) },
    operands: ['bias'],
  },
  {
    says: 'halves rotated, side by side in one tensor',
    attributes: { do_rotary: 1 },
    operands: ['angles'],
    isPacked: true,
  },
  { says: 'neighbours rotated', attributes: { do_rotary: 1, rotary_interleaved: 1 }, operands: ['angles'] },
  { says: 'a shorter sample', attributes: { scale: float(0.4) }, last: [5, 3] },
];

for (const { says, attributes, operands = [], isPacked = false, last = [5, 5] } of GROUPED)
  test(`GroupQueryAttention written out: ${says}`, async (t) => {
    const [batch, positions, heads, keyHeads, width] = [2, 6, 4, 2, 16];
    const whole = noise([batch, positions, (heads + 2 * keyHeads) * width], 3);
    const separate = {
      q: noise([batch, positions, heads * width], 3),
      k: noise([batch, positions, keyHeads * width], 5),
      v: noise([batch, positions, keyHeads * width], 7),
    };
    const given: Readonly<Record<string, ConstantTensor>> = {
      ...(isPacked ? { q: whole } : separate),
      ...(operands.includes('bias') ? { bias: noise([1, heads, positions, positions], 9) } : {}),
      ...(operands.includes('sink') ? { sink: noise([heads], 11) } : {}),
      ...(operands.includes('angles') ? { cos: noise([9, width / 2], 13), sin: noise([9, width / 2], 15) } : {}),
    };
    const named = (name: string) => (Object.hasOwn(given, name) ? name : '');
    const operandNames = [...['q', 'k', 'v'].map(named), '', '', 'last', 'total', ...['cos', 'sin'].map(named), ''];
    operandNames.push(...['bias', 'sink'].map(named));
    const names = { num_heads: heads, kv_num_heads: keyHeads };
    const graph = model(
      {
        node: [
          node('GroupQueryAttention', operandNames, ['y'], { ...names, ...attributes }, { domain: 'com.microsoft' }),
        ],
        input: Object.entries(given).map(([name, { shape }]) => value(name, shape)),
        output: [value('y', [batch, positions, heads * width])],
        initializer: [tensor('last', [batch], last, 'int32'), tensor('total', [], [positions], 'int32')],
      },
      23,
      { opset_import: ['', 'com.microsoft'].map((domain) => ({ domain, version: domain === '' ? 23 : 1 })) },
    );
    const { graph: written } = await importModel(await saved(graph), { sharesSequence: true });
    t.false(written.nodes.some(({ op }) => op === 'GroupQueryAttention'));
    compare(
      t,
      await runOnnx(writeOnnx(flattenRegions(written)), given),
      await runOnnx(encodeModel(graph), given),
      1e-5,
      1e-5,
    );
    const region = written.nodes.find(({ op }) => op === 'Attention');
    t.true(region !== undefined && ruleOf(operatorOf(written, region)).factors.get('t')?.streams);
  });
