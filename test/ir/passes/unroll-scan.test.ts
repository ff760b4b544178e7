import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { GraphProto } from '../../../src/ir/onnx/schema.js';
import { constant } from '../../../src/ir/ops/constants.js';
import { float, model, node, ramp, saved, value } from '../model-maker.js';
import { noise, operators, sameResults } from '../same-results.js';

/** s ← ½ s + a · b, handed out as it is and turned. */
const body: GraphProto = {
  name: 'body',
  node: [
    node('Mul', ['s', 'half'], ['faded']),
    node('Mul', ['a', 'b'], ['product']),
    node('Add', ['faded', 'product'], ['next']),
    node('Identity', ['next'], ['seen']),
    node('LeakyRelu', ['next'], ['bent'], { alpha: float(0.1) }),
  ],
  initializer: [ramp('half', [2, 3])],
  input: [value('s', [2, 3]), value('a', [2, 3]), value('b', [2, 3])],
  output: [value('next', [2, 3]), value('seen', [2, 3]), value('bent', [2, 3])],
};

const scan = (attributes: Readonly<Record<string, readonly number[]>>, a: readonly number[], b: readonly number[]) =>
  model({
    node: [
      node('Scan', ['x', 'a', 'b'], ['y', 'u', 'v'], { body, num_scan_inputs: 2, ...attributes }, { name: 'steps' }),
    ],
    input: [value('x', [2, 3]), value('a', a), value('b', b)],
    output: [value('y', [2, 3]), value('u', ['p', 'q', 'r']), value('v', ['s', 't', 'w'])],
  });

test('Scan over the first dimension', async (t) => {
  const graph = scan({}, [4, 2, 3], [4, 2, 3]);
  const imported = await sameResults(t, graph, { x: noise([2, 3]), a: noise([4, 2, 3], 3), b: noise([4, 2, 3], 5) });
  t.false(operators(imported).includes('Scan'));
  t.is(operators(imported).filter((op) => op === 'LeakyRelu').length, 4);
});

test('Scan with axes and directions of inputs and outputs', async (t) => {
  for (const [inputAxis, outputAxis] of [
    [1, 2],
    [-1, -1],
    [2, -2],
  ] as const) {
    for (const backwards of [0, 1]) {
      const axes = { scan_input_axes: [0, inputAxis], scan_output_axes: [1, outputAxis] };
      const directions = { scan_input_directions: [backwards, 1], scan_output_directions: [0, backwards] };
      const b = [2, 3].toSpliced(inputAxis < 0 ? inputAxis + 3 : inputAxis, 0, 4);
      const feeds = { x: noise([2, 3]), a: noise([4, 2, 3], 3), b: noise(b, 5) };
      await sameResults(t, scan({ ...axes, ...directions }, [4, 2, 3], b), feeds);
    }
  }
});

test('Scan over a single slice', async (t) => {
  const feeds = { x: noise([2, 3]), a: noise([1, 2, 3], 3), b: noise([1, 2, 3], 5) };
  await sameResults(t, scan({}, [1, 2, 3], [1, 2, 3]), feeds);
});

test('Scan over inputs of different lengths is refused', async (t) => {
  await t.throwsAsync(async () => importModel(await saved(scan({}, [4, 2, 3], [5, 2, 3]))), {
    code: 'shape-mismatch',
    message: /'steps' \(Scan\) runs over inputs of 4 and 5 slices/,
  });
});

test('Scan of opset 8 runs sample by sample, up to the length of each, forwards and backwards', async (t) => {
  for (const backwards of [0, 1]) {
    for (const lengths of [null, [3, 1]]) {
      const graph = model(
        {
          node: [
            node('Scan', [lengths ? 'lengths' : '', 'x', 'a'], ['y', 'u'], {
              body: summing,
              num_scan_inputs: 1,
              directions: [backwards],
            }),
          ],
          input: [...(lengths ? [value('lengths', [2], 'int64')] : []), value('x', [2, 4]), value('a', [2, 3, 4])],
          output: [value('y', [2, 4]), value('u', [2, 3, 4])],
        },
        8,
      );
      const given = lengths ? { lengths: constant('int64', lengths, [2]) } : {};
      const feeds = { x: noise([2, 4]), a: noise([2, 3, 4], 3), ...given };
      await sameResults(t, graph, feeds, { constants: given });
    }
  }
});

const summing: GraphProto = {
  name: 'summing',
  node: [node('Add', ['s', 'a'], ['next']), node('Neg', ['next'], ['out'])],
  input: [value('s', [4]), value('a', [4])],
  output: [value('next', [4]), value('out', [4])],
};
