/**
 * @file Operators of a pipeline whose stages run on unlike devices: explained at the price of their stage, as reports have it.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile, explainOperator, openExplainable } from '../../../src/api/index.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

const CLUSTER = join(folder, 'mixed.yaml');
writeFileSync(
  CLUSTER,
  `version: 1
device: h100-sxm-80
levels:
  - {name: node, size: 2, bandwidth: 450GB/s}
  - {name: network, size: 2, bandwidth: 25GB/s}
nodes:
  - {count: 1}
  - {count: 1, device: v100-sxm2-32}
`,
);

test('an operator costs what it takes on the devices of its stage, and so do its alternatives', async (t) => {
  const microBatches = 4;
  const { mostExpensive } = await compile({
    ...{ model: 'models/mlp.onnx', output: join(folder, 'plan'), cluster: CLUSTER, planOnly: true, globalBatch: 4096 },
    degrees: { pp: 2, dp: 1, tp: 2 },
    training: { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 }, microBatches },
  });
  const { explainable } = await openExplainable(join(folder, 'plan'));
  const stages = new Map<number, number>();
  for (const { operator, op, count, seconds } of mostExpensive) {
    if (op !== 'MatMul') continue;
    const { computeSeconds, places, alternatives } = explainOperator(explainable, operator);
    const [{ stage } = { stage: -1 }] = places;
    t.true(Math.abs(computeSeconds - seconds / (count * microBatches)) < 1e-9, `${operator} on stage ${stage}`);
    const [own] = alternatives.filter(({ differenceSeconds }) => differenceSeconds === 0);
    t.true(own !== undefined && own.seconds >= computeSeconds && own.seconds < 2 * computeSeconds);
    const replicated = alternatives.find(({ strategy }) => Object.keys(strategy.axes).length === 0);
    stages.set(stage, replicated?.seconds ?? Number.NaN);
  }
  t.deepEqual([...stages.keys()].sort(), [0, 1]);
  t.true((stages.get(0) ?? 0) < (stages.get(1) ?? 0), 'alternatives are faster on the faster stage');
});
