import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { ConstantTensor } from '../../../src/ir/graph.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { operatorEntry } from '../../../src/ir/ops/index.js';
import { ATTENTION_FORMS } from './attention-forms.js';
import { savedModel, type Written } from './written.js';

/** The formula of the attention in these lines, given the value of its mask. */
async function formulaOf(written: Written, mask: ConstantTensor | null = null) {
  const { graph } = await importModel(await savedModel(written));
  const [node] = graph.nodes.filter(({ body }) => body !== undefined && body !== null);
  if (!node) throw new Error('no attention was recognised');
  const operator = operatorOf(graph, node);
  return operatorEntry(operator).formula?.(operator, (operand) => (operand === 3 ? mask : null)) ?? null;
}

const IN_ORDER = [0, 1, 2, 3];

test('the dimensions of every operand are put in the order of the formula', async (t) => {
  const of = async (name: string) => (await formulaOf(ATTENTION_FORMS[name] as Written))?.attributes;
  const plain = { queries: IN_ORDER, keys: IN_ORDER, values: IN_ORDER };
  t.deepEqual(await of('scaled after, no mask'), { scale: 0.25, ...plain });
  t.deepEqual(await of('keys split into heads and turned by one Transpose'), {
    scale: 0.25,
    ...plain,
    keys: [0, 2, 1, 3],
  });
  t.deepEqual(await of('grouped heads by Expand, in keys and values'), { scale: 0.25, ...plain, grouped: 1 });
  t.is(await of('grouped heads by Tile'), undefined);
  t.is(await of('capped softly, then masked'), undefined);
});

const SIZE = 4;
const MOST = -3.4028234663852886e38;

function masked(line: string, dtype: 'float32' | 'bool'): Written {
  const shape = [2, 3, SIZE, 8];
  return {
    inputs: { q: shape, k: shape, v: shape, m: [dtype, 1, 1, SIZE, SIZE] },
    lines: `
      kt = Transpose(k) {"perm": [0, 1, 3, 2]}
      s = MatMul(q, kt)
      ${line}
      p = Softmax(u) {"axis": 3}
      y = MatMul(p, v)`,
  };
}

/** A mask by query and key. */
function mask(dtype: 'float32' | 'bool', of: (query: number, key: number) => number): ConstantTensor {
  const values = Array.from({ length: SIZE ** 2 }, (_, at) => of(Math.floor(at / SIZE), at % SIZE));
  return constant(dtype, values, [1, 1, SIZE, SIZE]);
}

const added = masked('u = Add(s, m)', 'float32');
const shown = masked('u = Where(m, s, -3.4028234663852886e38)', 'bool');
const hidden = masked('u = Where(m, -inf, s)', 'bool');

for (const [name, written, value] of [
  ['added', added, mask('float32', (query, key) => (key > query ? MOST : 0))],
  ['shown', shown, mask('bool', (query, key) => Number(key <= query))],
  ['hidden', hidden, mask('bool', (query, key) => Number(key > query))],
] as const)
  test(`a constant mask that hides later keys alone is no operand: ${name}`, async (t) => {
    const formula = await formulaOf(written, value);
    t.is(formula?.attributes['causal'], 1);
    t.is(formula?.operands, 3);
    t.is(formula?.attributes['masks'], undefined);
  });

for (const [name, written, value] of [
  ['a bias', added, mask('float32', (query, key) => (key > query ? MOST : 0.5))],
  ['an earlier key is hidden', added, mask('float32', (query, key) => (key > query || key < query - 1 ? MOST : 0))],
  ['the next key is shown', shown, mask('bool', (query, key) => Number(key <= query + 1))],
  ['unknown values', hidden, null],
] as const)
  test(`another mask stays an operand: ${name}`, async (t) => {
    const formula = await formulaOf(written, value);
    t.is(formula?.attributes['causal'], undefined);
    t.is(formula?.operands, 4);
  });

test('how each mask works on scores is said', async (t) => {
  const masksOf = async (written: Written) => (await formulaOf(written))?.attributes;
  t.like(await masksOf(added), { masks: ['add'], fills: [0] });
  t.like(await masksOf(hidden), { masks: ['hide'], fills: [Number.NEGATIVE_INFINITY] });
  const { masks, fills } = (await masksOf(shown)) ?? {};
  t.deepEqual(masks, ['show']);
  t.true(Math.abs(Number((fills as readonly number[])[0]) / MOST - 1) < 1e-6);
});
