/**
 * @file The check of gradients is checked: right ones pass, and each way of being wrong is found.
 */
import test from 'ava';
import type { DifferentiatedOperator, Gradient } from '../../../src/ir/operator.js';
import { OperatorGradient } from '../../../src/ir/ops/operator-gradient.js';
import { c, f, h, positive, wide } from '../ops/sample.js';
import { needEntry } from '../ops/simulate.js';
import { checkGradient } from './check-gradient.js';

const writing =
  (write: (build: OperatorGradient, operator: DifferentiatedOperator) => void): Gradient =>
  (operator) => {
    const build = new OperatorGradient(operator, needEntry(operator.op, operator.domain).rule(operator));
    write(build, operator);
    return build.finish();
  };

/** cos x · grad, scaled. */
const sine = (scale: number): Gradient =>
  writing((build) => {
    const slope = build.add('Cos', ['in0']);
    const scaled = build.add('Mul', [slope, build.scalarLike(0, scale)]);
    build.add('Mul', [scaled, 'grad0'], {}, 'd0');
  });

const product: Gradient = writing((build, operator) => {
  const shape = operator.outputs[0]?.shape ?? [];
  for (const [index, wanted] of operator.wanted.entries()) {
    if (!wanted) continue;
    build.into(index, build.add('Mul', ['grad0', `in${1 - index}`]), operator.outputs[0]?.dtype ?? 'float32', shape);
  }
});

/** Gradient of a MatMul of two matrices. */
const matrixProduct: Gradient = writing((build, operator) => {
  const turned = (name: string) => build.add('Transpose', [name], { perm: [1, 0] });
  if (operator.wanted[0]) build.add('MatMul', ['grad0', turned('in1')], {}, 'd0');
  if (operator.wanted[1]) build.add('MatMul', [turned('in0'), 'grad0'], {}, 'd1');
});

test('right gradients pass, and agree closely', async (t) => {
  const error = await checkGradient(c('Sin', [f(4, 6)]), { gradient: sine(1) });
  t.true(error < 1e-6 && error > 0, `${error}`);
  t.true((await checkGradient(c('Mul', [f(2, 4, 6), positive(4, 1)]), { gradient: product })) < 1e-5);
  t.true((await checkGradient(c('Mul', [h(4, 6), h(6)]), { gradient: product })) < 1e-2);
  t.true((await checkGradient(c('MatMul', [f(12, 16), f(16, 8)]), { gradient: matrixProduct })) < 1e-5);
});

test('single gradients may be asked for', async (t) => {
  const sample = c('MatMul', [f(4, 6), f(6, 8)]);
  await t.notThrowsAsync(checkGradient(sample, { gradient: matrixProduct, wanted: [false, true] }));
  await t.throwsAsync(checkGradient(sample, { gradient: matrixProduct, wanted: [false, false] }), {
    message: /no operand's gradient is wanted/,
  });
});

test('a gradient that is off by a thousandth is found, and told with examples', async (t) => {
  await t.throwsAsync(checkGradient(c('Sin', [f(4, 6)]), { gradient: sine(1.001) }), {
    message: /gradient of Sin in float32, d0: off by 1.00e-3, allowed 1e-4: \[\d+\] is .* differences say/,
  });
});

test('elements at kinks are left out, but not most of them', async (t) => {
  const relu = writing((build) => {
    const above = build.add('Greater', ['in0', build.scalarLike(0, 0)]);
    build.add('Where', [above, 'grad0', build.scalarLike(0, 0)], {}, 'd0');
  });
  t.true((await checkGradient(c('Relu', [wide(4, 6)]), { gradient: relu })) < 1e-6);
  const atZero = { ...f(4, 6), low: 0, high: 1e-5 };
  await t.throwsAsync(checkGradient(c('Relu', [atZero]), { gradient: relu }), {
    message: /operand 0 lies at kinks|differences say/,
  });
});

test('nodes that break the contract are found before they run', async (t) => {
  const broken = (write: (build: OperatorGradient) => void, message: RegExp) =>
    t.throwsAsync(checkGradient(c('Sin', [f(4, 6)]), { gradient: writing(write) }), { message });
  await broken((build) => build.add('Cos', ['in0']), /makes no d0, which is wanted/);
  await broken((build) => build.add('Cos', ['grad1']), /Cos\(grad1\): reads grad1, which is not there/);
  await broken((build) => build.add('ReduceSum', ['in0'], {}, 'd0'), /d0 is float32\[1,1\], not float32\[4,6\]/);
});
