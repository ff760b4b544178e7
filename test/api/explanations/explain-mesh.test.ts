/**
 * @file `explain --mesh` of pipelines: the axes of one stage's ranks, their stages among them, as the prediction counts bytes.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { type CompileOptions, compile, explainMesh, openExplainable } from '../../../src/api/index.js';
import { axesOfStages } from '../../../src/api/reports/mesh-axes.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

async function planned(name: string, options: Partial<CompileOptions>) {
  const output = join(folder, name);
  const { plan } = await compile({
    ...{ model: 'models/mlp.onnx', output, planOnly: true, globalBatch: 64 },
    training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, microBatches: 4 },
    ...options,
  });
  const { explainable } = await openExplainable(output);
  const { stages = [], stageSchedule, cluster } = explainable;
  return {
    plan,
    axes: explainMesh(explainable),
    all: stageSchedule ? axesOfStages(stages, stageSchedule, cluster) : [],
  };
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

test('a pipeline has the axes of the stage whose ranks send most, and the stages as one of them', async (t) => {
  const degrees = { pp: 2, dp: 1, tp: 2 };
  const { plan, axes, all } = await planned('pipeline', { cluster: '2x2:a100-sxm-80', degrees });
  const { receivedBytes = [], stepSeconds } = plan.predicted;
  const sent = all.map((own) => sum(own.map(({ sentBytes }) => sentBytes)));
  // What one stage sends another one receives.
  t.is(sum(sent), sum(receivedBytes));
  t.is(sum(axes.map(({ sentBytes }) => sentBytes)), Math.max(...sent));
  t.deepEqual(
    axes.map(({ axis, stage, ranks, levels }) => [axis, stage, ranks, levels.map(({ level }) => level)]),
    [
      ['tp', sent.indexOf(Math.max(...sent)), 2, ['node']],
      ['pp', sent.indexOf(Math.max(...sent)), 2, ['network']],
    ],
  );
  for (const { sentBytes, seconds } of axes) t.true(sentBytes > 0 && seconds > 0 && seconds < stepSeconds);
});

test('stages with meshes of their own are all shown, each with what it sends to others', async (t) => {
  const { axes, plan } = await planned('meshes', {
    cluster: '1x4:a100-sxm-80',
    degrees: { pp: 2 },
    meshes: 'tp2 | dp2',
  });
  t.deepEqual(
    axes.map(({ axis, stage }) => [axis, stage]),
    [
      ['tp of stage 0', 0],
      ['pp of stage 0', 0],
      ['dp of stage 1', 1],
      ['pp of stage 1', 1],
    ],
  );
  t.is(sum(axes.map(({ sentBytes }) => sentBytes)), sum(plan.predicted.receivedBytes ?? []));
});
