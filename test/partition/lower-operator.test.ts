import test from 'ava';
import type { TensorType } from '../../src/ir/graph.js';
import type { Operator } from '../../src/ir/operator.js';
import { lowerOperator } from '../../src/partition/lower-operator.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import type { Strategy } from '../../src/sharding-propagation/strategy.js';
import { shardedText } from './sharded-text.js';

const mesh = makeMesh([
  ['dp', 2],
  ['tp', 2],
]);
const floats = (...shape: number[]): TensorType => ({ dtype: 'float32', shape });
const integers = (...shape: number[]): TensorType => ({ dtype: 'int64', shape });

function operator(op: string, attributes: Operator['attributes'], inputs: TensorType[], output: TensorType): Operator {
  return { name: op, op, domain: '', attributes, inputs, outputs: [output], outputCount: 1 };
}

/** The lowering as text; strategies are written shortly: axes, what is pending, what is carried. */
function lowered(operator: Operator, strategy: Partial<Strategy>): string {
  const full: Strategy = { axes: {}, partialOperands: null, pending: { kind: 'none' }, ...strategy };
  return shardedText(lowerOperator(operator, full, mesh).fragment);
}

const matmul = operator('MatMul', {}, [floats(4, 8, 16), floats(16, 32)], floats(4, 8, 32));

test('a column-parallel MatMul has no pending reduction', (t) => {
  t.is(
    lowered(matmul, { axes: { b0: ['dp'], n: ['tp'] } }),
    'out0 = MatMul(in0, in1)  [2, 8, 16] of [4, 8, 32] [dp, -, tp]',
  );
});

test('a factor seen as pieces is cut inside of each: fused q, k and v', (t) => {
  const fused = operator('MatMul', {}, [floats(4, 8, 16), floats(16, 192)], floats(4, 8, 192));
  const strategy = { axes: { 'n.1': ['tp'] }, pieces: { n: [3, 64] } };
  t.is(lowered(fused, strategy), 'out0 = MatMul(in0, in1)  [4, 8, 96] of [4, 8, 192] [-, -, (3 | 64:tp)]');
  t.throws(() => lowered(fused, { ...strategy, pieces: { n: [3, 60] } }), { message: /is not the size 192/ });
});

test('the pending reduction of a row-parallel MatMul is an all-reduce', (t) => {
  t.is(
    lowered(matmul, { axes: { b0: ['dp'], k: ['tp'] }, pending: { kind: 'all-reduce' } }),
    [
      't0 = MatMul(in0, in1)  [2, 8, 32] of [4, 8, 32] [dp, -, -] + partial(tp)',
      'out0 = all-reduce.sum(tp) t0  [2, 8, 32] of [4, 8, 32] [dp, -, -]',
    ].join('\n'),
  );
});

test('under sequence parallelism the same sum is one reduce-scatter', (t) => {
  t.is(
    lowered(matmul, { axes: { b0: ['dp'], k: ['tp'] }, pending: { kind: 'scatter', factor: 'm' } }).split('\n')[1],
    'out0 = reduce-scatter.sum(tp) t0  [2, 4, 32] of [4, 8, 32] [dp, tp, -]',
  );
});

test('a partial result may be left partial', (t) => {
  t.is(lowered(matmul, { axes: { k: ['tp'] } }), 'out0 = MatMul(in0, in1)  [4, 8, 32] [-, -, -] + partial(tp)');
});

test('updates of a scatter that adds may be partial sums while its rows are sharded', (t) => {
  const operands = [floats(4, 6), integers(2, 1), floats(2, 6)];
  const scatter = operator('ScatterND', { reduction: 'add' }, operands, floats(4, 6));
  const lines = lowered(scatter, { axes: { x0: ['dp'] }, partialOperands: { set: 0, axes: ['tp'] } }).split('\n');
  t.regex(lines.at(-1) ?? '', /^out0 = ScatterND\(.*\) {2}\[2, 6\] of \[4, 6\] \[dp, -\] \+ partial\(tp\)$/);
});

test('a linear operator carries partial operands through', (t) => {
  const add = operator('Add', {}, [floats(4, 8), floats(4, 8)], floats(4, 8));
  t.is(
    lowered(add, { axes: { a0: ['dp'] }, partialOperands: { set: 0, axes: ['tp'] } }),
    'out0 = Add(in0, in1)  [2, 8] of [4, 8] [dp, -] + partial(tp)',
  );
});

test('a lookup in a sharded vocabulary masks what lies in other shards', (t) => {
  const gather = operator('Gather', { axis: 0 }, [floats(100, 16), integers(4, 8)], floats(4, 8, 16));
  const lines = lowered(gather, { axes: { v: ['tp'], i0: ['dp'] }, pending: { kind: 'all-reduce' } }).split('\n');
  t.regex(lines[3] ?? '', /Reshape\(coordinate\(tp\)\*50\)/);
  t.deepEqual(
    lines.slice(-3).map((line) => line.replace(/\bt\d+/g, 't')),
    [
      't = Reshape(t)  [2, 8, 1] of [4, 8, 1] [dp, -, -] varying(tp)',
      't = Where(t, t, t)  [2, 8, 16] of [4, 8, 16] [dp, -, -] + partial(tp)',
      'out0 = all-reduce.sum(tp) t  [2, 8, 16] of [4, 8, 16] [dp, -, -]',
    ],
  );
});

test('a softmax over a sharded dimension is its expansion with a maximum and a sum over ranks', (t) => {
  const softmax = operator('Softmax', { axis: -1 }, [floats(4, 8, 16)], floats(4, 8, 16));
  const operators = lowered(softmax, { axes: { a2: ['tp'] } })
    .split('\n')
    .map((line) => line.replace(/^.* = /, '').replace(/[( ].*/, ''));
  t.deepEqual(operators.slice(0, 7), [
    'ReduceMax',
    'all-reduce.max',
    'Sub',
    'Exp',
    'ReduceSum',
    'all-reduce.sum',
    'Div',
  ]);
});

test('a mean over a sharded dimension divides by the whole size', (t) => {
  const mean = operator('ReduceMean', { axes: [-1], keepdims: 1 }, [floats(4, 8, 16)], floats(4, 8, 1));
  const { fragment } = lowerOperator(
    mean,
    { axes: { a2: ['tp'] }, partialOperands: null, pending: { kind: 'none' } },
    mesh,
  );
  const scale = [...fragment.constants.values()].find((value) => value.dtype === 'float32');
  t.is(new Float32Array(scale?.data.slice().buffer ?? new ArrayBuffer(4))[0], 1 / 16);
});

test('attributes that hold sizes shrink with their factors', (t) => {
  const reshape = operator('Reshape', { shape: [4, 8, 4, 16] }, [floats(4, 8, 64)], floats(4, 8, 4, 16));
  const { fragment } = lowerOperator(
    reshape,
    { axes: { a: ['dp'] }, partialOperands: null, pending: { kind: 'none' } },
    mesh,
  );
  const node = fragment.nodes[0];
  t.deepEqual(node?.kind === 'compute' ? node.attributes['shape'] : null, [2, 8, 4, 16]);
});

test('an illegal strategy is a fault that names operator and reason', (t) => {
  t.throws(() => lowered(matmul, { axes: { nothing: ['tp'] } }), { message: /MatMul.*nothing/ });
});

test('an operator whose values depend on the position is told its offset', (t) => {
  const trilu = operator('Trilu', { k: 0, upper: 0 }, [floats(8, 8)], floats(8, 8));
  const text = lowered(trilu, { axes: { i: ['tp'] } }).replace(/\bt\d+/g, 't');
  t.regex(text, /= Add\(t, coordinate\(tp\)\*4\).*varying\(tp\)/);
  t.regex(text, /out0 = Trilu\(in0, t\) {2}\[4, 8\] of \[8, 8\] \[tp, -\]$/);
});

test('a result that is not used keeps its place', (t) => {
  const types = [floats(4, 8), floats(2, 32, 8), floats(2, 32, 8)];
  const last: Operator = {
    ...operator(
      'LSTM',
      { hidden_size: 8, direction: 'bidirectional' },
      [floats(6, 4, 8), ...types.slice(1)],
      floats(1),
    ),
    outputs: [null, floats(2, 4, 8)],
    outputCount: 2,
  };
  const { fragment } = lowerOperator(
    last,
    { axes: { n: ['dp'] }, partialOperands: null, pending: { kind: 'none' } },
    mesh,
  );
  const node = fragment.nodes[0];
  t.deepEqual(node?.kind === 'compute' ? node.outputs : null, [null, 'out1']);
  t.deepEqual(fragment.get('out1').localShape, [2, 2, 8]);
});

test('a bias follows channels that are cut inside of whole groups', (t) => {
  const conv = operator(
    'Conv',
    { group: 3 },
    [floats(4, 12, 5, 5), floats(12, 4, 1, 1), floats(12)],
    floats(4, 12, 5, 5),
  );
  t.deepEqual(lowered(conv, { axes: { co: ['dp'], ci: ['tp'] } }).split('\n'), [
    't0 = Conv(in0, in1)  [4, 6, 5, 5] of [4, 12, 5, 5] [-, (3 | 4:dp), -, -] + partial(tp)',
    't1 = all-reduce.sum(tp) t0  [4, 6, 5, 5] of [4, 12, 5, 5] [-, (3 | 4:dp), -, -]',
    't2 = Unsqueeze(in2)  [6, 1, 1] of [12, 1, 1] [(3 | 4:dp), -, -]',
    'out0 = Add(t1, t2)  [4, 6, 5, 5] of [4, 12, 5, 5] [-, (3 | 4:dp), -, -]',
  ]);
});
