/**
 * @file Layers of files without module paths: found where operators come again with matrices of their own, and kept when the
 * model is trained.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { withTraining } from '../../../src/api/models/training.js';
import type { Graph } from '../../../src/ir/graph.js';
import type { NodeProto } from '../../../src/ir/onnx/schema.js';
import { model, node, ramp, saved, value } from '../model-maker.js';

/** x + relu(x · up) · down, after `before`, the tensor that the operators before it make. */
function block(before: string, number: number, weights = `${number}`): readonly NodeProto[] {
  return [
    node('MatMul', [before, `up${weights}`], [`h${number}`]),
    node('Relu', [`h${number}`], [`r${number}`]),
    node('MatMul', [`r${number}`, `down${weights}`], [`d${number}`]),
    node('Add', [before, `d${number}`], [`x${number}`]),
  ];
}

const matrices = (...names: readonly string[]) =>
  names.flatMap((name) => [ramp(`up${name}`, [8, 16]), ramp(`down${name}`, [16, 8])]);

/** The file of an encoder of sixteen positions: a table of labels behind some blocks. */
const file = (blocks: readonly NodeProto[], last: string, ...weights: readonly string[]): Promise<string> =>
  saved(
    model({
      node: [node('Tanh', ['x'], ['e']), ...blocks, node('MatMul', [last, 'head'], ['y'])],
      input: [value('x', [4, 8])],
      output: [value('y', [4, 6])],
      initializer: [...matrices(...weights), ramp('head', [8, 6])],
    }),
  );

const layersOf = ({ nodes }: Graph) => nodes.map(({ op, layer }) => `${op} ${layer ?? '-'}`);

const three = file([...block('e', 0), ...block('x0', 1), ...block('x1', 2)], 'x2', '0', '1', '2');

test('operators that come again, each time with matrices of their own, are layers', async (t) => {
  const { graph } = await importModel(await three);
  const layer = (number: number) => ['MatMul', 'Relu', 'MatMul', 'Add'].map((op) => `${op} layers.${number}`);
  t.deepEqual(layersOf(graph), ['Tanh -', ...layer(0), ...layer(1), ...layer(2), 'MatMul -']);
});

test('steps that share their matrices are none', async (t) => {
  const { graph } = await importModel(await file([...block('e', 0, '0'), ...block('x0', 1, '0')], 'x1', '0'));
  t.true(graph.nodes.every(({ layer }) => layer === null));
});

test('layers begin where the fewest tensors go from one to the next', async (t) => {
  // The sum before the first block could be the end of a layer as well.
  const tail = [node('Relu', ['e'], ['f']), node('Add', ['e', 'f'], ['x0'])];
  const blocks = [...tail, ...block('x0', 1), ...block('x1', 2)];
  const { graph } = await importModel(await file(blocks, 'x2', '1', '2'));
  t.deepEqual(
    graph.nodes.flatMap(({ op, layer }) => (op === 'Add' ? [layer] : [])),
    [null, 'layers.0', 'layers.1'],
  );
});

test('the layers of a model that is trained are those of the model, gradients and updates included', async (t) => {
  const imported = await importModel(await three);
  const { graph } = withTraining(imported, { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } });
  const forward = new Map(imported.graph.nodes.map(({ name, layer }) => [name, layer]));
  for (const { name, layer } of graph.nodes) if (forward.has(name)) t.is(layer, forward.get(name) ?? null, name);
  for (const phase of ['backward-weight', 'update']) {
    const layers = new Set(graph.nodes.flatMap((each) => (each.phase === phase ? (each.layer ?? []) : [])));
    t.deepEqual([...layers].sort(), ['layers.0', 'layers.1', 'layers.2'], phase);
  }
});
