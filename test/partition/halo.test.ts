/**
 * @file Operators whose windows reach over the borders of shards: lowered on two to six ranks, with windows, strides, dilations,
 * pads and sizes of all kinds, run rank by rank and compared with the operator run whole; the lowered operators are typed too.
 */
import test from 'ava';
import { lowerOperator } from '../../src/partition/lower-operator.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { checkStrategy } from '../../src/sharding-propagation/strategy.js';
import { operatorOfCase } from '../ir/ops/cases.js';
import { makeRun } from '../ir/ops/one-node.js';
import type { Case } from '../ir/ops/sample.js';
import { needEntry } from '../ir/ops/simulate.js';
import { randomValues } from '../ir/ops/values.js';
import { prove } from '../validator/prove.js';
import { strategiesOf } from '../validator/strategies.js';
import { findingsOf } from './fragment-types.js';

const run = makeRun();

const HERE = [
  makeMesh([['sp', 3]]),
  makeMesh([
    ['dp', 2],
    ['sp', 2],
  ]),
];

const floats = (...shape: number[]) => ({ dtype: 'float32' as const, shape, low: -1, high: 1 });
const sample = (op: string, inputs: Case['inputs'], attributes: Case['attributes'], domain = ''): Case => ({
  op,
  domain,
  inputs,
  attributes,
  outputs: 1,
});

const SAMPLES: readonly Case[] = [
  sample('Conv', [floats(2, 3, 12, 6), floats(4, 3, 3, 3), floats(4)], { pads: [1, 1, 1, 1] }),
  sample('Conv', [floats(1, 2, 13), floats(4, 1, 3), floats(4)], { pads: [1, 1], group: 2, strides: [2] }),
  sample('Conv', [floats(1, 2, 17), floats(2, 2, 3)], { dilations: [2], pads: [0, 3] }),
  sample('Conv', [floats(1, 2, 16), floats(2, 2, 4)], { strides: [3], pads: [2, 1] }),
  sample('Conv', [floats(1, 2, 14), floats(2, 2, 7)], { strides: [2], pads: [3, 3] }),
  sample('Conv', [floats(1, 2, 12), floats(2, 2, 1)], { strides: [2] }),
  sample('Conv', [floats(1, 2, 12, 9), floats(2, 2, 5, 3)], { auto_pad: 'SAME_LOWER', strides: [1, 2] }),
  sample('ConvTranspose', [floats(2, 3, 12), floats(3, 4, 3), floats(4)], {
    strides: [2],
    pads: [1, 1],
    output_padding: [1],
  }),
  sample('ConvTranspose', [floats(1, 4, 7, 6), floats(4, 2, 3, 4)], { strides: [1, 2], pads: [1, 1, 1, 1], group: 2 }),
  sample('ConvTranspose', [floats(1, 2, 9), floats(2, 2, 5)], { strides: [3], dilations: [2], pads: [2, 0] }),
  sample('ConvTranspose', [floats(1, 2, 8), floats(2, 2, 3)], { strides: [2], output_shape: [15] }),
  sample('MaxPool', [floats(2, 2, 14, 6)], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] }),
  sample('MaxPool', [floats(1, 2, 15)], { kernel_shape: [3], strides: [2], ceil_mode: 1 }),
  sample('AveragePool', [floats(1, 2, 13)], { kernel_shape: [3], pads: [1, 1], count_include_pad: 1 }),
  sample('AveragePool', [floats(1, 2, 13)], { kernel_shape: [4], strides: [3] }),
  sample('LpPool', [floats(1, 2, 12)], { kernel_shape: [3] }),
  sample('Pad', [floats(1, 2, 12, 5)], { pads: [0, 0, 1, 0, 0, 0, 3, 2], mode: 'constant' }),
];

for (const [number, own] of SAMPLES.entries())
  test(`${number} ${own.op} ${JSON.stringify([own.inputs.map((input) => input?.shape), own.attributes])}`, async (t) => {
    const inputs = own.inputs.map((input, index) => (input ? randomValues(input, number * 16 + index) : null));
    const { faults } = await prove(own, inputs, run, HERE);
    t.deepEqual(faults.slice(0, 5), []);
    const operator = operatorOfCase(own);
    for (const mesh of HERE) {
      const strategies = strategiesOf(needEntry(own.op), operator, mesh);
      const exchanging = strategies.filter((strategy) => {
        const { fragment } = lowerOperator(operator, strategy, mesh);
        t.deepEqual(findingsOf(fragment), [], JSON.stringify(strategy));
        return fragment.nodes.some((node) => node.kind === 'communicate' && node.collective.kind === 'permute');
      });
      t.log(`${strategies.length} strategies, ${exchanging.length} exchange borders`);
    }
  });

test('a window that reaches beyond the next shard is refused with both sizes and the degree that would do', (t) => {
  const operator = operatorOfCase(sample('Conv', [floats(1, 2, 20), floats(2, 2, 7)], { strides: [2], pads: [3, 3] }));
  const legal = (parts: number) => {
    const strategy = { axes: { y0: ['sp'] }, partialOperands: null, pending: { kind: 'none' } } as const;
    const mesh = { axes: [{ name: 'sp', size: parts, subAxes: [{ name: 'sp', size: parts }] }] };
    return checkStrategy(needEntry('Conv').rule(operator), strategy, [], mesh);
  };
  t.is(legal(4), null);
  t.is(
    legal(8),
    'factor x0: in 8 parts its shards have 3 of 20 positions, and windows of 7 reach 6 beyond; 4 parts are possible',
  );
  t.regex(legal(16) ?? '', /is less than 16 parts/);
});
