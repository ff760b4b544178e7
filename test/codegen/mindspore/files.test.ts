/**
 * @file The MindSpore target: compiling with its configuration gives the plan back, its strategy files agree, its tables name
 * every rank once.
 */
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile, type Training } from '../../../src/api/index.js';
import { readParallelConfig } from '../../../src/api/requests/annotations.js';
import { diffStrategies, mergeStrategies } from '../../../src/api/strategy.js';
import { readPlan } from '../../../src/strategy/plan-json.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test.serial);

const folder = mkdtempSync(join(tmpdir(), 'autopar-mindspore-'));
const training: Training = {
  loss: { kind: 'cross_entropy' },
  optimizer: { kind: 'sgd', momentum: 0.9, learningRate: 0.1 },
};
const MODEL = { model: 'models/gpt-tiny.onnx', globalBatch: 8, planOnly: true } as const;

interface RankTable {
  readonly server_count: string;
  readonly server_list: readonly {
    readonly device: readonly { readonly rank_id: string; readonly device_id: string }[];
  }[];
}

slow('a pipeline of training: the configuration and the strategies give the plan back', async (t) => {
  const output = join(folder, 'pipeline');
  const options = { pp: 2, dp: 2, tp: 2, axes: 'roles', zero: 1, recompute: 'full', schedule: '1f1b' } as const;
  const micro = { ...training, microBatches: 4, gradientReduction: 'sum' } as const;
  await compile({ ...MODEL, ...options, training: micro, devices: 8, output, target: 'mindspore' });
  const at = (name: string) => join(output, 'mindspore', name);
  const config = await readParallelConfig(at('parallel.yaml'));
  t.is(config.strategyLoadFile, './strategy.ckpt');
  const again = join(folder, 'again');
  await compile({
    ...MODEL,
    training,
    devices: 8,
    config: { ...config, strategyLoadFile: at('strategy.ckpt') },
    output: again,
  });
  const [first, second] = await Promise.all([output, again].map((name) => readPlan(join(name, 'plan.json'))));
  t.deepEqual(second?.degrees, first?.degrees);
  for (const plan of [first, second]) t.deepEqual([plan?.schedule.kind, plan?.schedule.microBatches], ['1f1b', 4]);
  t.deepEqual([second?.requested?.zero, second?.requested?.recompute], [1, 'full']);
  for (const plan of [first, second]) t.is(plan?.training?.gradientReduction, 'sum');
  const merged = join(folder, 'merged.ckpt');
  await mergeStrategies(
    [0, 1].map((stage) => at(`strategy_stage_${stage}.ckpt`)),
    merged,
  );
  for (const other of [merged, at('strategy.json')])
    t.deepEqual((await diffStrategies(at('strategy.ckpt'), other)).operators, [], other);
  t.is(readFileSync(at('ranks.csv'), 'utf8').split('\n')[6], '5,0,5,1,0,1');
});

test.serial('a plan without a program has its strategy files, and the README says what they lack', async (t) => {
  const output = join(folder, 'plan');
  const cluster = '2x2:v100-sxm2-32';
  const { notes } = await compile({ ...MODEL, dp: 2, tp: 2, axes: 'roles', cluster, output, target: 'mindspore' });
  const at = (name: string) => join(output, 'mindspore', name);
  const readme = readFileSync(at('README.md'), 'utf8');
  t.regex(readme, /c_attn\.weight is \[-, \(3 \| 32:tp\)\], in pieces/);
  t.true(notes.some((note) => note.includes('mindspore/README.md')));
  const table = JSON.parse(readFileSync(at('rank_table_4pcs.json'), 'utf8')) as RankTable;
  t.is(table.server_count, '2');
  t.deepEqual(
    table.server_list.map(({ device }) => device.map(({ rank_id }) => Number(rank_id))),
    [
      [0, 1],
      [2, 3],
    ],
  );
});
