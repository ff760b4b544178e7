import test from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { fingerprint } from '../../src/ir/fingerprint.js';
import { model, node, ramp, saved, tensor, value } from './model-maker.js';

const made = (weight: number, scale: number, op = 'Relu', size = 2): Parameters<typeof saved>[0] =>
  model({
    node: [node('MatMul', ['x', 'fc.weight'], ['a']), node('Mul', ['a', 'scale'], ['b']), node(op, ['b'], ['y'])],
    initializer: [
      tensor(
        'fc.weight',
        [3, 3],
        Array.from({ length: 9 }, (_, index) => index * weight),
      ),
      tensor('scale', [], [scale]),
    ],
    input: [value('x', [size, 3])],
    output: [value('y', [size, 3])],
  });

const of = async (...parts: Parameters<typeof made>): Promise<string> =>
  (await importModel(await saved(made(...parts)))).fingerprint;

test('it changes with structure, shapes and constants, not with the values of parameters', async (t) => {
  const base = await of(1, 2);
  t.is(await of(1, 2), base);
  t.is(await of(5, 2), base, 'trained further');
  t.not(await of(1, 3), base, 'another constant');
  t.not(await of(1, 2, 'Neg'), base, 'another operator');
  t.not(await of(1, 2, 'Relu', 4), base, 'another batch');
});

test('the order of maps does not matter', async (t) => {
  const { graph } = await importModel(await saved(made(1, 2)));
  const reversed = {
    ...graph,
    tensors: new Map([...graph.tensors].reverse()),
    weights: new Map([...graph.weights].reverse()),
  };
  t.is(fingerprint(reversed), fingerprint(graph));
  t.regex(fingerprint(graph), /^[0-9a-f]{64}$/);
});

test('external weights count by name and shape alone', async (t) => {
  const graph = model({
    node: [node('Add', ['x', 'w.b'], ['y'])],
    initializer: [ramp('w.b', [3])],
    input: [value('x', [3])],
    output: [value('y', [3])],
  });
  const inline = await importModel(await saved(graph));
  const absent = await importModel(
    await saved({
      ...graph,
      graph: {
        ...graph.graph,
        initializer: [
          {
            name: 'w.b',
            dims: [3],
            data_type: 1,
            data_location: 1,
            external_data: [{ key: 'location', value: 'w.bin' }],
          },
        ],
      },
    }),
  );
  t.is(inline.fingerprint, absent.fingerprint);
});
