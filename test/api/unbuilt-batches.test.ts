/**
 * @file Whole steps of a file that cannot be rebuilt at other batches than its own: these micro-batches are left out, its own
 * stays.
 */
import test from 'ava';
import { type StepSearchOptions, searchStep } from '../../src/api/planning/search-step.js';
import { AutoparError } from '../../src/ir/error.js';
import { node, ramp, saved, small, tensor, value } from '../ir/model-maker.js';

const BATCH = 4;

/**
 * Matmuls of each sample, and how many samples came before: a running count over the batch, as a router's places in a
 * capacity.
 */
async function counting(): Promise<string> {
  return saved(
    small(
      [
        node('MatMul', ['x', 'w'], ['h'], {}, { name: 'product' }),
        node('CumSum', ['h', 'axis'], ['y'], {}, { name: 'count' }),
      ],
      {
        initializer: [ramp('w', [8, 8]), tensor('axis', [1], [0], 'int64')],
        input: [value('x', [BATCH, 8])],
        output: [value('y', [BATCH, 8])],
      },
    ),
  );
}

async function step(asked: StepSearchOptions) {
  return searchStep({ model: await counting(), cluster: '1x2:h100-sxm-80', ...asked });
}

test('the batch of the file is taken where it need not change', async (t) => {
  const { simulation, unbuilt } = await step({ dp: 1 });
  const { configuration, microBatches } = simulation;
  t.deepEqual([configuration.microBatch, microBatches], [BATCH, 1]);
  t.is(simulation.modelFlops, 2 * BATCH * 8 * 8, 'of the whole batch, once');
  for (const size of [1, 2])
    t.true(unbuilt.some((note) => note.startsWith(`micro-batches of ${size} are not searched: `)));
  t.false(unbuilt.some((note) => note.startsWith(`micro-batches of ${BATCH} `)));
});

test('degrees that would need another batch are rejected with the reason, and others taken', async (t) => {
  const search = await step({});
  t.is(search.simulation.configuration.degrees.dp, 1);
  const rejected = search.verdicts.find(({ degrees }) => degrees.dp === 2);
  t.is(rejected?.kind, 'impossible');
  t.regex(
    JSON.stringify(rejected),
    /micro-batches of 1 are not searched: the batch cannot be changed from 4 to 1.*'count'/,
  );
});

test('a larger batch is of several micro-batches of the file’s own', async (t) => {
  const { configuration, microBatches } = (await step({ globalBatch: 12, dp: 1 })).simulation;
  t.deepEqual([configuration.microBatch, microBatches], [BATCH, 3]);
});

test('where nothing is left the file is refused, with the node', async (t) => {
  for (const asked of [{ dp: 2 }, { dp: 1, microBatch: 2 }, { globalBatch: 6, dp: 1 }]) {
    const error = await t.throwsAsync(step(asked), { instanceOf: AutoparError });
    t.deepEqual(
      [error?.code, error?.exit, error?.where.node],
      ['batch-ambiguous', 'input', 'count'],
      JSON.stringify(asked),
    );
  }
});
