/**
 * @file Scatters that add, lowered: over rows, over updates, over both, and with partial sums passing through.
 */
import test from 'ava';
import type { Operator } from '../../src/ir/operator.js';
import { lowerOperator } from '../../src/partition/lower-operator.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import type { Strategy } from '../../src/sharding-propagation/strategy.js';
import { makeRun, type Values } from '../ir/ops/one-node.js';
import { difference } from '../ir/ops/values.js';
import { simulateFragment } from './simulate-fragment.js';

const mesh = makeMesh([
  ['dp', 2],
  ['tp', 2],
]);

const run = makeRun();

const wave = (shape: readonly number[], seed: number): Values => ({
  dtype: 'float32',
  shape,
  data: Array.from({ length: shape.reduce((product, size) => product * size, 1) }, (_, at) =>
    Math.sin(seed + 1.7 * at),
  ),
});

const DATA = wave([8, 6], 1);
const UPDATES = wave([4, 2, 6], 2);
/** Every row once, one twice, one counted from the end. */
const PLACES: Values = { dtype: 'int64', shape: [4, 2, 1], data: [0, 7, 3, 3, -2, 4, 1, 2] };

const OPERATOR: Operator = {
  name: 'scatter',
  op: 'ScatterND',
  domain: '',
  attributes: { reduction: 'add' },
  inputs: [DATA, PLACES, UPDATES],
  outputs: [DATA],
  outputCount: 1,
};

const STRATEGIES: readonly Partial<Strategy>[] = [
  { axes: { x0: ['tp'] } },
  { axes: { i0: ['dp'] } },
  { axes: { i0: ['dp'] }, pending: { kind: 'all-reduce' } },
  { axes: { i0: ['dp'] }, pending: { kind: 'scatter', factor: 'x0' } },
  { axes: { x0: ['tp'], i0: ['dp'] } },
  { axes: { x0: ['tp'], i1: ['dp'] }, pending: { kind: 'scatter', factor: 'x0' } },
  { axes: { x0: ['dp', 'tp'] } },
  { axes: { a1: ['tp'], i0: ['dp'] } },
  { axes: { x0: ['tp'] }, partialOperands: { set: 0, axes: ['dp'] } },
  { axes: { i0: ['tp'] }, partialOperands: { set: 0, axes: ['dp'] } },
];

for (const given of STRATEGIES) {
  test(`a scatter under ${JSON.stringify(given)} is what it is whole`, async (t) => {
    const strategy: Strategy = { axes: {}, partialOperands: null, pending: { kind: 'none' }, ...given };
    const { fragment } = lowerOperator(OPERATOR, strategy, mesh);
    const operands = new Map([DATA, PLACES, UPDATES].map((value, index) => [`in${index}`, value]));
    const [made] = await simulateFragment(fragment, operands, ['out0'], run);
    const [whole] = await run(OPERATOR, [DATA, PLACES, UPDATES], [DATA]);
    t.is(made && whole ? difference(made, whole, 1e-5) : 'nothing', null);
  });
}

test('nothing of the size of rows times updates is made', (t) => {
  const { fragment } = lowerOperator(
    OPERATOR,
    { axes: { x0: ['tp'], i0: ['dp'] }, partialOperands: null, pending: { kind: 'none' } },
    mesh,
  );
  const largest = [...fragment.tensors.values()].map(({ localShape }) => localShape.reduce((a, b) => a * b, 1));
  t.true(Math.max(...largest) <= 4 * 6);
});
