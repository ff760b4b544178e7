/**
 * @file Pipelines whose stages have unlike meshes against one rank: losses over some steps with clipping active, weights and
 * momentum after the first, the counted peak of memory the predicted one; under every schedule, with skips over a stage of
 * another mesh and tied tables.
 */
import test from 'ava';
import { shortened, thinned } from '../selection.js';
import { alone, type Pipeline, type Task, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';

const TOLERANCE = 1e-5;
const STEPS = shortened(20);

const CASES: readonly (readonly [model: Task['model'], microBatches: number, pipeline: Pipeline])[] = [
  ['gpt', 4, { kind: '1f1b', stages: 2, meshes: 'tp2 | dp2' }],
  ['gpt', 2, { kind: 'zero-bubble', stages: 2, meshes: 'dp2 tp2 | tp4' }],
  ['gpt', 2, { kind: 'f-then-b', stages: 2, meshes: 'tp4 | dp4' }],
  ['gpt', 2, { kind: '1f1b', stages: 3, meshes: 'dp2 tp2 | tp4 | dp4' }],
  ['gpt', 4, { kind: 'interleaved-zero-bubble', stages: 2, chunks: 2, meshes: 'tp2 | dp2' }],
  ['skips', 4, { kind: '1f1b', stages: 4, meshes: 'tp2 | dp2 | tp2 | dp2' }],
  ['skips', 2, { kind: 'zbv', stages: 3, chunks: 2, meshes: 'dp2 | tp2 | dp2' }],
  ['encoder-decoder', 4, { kind: 'zero-bubble', stages: 3, meshes: 'tp2 | dp2 | tp2' }],
  ['shared-layer', 4, { kind: '1f1b', stages: 3, meshes: 'dp2 | tp2 | dp2' }],
  ['mlp', 8, { kind: '1f1b', stages: 3, meshes: 'tp2 | tp2 | dp2' }],
  ['gpt', 4, { kind: '1f1b', stages: 2, meshes: 'tp2 sp2 | dp4' }],
  ['gpt', 2, { kind: 'zero-bubble', stages: 2, meshes: 'sp2 | dp2', spMethod: 'ring' }],
  ['llama', 2, { kind: '1f1b', stages: 2, meshes: 'dp2 | sp2', spMethod: 'ulysses' }],
  ['soft-experts', 2, { kind: '1f1b', stages: 2, meshes: 'tp2 | dp2 ep2' }],
  ['routed-experts', 2, { kind: '1f1b', stages: 2, meshes: 'dp2 sp2 ep4 | sp4' }],
];

for (const [model, microBatches, pipeline] of thinned(CASES, 3))
  test.serial(`${model} in ${microBatches} ${JSON.stringify(pipeline)}`, async (t) => {
    const task = { model, microBatches };
    const [one, all] = [await alone(task, STEPS), await train(task, STEPS, pipeline)];
    const worst = [worstDifference(one.first, all.first), difference(one.losses, all.losses)];
    t.log(worst.map((each) => each.toExponential(1)).join(' '));
    t.deepEqual(all.peaks.counted, all.peaks.predicted);
    t.true(Math.max(...worst) <= TOLERANCE);
  });
