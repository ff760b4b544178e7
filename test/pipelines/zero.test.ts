/**
 * @file ZeRO 0 to 3 train as one rank does, with tensor parallelism and pipelines beside.
 */
import test from 'ava';
import { elementCount } from '../../src/ir/graph.js';
import { localBytes } from '../../src/partition/partition.js';
import { slowTests } from '../selection.js';
import { type Task, type Trained, train } from './compiled-training.js';
import { difference } from './difference.js';
import { gatheredBytes, keptBytes } from './kept-bytes.js';
import { checkCounted, checkLevels, type Degrees, LEVELS, type Level, STEPS, TOLERANCE } from './zero-levels.js';

const slow = slowTests(test.serial);

const CASES: readonly (readonly [task: Task, degrees: Degrees, levels: readonly Level[]])[] = [
  [{ model: 'mlp', microBatches: 2 }, { dp: 2, tp: 2 }, [1, 3]],
];

for (const [task, degrees, levels] of CASES) {
  test.serial(`${task.model} ${JSON.stringify(degrees)}`, (t) => checkLevels(t, task, degrees, levels));
}

slow('without clipping ZeRO 0 and 1 leave the same bits', async (t) => {
  const task: Task = {
    model: 'gpt',
    microBatches: 2,
    training: { optimizer: { kind: 'adam', learningRate: 0.01 } },
  };
  const [whole, cut] = [await train(task, 5, { dp: 2, zero: 0 }), await train(task, 5, { dp: 2, zero: 1 })];
  t.deepEqual(cut.losses, whole.losses);
  t.deepEqual(cut.state, whole.state);
});

slow(
  'the peak falls from level to level by as much as is predicted, in ZeRO 3 to two whole layers at most',
  async (t) => {
    const task: Task = { model: 'gpt', microBatches: 2, training: { optimizer: { kind: 'adam', learningRate: 0.01 } } };
    const peaks: number[] = [];
    let whole = 0;
    for (const zero of LEVELS) {
      const trained: Trained = await train(task, 1, { dp: 4, zero });
      checkCounted(t, trained, `zero ${zero}`);
      peaks.push(...trained.peaks.counted);
      if (zero === 0) whole = keptBytes(trained.lowered).parameter;
      if (zero !== 3) continue;
      // Whole parameters are those of two layers at most.
      const { most, layer } = gatheredBytes(trained.lowered);
      t.true(most > 0);
      t.true(most <= 2 * layer, `${most} B of ${layer} B a layer`);
      // The rank's shard and these are all its parameters; a scalar and tensors that dp does not divide stay whole.
      const { parameter } = keptBytes(trained.lowered);
      t.true(parameter <= whole / 4 + 16, `${parameter} B of ${whole} B`);
    }
    t.deepEqual(
      peaks,
      [...new Set(peaks)].sort((a, b) => b - a),
    );
  },
);

slow('dimensions that dp does not divide are padded, LAMB and its norms with them', async (t) => {
  const task: Task = {
    model: 'cnn',
    microBatches: 2,
    training: { optimizer: { kind: 'lamb', learningRate: 0.01, weightDecay: 0.1, clipNorm: 0.05 } },
  };
  const alone = await train(task, STEPS);
  for (const zero of [1, 3] as const) {
    const { lowered, ...cut } = await train(task, STEPS, { dp: 4, zero });
    t.true(difference(alone.losses, cut.losses) <= TOLERANCE, `zero ${zero}`);
    const padded = lowered.flatMap(({ graph, sharded }) =>
      graph.state.flatMap(({ input }) => {
        const tensor = sharded.tensors.get(input);
        return tensor?.layout.extents && localBytes(tensor) * 4 > 4 * elementCount(tensor.shape) ? [input] : [];
      }),
    );
    t.true(padded.length > 0);
  }
});
