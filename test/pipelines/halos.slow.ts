/**
 * @file Images sharded in space train as one rank does: losses over some steps, every gradient, weights, momentum and running
 * statistics; counted bytes and the counted peak are the predicted ones, and halos are exchanged.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile, readParallelConfig, verify } from '../../src/api/index.js';
import { openCompiled } from '../../src/api/verify.js';
import { shortened } from '../selection.js';
import { alone, type Pipeline, type Task, train } from './compiled-training.js';
import { difference, worstDifference } from './difference.js';
import { writeModel } from './models.js';

/** Relative to the largest element of a tensor. */
const TOLERANCE = 1e-5;
const STEPS = shortened(20);

const DEGREES: readonly Pipeline[] = [
  { stages: 1, sp: 2 },
  { stages: 1, sp: 4 },
  { stages: 1, dp: 2, sp: 2 },
  { stages: 1, sp: 2, tp: 2 },
];

const TASKS: readonly Task[] = [
  { model: 'resnet', microBatches: 1 },
  { model: 'u-net', microBatches: 1 },
];

for (const task of TASKS)
  for (const degrees of DEGREES)
    test.serial(`${task.model} ${JSON.stringify(degrees)}`, async (t) => {
      const [one, all] = [await alone(task, STEPS), await train(task, STEPS, degrees)];
      const worst = [worstDifference(one.first, all.first), difference(one.losses, all.losses)];
      const exchanged = all.lowered.flatMap(({ sharded }) =>
        sharded.nodes.filter((node) => node.kind === 'communicate' && node.collective.kind === 'permute'),
      );
      t.log(`${worst.map((each) => each.toExponential(1)).join(' ')}, ${exchanged.length} exchanges of borders`);
      t.true(Math.max(...worst) <= TOLERANCE);
      t.true(exchanged.length > 0);
      t.deepEqual(all.peaks.counted, all.peaks.predicted);
      t.deepEqual(all.sent.counted, all.sent.predicted);
    });

const IMAGES = [
  { cuts: 'height', strategy: [1, 1, 2, 1], shard: [8, 2, 8, 12] },
  { cuts: 'width', strategy: [1, 1, 1, 2], shard: [8, 2, 16, 6] },
];

for (const { cuts, strategy, shard } of IMAGES)
  test.serial(`dataset_strategy that cuts ${cuts} has each rank read its part, and borders exchanged`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    t.teardown(() => rmSync(folder, { recursive: true }));
    const [model, config, output] = ['u-net.onnx', 'parallel.yaml', 'out'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    writeModel('u-net', model);
    const lines = [
      'parallel:',
      `  dataset_strategy: ${JSON.stringify([strategy])}`,
      'parallel_config:',
      '  model_parallel: 2',
      '',
    ];
    writeFileSync(config, lines.join('\n'));
    await compile({ model, config: await readParallelConfig(config), output, devices: 2, complete: 'propagate' });
    const { program } = await openCompiled(output);
    const [stage] = program.stages;
    t.deepEqual(stage?.tensors['image']?.localShape, shard);
    const borders = Object.values(stage?.tensors ?? {}).filter(({ border }) => border !== undefined);
    t.true(borders.length > 0);
    t.true((await verify({ directory: output })).passed);
  });
