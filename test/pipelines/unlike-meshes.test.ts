/**
 * @file Pipelines whose stages have other meshes than one another: they train as one rank does, ranks count the bytes and the
 * memory that are predicted, and meshes that cannot be are refused.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { openExplainable } from '../../src/api/explanations/explain-compiled.js';
import { explainOperator } from '../../src/api/explanations/explain-operator.js';
import { processGroups } from '../../src/api/groups.js';
import { type CompileOptions, compile } from '../../src/api/index.js';
import { lowerPlan } from '../../src/api/planning/lower-plan.js';
import { compiledCommunication } from '../../src/api/reports/rank-communication.js';
import { openCompiled } from '../../src/api/verify.js';
import { mindSporeStrategy } from '../../src/strategy/mindspore/export.js';
import { placePlan } from '../../src/strategy/placed-operators.js';
import { EVERYTHING } from '../selection.js';
import { type Pipeline, type Task, train } from './compiled-training.js';
import { worstDifference } from './difference.js';
import { writeModel } from './models.js';

const TOLERANCE = 1e-5;
const STEPS = 5;

const CASES: readonly (readonly [task: Task, pipeline: Pipeline])[] = [
  [
    { model: 'gpt', microBatches: 2 },
    { kind: 'zero-bubble', stages: 2, meshes: 'tp2 | dp2' },
  ],
  [
    { model: 'skips', microBatches: 4 },
    { kind: '1f1b', stages: 4, meshes: 'tp2 | dp2 | tp2 | dp2' },
  ],
  [
    { model: 'encoder-decoder', microBatches: 4 },
    { kind: 'interleaved-1f1b', stages: 2, chunks: 2, meshes: 'dp2 | sp2' },
  ],
];

for (const [task, pipeline] of EVERYTHING ? CASES : CASES.slice(1, 2)) {
  test.serial(`${task.model} ${JSON.stringify(pipeline)}`, async (t) => {
    const alone = await train(task, STEPS);
    const staged = await train(task, STEPS, pipeline);
    t.is(new Set(staged.program.stages.map(({ mesh }) => JSON.stringify(mesh))).size, 2);
    t.log(`worst ${worstDifference(alone, staged).toExponential(1)}`);
    t.true(worstDifference(alone, staged) <= TOLERANCE);
    t.deepEqual(staged.peaks.counted, staged.peaks.predicted);
  });
}

test('meshes that stages cannot have are refused with both values', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  const refused = async (options: Partial<CompileOptions>) => {
    const output = join(folder, 'out');
    const error = await t.throwsAsync(compile({ model: 'models/mlp.onnx', globalBatch: 16, output, ...options }));
    return `${(error as { code?: string }).code}: ${error?.message}`;
  };
  try {
    t.is(
      await refused({ meshes: 'tp2 | dp3' }),
      'bad-meshes: meshes "tp2 | dp3": stage 0 has 2 devices, stage 1 has 3',
    );
    t.is(
      await refused({ meshes: 'dp2 tp3 | dp3 tp2' }),
      'bad-meshes: meshes "dp2 tp3 | dp3 tp2": stage 0 (dp 2 · tp 3) has 2 groups of ranks where stage 1 (dp 3 · tp ' +
        '2) has 3, and neither divides the other',
    );
    t.is(await refused({ meshes: 'tp2 | dp2', pp: 4 }), 'bad-meshes: meshes "tp2 | dp2" has 2 stages, and pp is 4');
    t.is(
      await refused({ meshes: 'tp2 | dp2', tp: 2 }),
      'bad-meshes: meshes "tp2 | dp2" sets tp of each stage, and tp is also set to 2',
    );
    t.is(
      await refused({ meshes: 'dp2 | sp2', sp: 2 }),
      'bad-meshes: meshes "dp2 | sp2" sets sp of each stage, and sp is also set to 2',
    );
    t.is(
      await refused({ meshes: 'dp2 ep4 | tp2' }),
      'bad-meshes: meshes "dp2 ep4 | tp2": "dp2 ep4" has experts on 4 ranks, which does not divide dp · sp = 2',
    );
    t.regex(await refused({ meshes: 'dp2 | sp2' }), /^degree-does-not-fit: sp: 2 shards sequences, and .* has none/);
    t.is(
      await refused({ model: 'models/gpt-tiny.onnx', meshes: 'tp2 | dp2', spMethod: 'ring' }),
      'bad-option: spMethod ring applies to sp above 1, and sp is 1',
    );
    t.is(
      await refused({ meshes: 'tp2 | dp2', devices: 8 }),
      'bad-meshes: meshes "tp2 | dp2": stage 0 (tp 2) has 2 devices, not 4',
    );
    t.is(await refused({ meshes: 'tp32 | dp32' }), 'dp-does-not-divide-batch: dp 32 does not divide the batch of 16');
    for (const text of ['', 'tp2', 'tp2 |', 'x2 | dp2', 'dp2dp2 | tp4', 'dp0 | tp2', 'tp9999999 | dp2'])
      t.regex(await refused({ meshes: text }), /^bad-meshes: /, text);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('experts lie on ranks of the stages that say so, in plan, program and groups', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const [model, output] = [join(folder, 'experts.onnx'), join(folder, 'out')];
    writeModel('soft-experts', model);
    const { plan } = await compile({ model, output, meshes: 'tp2 | dp2 ep2', verify: true });
    t.deepEqual(
      plan.meshes?.map((axes) => axes.map(({ axis, size }) => `${axis} ${size}`).join()),
      ['dp 1,tp 2', 'dp 2,tp 1,ep 2'],
    );
    const { degrees, order, stages } = await compiledCommunication(output, 2);
    t.deepEqual(processGroups(degrees, order, stages).groups.ep, [[0], [1], [2, 3]]);
    const { lowered } = lowerPlan(plan, (await openCompiled(output)).planned.graph);
    const exchanges = lowered.map(({ sharded }) =>
      sharded.nodes.some((node) => node.kind === 'communicate' && node.collective.kind === 'all-to-all'),
    );
    t.deepEqual(exchanges, [false, true]);
    const other = { model, output: join(folder, 'other'), meshes: 'dp2 ep2 | tp2', stages: 'E t | u t u H' };
    t.is((await t.throwsAsync(compile(other)))?.message, 'meshes gives stage 0 ep 2, and the stage has no experts');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('groups, explanations and MindSpore files are of the mesh of each stage', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const output = join(folder, 'out');
    const meshes = 'dp2 tp2 | tp4';
    const { plan } = await compile({ model: 'models/gpt-tiny.onnx', globalBatch: 8, output, meshes });
    t.deepEqual(
      plan.meshes?.map((axes) => axes.map(({ size }) => size)),
      [
        [2, 2],
        [1, 4],
      ],
    );
    const { degrees, order, stages } = await compiledCommunication(output, 5);
    const { groups } = processGroups(degrees, order, stages);
    t.deepEqual(groups.tp, [
      [0, 1],
      [2, 3],
      [4, 5, 6, 7],
    ]);
    t.deepEqual(groups.dp, [[0, 2], [1, 3], [4], [5], [6], [7]]);
    t.deepEqual(groups.pp, [
      [0, 4],
      [1, 5],
      [2, 6],
      [3, 7],
    ]);
    const { explainable } = await openExplainable(output);
    const axesOf = (operator: string) => Object.values(explainOperator(explainable, operator).strategy.axes).flat();
    t.deepEqual(axesOf('/h.0/mlp/c_fc/MatMul').toSorted(), ['dp', 'tp']);
    t.deepEqual(axesOf('/h.1/mlp/c_fc/MatMul'), ['tp']);
    const { planned } = await openCompiled(output);
    const { document } = mindSporeStrategy(planned.graph, placePlan(plan, planned.graph));
    const splitsOf = (weight: string) =>
      [...document.operators].find(([key]) => key.includes(weight) && key.includes('MatMul'))?.[1].splits;
    t.deepEqual(splitsOf('h.0.mlp.c_fc.weight'), [
      [2, 1, 1],
      [1, 2],
    ]);
    t.deepEqual(splitsOf('h.1.mlp.c_fc.weight'), [
      [1, 1, 1],
      [1, 4],
    ]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
