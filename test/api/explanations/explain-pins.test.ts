/**
 * @file The cost of pins, compared with planning again with each of them (larger models: explain-pins.slow.ts).
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile } from '../../../src/api/compile.js';
import { explainPins } from '../../../src/api/explanations/explain-pins.js';
import { openReplanning } from '../../../src/api/planning/replan.js';
import { readAnnotations, writeAnnotations } from '../../../src/api/requests/annotations.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { candidatesOf } from '../../../src/search/candidates.js';
import { operatorFactsOf } from '../../../src/search/operator-facts.js';
import { placementKey } from '../../../src/search/pin-prices.js';
import { makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { factorsOf } from '../../../src/strategy/plan-pins.js';
import { differences, explained } from '../pin-replans.js';

const CLUSTER = '1x4:a100-sxm-80';
const MODEL = join('models', 'mlp.onnx');

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-pins-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return join(made, 'x');
}

test('the price of a pin is the cost of planning with it, and no other pin on the operator costs less', async (t) => {
  const degrees = { dp: 2, tp: 2 };
  const all = await explained({ model: MODEL, cluster: CLUSTER, degrees, output: folder(t) });
  t.true(all.found.operators.length >= 8);
  t.deepEqual(await differences(all), []);
  for (const { alone } of all.found.operators) t.is(alone.seconds, alone.atLeastSeconds);
  const { imported } = await openReplanning(
    (await compile({ model: MODEL, cluster: CLUSTER, degrees, axes: 'roles', planOnly: true, output: folder(t) }))
      .directory,
  );
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  const [dearest] = all.found.operators;
  const node = imported.graph.nodes.find(({ name }) => name === dearest?.operator);
  if (!dearest || !node) throw new Error('no operator');
  const { strategies } = candidatesOf({
    ...operatorFactsOf(imported.graph)(node),
    mesh,
    cluster: parseCluster(CLUSTER, undefined),
    axes: 'roles',
    pinned: new Set(['dp', 'tp']),
  });
  const placements = new Map(strategies.map((strategy) => [placementKey(strategy), strategy]));
  const costs: number[] = [];
  for (const strategy of placements.values()) {
    const factors = factorsOf(imported.graph, { node, strategy });
    costs.push((await all.again([{ match: { node: node.name }, factors }])) - all.nanoseconds);
  }
  costs.sort((a, b) => a - b);
  t.is(costs[0], 0);
  t.is(costs[1], Math.round((dearest.alone.seconds ?? Number.NaN) * 1e9));
});

test('what each pin that there is costs is what planning without it saves', async (t) => {
  const output = folder(t);
  // They are read again from their file.
  const file = join(dirname(output), 'pins.yaml');
  const text = await writeAnnotations({
    version: 1,
    pins: [
      { match: { node: '/fc0/MatMul' }, factors: { k: 'tp' } },
      { match: { node: '/fc1/MatMul' }, factors: { n: 'tp' } },
    ],
  });
  writeFileSync(file, text);
  const given = { model: MODEL, cluster: CLUSTER, degrees: { tp: 2 }, planOnly: true, force: true } as const;
  const cost = async (more: Partial<Parameters<typeof compile>[0]>) =>
    (await compile({ ...given, output: folder(t), ...more })).plan.predicted.stepSeconds;
  const read = await readAnnotations(file);
  const pinned = await cost({ annotations: read, output });
  const { pins } = await explainPins(output);
  t.is(pins.length, 4);
  const saved = (begins: string | null) =>
    pins.find(({ pin }) => (begins === null ? pin === null : pin?.startsWith(begins)))?.savedSeconds;
  const without = (kept: number) => ({ ...read, pins: [read.pins[kept] as (typeof read.pins)[number]] });
  const near = (said: number | undefined, seconds: number) =>
    t.is(Math.round((said ?? Number.NaN) * 1e9), Math.round((pinned - seconds) * 1e9));
  near(saved('pins[0]'), await cost({ annotations: without(1) }));
  near(saved('pins[1]'), await cost({ annotations: without(0) }));
  near(saved('tp=2'), await cost({ annotations: read, degrees: {} }));
  near(saved(null), await cost({ degrees: {} }));
  for (const [index, { savedSeconds }] of pins.entries())
    t.true(savedSeconds <= (pins[index - 1]?.savedSeconds ?? Infinity));
});
