import test from 'ava';
import fc from 'fast-check';
import type { SourceDimension, SourceValue } from '../../../src/ir/onnx/model.js';
import { boundShape, freeDimensions } from '../../../src/ir/passes/dims.js';
import { bindDimensions, type RequestedDimensions } from '../../../src/ir/passes/input-dimensions.js';

function input(name: string, shape: readonly SourceDimension[] | null): SourceValue {
  return { name, dtype: 'float32', shape };
}

function shapesOf(inputs: readonly SourceValue[], given: RequestedDimensions): readonly (readonly number[] | null)[] {
  const bound = bindDimensions(inputs, given, 'm.onnx');
  return bound.inputs.map(({ shape }) => boundShape(shape, bound.named));
}

test('dimensions without a name are bound by place, named ones wherever they occur', (t) => {
  const inputs = [input('x', [null, 8]), input('mask', ['N', 'S', 'S + 1']), input('ids', ['N', null])];
  t.deepEqual(shapesOf(inputs, { dims: { 'x[0]': 4, 'mask[0]': 2, S: 3, 'ids[1]': 5 } }), [
    [4, 8],
    [2, 3, 4],
    [2, 5],
  ]);
  t.deepEqual(shapesOf(inputs, { shapes: { mask: [2, 3, 4] } }), [null, [2, 3, 4], null]);
});

test('a shape gives an input its rank where the file states none', (t) => {
  const inputs = [input('q', null), input('rate', null)];
  t.deepEqual(shapesOf(inputs, { shapes: { q: [2, 8, 64], rate: [] } }), [[2, 8, 64], []]);
  t.deepEqual(shapesOf(inputs, { dims: { 'q[1]': 8, 'q[0]': 2 } }), [[2, 8], null]);
});

test('names of inputs and dimensions may hold brackets and quotes', (t) => {
  const inputs = [input('a[0]', [null]), input("it's", [null]), input('b', ['a[0]', 'x[y]'])];
  t.deepEqual(shapesOf(inputs, { dims: { 'a[0][0]': 3, "it's[0]": 4, 'a[0]': 5, 'x[y]': 6 } }), [[3], [4], [5, 6]]);
});

const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { maxLength: 4 });

test('binding again what was recorded gives the same shapes, however they were given', (t) => {
  const property = fc.property(
    fc.array(
      fc.record({ shape: sizes, hides: fc.array(fc.constantFrom('known', 'named', 'nameless')), ranked: fc.boolean() }),
      {
        minLength: 1,
        maxLength: 3,
      },
    ),
    (drawn) => {
      const inputs = drawn.map(({ shape, hides, ranked }, index) => {
        const seen = shape.map((size, axis): SourceDimension => {
          if (hides[axis] === 'named') return `d${index}_${axis}`;
          return hides[axis] === 'nameless' ? null : size;
        });
        return input(`in${index}`, ranked ? seen : null);
      });
      const shapes = Object.fromEntries(drawn.map(({ shape }, index) => [`in${index}`, shape]));
      const { given } = bindDimensions(inputs, { shapes }, 'm.onnx');
      const expected = drawn.map(({ shape }) => shape);
      t.deepEqual(shapesOf(inputs, { shapes }), expected);
      t.deepEqual(shapesOf(inputs, { dims: given }), expected);
    },
  );
  fc.assert(property, { numRuns: 200 });
});

test('an open dimension without a name is listed by its place', (t) => {
  t.deepEqual([...freeDimensions([input('x', [null, 'N'])], new Map()).keys()], ['x[0]', 'N']);
});

const refusals: Readonly<Record<string, { given: RequestedDimensions; code: string; says: RegExp }>> = {
  'an input that is not there': {
    given: { dims: { 'z[0]': 2 } },
    code: 'unknown-input',
    says: /z\[0\]=2.*no input 'z'/,
  },
  'the shape of one': { given: { shapes: { xx: [2] } }, code: 'unknown-input', says: /--shape xx=2.*no input 'xx'/ },
  'a dimension that is not there': {
    given: { dims: { 'x[2]': 2 } },
    code: 'unknown-dimension',
    says: /x \[\?, 8\].*no dimension 2/,
  },
  'a negative dimension': { given: { dims: { 'x[-1]': 2 } }, code: 'unknown-dimension', says: /no dimension -1/ },
  'a dimension without a number': {
    given: { dims: { 'x[]': 2 } },
    code: 'unknown-dimension',
    says: /without a number/,
  },
  'size 0': { given: { dims: { 'x[0]': 0 } }, code: 'bad-dimension', says: /x\[0\]=0.*positive/ },
  'a negative size': { given: { shapes: { x: [-4, 8] } }, code: 'bad-dimension', says: /x=-4,8.*positive/ },
  'half a size': { given: { shapes: { x: [1.5, 8] } }, code: 'bad-dimension', says: /positive/ },
  'another rank': {
    given: { shapes: { x: [2, 8, 1] } },
    code: 'dimension-contradiction',
    says: /has 3 dimensions, .* has 2/,
  },
  'another size than the file fixes': {
    given: { shapes: { x: [2, 9] } },
    code: 'dimension-contradiction',
    says: /x\[1\]=9 .* 8 in x/,
  },
  'two places of one name': {
    given: { dims: { 'a[0]': 2, 'b[0]': 3 } },
    code: 'dimension-contradiction',
    says: /b\[0\]=3 .*N=2/,
  },
  'a name and its place': {
    given: { dims: { N: 2, 'a[0]': 3 } },
    code: 'dimension-contradiction',
    says: /a\[0\]=3 .*N=2/,
  },
  'an expression and its place': {
    given: { dims: { N: 2, 'b[1]': 4 } },
    code: 'dimension-contradiction',
    says: /b\[1\]=4 .* 3 in b/,
  },
  'a place and a shape': {
    given: { dims: { 'x[0]': 2 }, shapes: { x: [3, 8] } },
    code: 'dimension-contradiction',
    says: /x\[0\]=3 .*x\[0\]=2/,
  },
  'a place of an input without a shape, alone': {
    given: { dims: { 'q[1]': 2 } },
    code: 'unknown-dimension',
    says: /q\[1\]=2.*no shape.*dimension 0/,
  },
  'a place that no shape has': {
    given: { dims: { 'q[999999999]': 2 } },
    code: 'unknown-dimension',
    says: /no dimension 999999999/,
  },
  'a scalar with a dimension': {
    given: { dims: { 'q[0]': 2 }, shapes: { q: [] } },
    code: 'unknown-dimension',
    says: /scalar/,
  },
  '100,000 dimensions': {
    given: { shapes: { q: new Array<number>(100_000).fill(1) } },
    code: 'tensor-size',
    says: /100000 dimensions/,
  },
};

for (const [name, { given, code, says }] of Object.entries(refusals)) {
  test(`refused: ${name}`, (t) => {
    const inputs = [input('x', [null, 8]), input('a', ['N']), input('b', ['N', 'N + 1']), input('q', null)];
    const error = t.throws(() => bindDimensions(inputs, given, 'm.onnx'));
    t.is((error as { code?: unknown } | undefined)?.code, code);
    t.regex(error?.message ?? '', says);
  });
}
