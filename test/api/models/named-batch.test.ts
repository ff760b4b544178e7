/**
 * @file Files whose names say that the batch is not dimension 0 of the first input.
 */
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import type { AutoparError } from '../../../src/ir/error.js';
import { node, ramp, saved, small, value } from '../../ir/model-maker.js';

/** A matmul of tokens whose input has these dimensions. */
function tokens(dimensions: readonly [number | string, number | string]): Promise<string> {
  return saved(
    small([node('MatMul', ['x', 'w'], ['y'])], {
      initializer: [ramp('w', [8, 8])],
      input: [value('x', [...dimensions, 8])],
      output: [value('y', [...dimensions, 8])],
    }),
  );
}

const dims = { sequence: 5, batch: 4 };

test('a batch that the file names elsewhere is not resized in its place, and said so where it is left', async (t) => {
  const file = await tokens(['sequence', 'batch']);
  const said = `the batch is taken to be dimension 0 of 'x', 'sequence', and the file calls dimension 1 'batch'`;
  t.true((await importModel(file, { dims })).notes.includes(said));
  const error = (await t.throwsAsync(importModel(file, { dims, globalBatch: 8 }))) as AutoparError;
  t.is(error.code, 'batch-ambiguous');
  t.is(error.message, `the batch cannot be changed to 8: ${said}`);
});

test('where the batch comes first, or no dimension is called so, nothing is said and the batch is resized', async (t) => {
  for (const shape of [
    ['batch', 'sequence'],
    ['sequence', 4],
    [5, 4],
  ] as const) {
    const named = Object.fromEntries(shape.flatMap((own) => (typeof own === 'string' ? [[own, dims[own]]] : [])));
    const { graph, notes } = await importModel(await tokens(shape), { dims: named, globalBatch: 8 });
    t.is(graph.tensors.get('x')?.shape[0], 8);
    t.false(notes.some((note) => note.includes('is taken to be')));
  }
});
