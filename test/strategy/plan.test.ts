/**
 * @file plan.json: back and forth without loss, byte for byte the same, and every way to spoil it answered.
 */
import { mkdtemp, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph } from '../../src/ir/graph.js';
import { plan as search } from '../../src/search/plan.js';
import { assignmentOf } from '../../src/strategy/assignment-of.js';
import { checkFingerprint } from '../../src/strategy/fingerprint.js';
import type { Plan } from '../../src/strategy/plan.js';
import { planFromJson, planToJson, readPlan } from '../../src/strategy/plan-json.js';
import { planOf } from '../../src/strategy/plan-of.js';
import { convGraph, llamaGraph, mlpGraph, SMALL_LLAMA } from '../search/small-graphs.js';

const FINGERPRINT = '0123456789abcdef'.repeat(4);

async function planned(graph: Graph, text: string, degrees: { dp: number; tp: number }) {
  const cluster = parseCluster(text, degrees.dp * degrees.tp);
  const found = await search(graph, cluster, { degrees });
  const model = { graph, name: graph.name, fingerprint: FINGERPRINT, dims: { batch: 2 }, globalBatch: null };
  return { found, plan: planOf(found, { ...model, passes: [{ name: 'fold', options: { limit: 65536 } }] }, cluster) };
}

for (const [name, graph] of [
  ['mlp', mlpGraph(8, 64, 256, 3)],
  ['llama', llamaGraph({ ...SMALL_LLAMA, layers: 4 })],
  ['convolutions', convGraph(4)],
] as const) {
  for (const degrees of [
    { dp: 1, tp: 2 },
    { dp: 2, tp: 2 },
    { dp: 1, tp: 4 },
  ]) {
    test(`a plan gives back the assignment that it was made from: ${name} ${JSON.stringify(degrees)}`, async (t) => {
      for (const cluster of ['local', `1x${degrees.dp * degrees.tp}:h100-sxm-80`]) {
        const { found, plan } = await planned(graph, cluster, degrees);
        const read = planFromJson(planToJson(plan), 'plan.json');
        t.deepEqual(read, plan);
        const { assignment } = found;
        const again = assignmentOf(read, graph);
        t.deepEqual(again.mesh, assignment.mesh);
        t.deepEqual(new Map(again.strategies), new Map(assignment.strategies));
        t.deepEqual(new Map(again.inputs), new Map(assignment.inputs));
        const byTensor = (views: typeof assignment.sharedReshards) => new Map(views.map((view) => [view.tensor, view]));
        t.deepEqual(byTensor(again.sharedReshards), byTensor(assignment.sharedReshards));
        t.is(
          planToJson(planOf({ ...found, assignment: again }, modelOf(graph, plan), parseClusterOf(plan))),
          planToJson(plan),
        );
      }
    });
  }
}

test('repeated layers are spelt out once', async (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, layers: 6 });
  const { plan } = await planned(graph, '1x2:h100-sxm-80', { dp: 1, tp: 2 });
  const [largest] = [...plan.layerClasses].sort((a, b) => b.instances.length - a.instances.length);
  t.true((largest?.instances.length ?? 0) >= 4);
  t.true(Object.keys(plan.operators).length < graph.nodes.length / 1.8);
  t.falsy(plan.operators[`${largest?.instances[1]}.q`]);
});

test('keys are sorted and nothing depends on when or where', async (t) => {
  const make = async () => planToJson((await planned(mlpGraph(8, 64, 256), 'local', { dp: 2, tp: 1 })).plan);
  const text = await make();
  t.is(text, await make());
  t.true(text.endsWith('}\n'));
  const keys = Object.keys(JSON.parse(text));
  t.deepEqual(keys, [...keys].sort());
});

test('a spoilt plan is refused with the place and the remedy', async (t) => {
  const { plan } = await planned(mlpGraph(8, 64, 256), 'local', { dp: 1, tp: 2 });
  const text = planToJson(plan);
  const refuse = (spoilt: string) =>
    t.throws(() => planFromJson(spoilt, 'DIR/plan.json'), { instanceOf: AutoparError });
  const edit = (change: (value: Record<string, unknown>) => void) => {
    const value = JSON.parse(text) as Record<string, unknown>;
    change(value);
    return refuse(JSON.stringify(value));
  };
  const cases = [
    [refuse(text.slice(0, text.length / 2)), 'plan-not-json', 'not JSON'],
    [refuse(''), 'plan-not-json', 'empty'],
    [refuse('{}'), 'plan-invalid', 'autopar-plan'],
    [refuse('[]'), 'plan-invalid', 'not a plan'],
    [edit((value) => Object.assign(value, { version: 3 })), 'plan-newer', 'version 3'],
    [edit((value) => Object.assign(value, { degrees: { dp: 1 } })), 'plan-invalid', 'degrees must have'],
    [edit((value) => Object.assign(value, { colour: 'red' })), 'plan-invalid', 'colour'],
    [edit((value) => Object.assign(value, { operators: { a: { stage: 'x' } } })), 'plan-invalid', 'operators.a'],
  ] as const;
  for (const [error, code, words] of cases) {
    t.is(error?.code, code);
    t.is(error?.exit, 'input');
    t.true(error?.message.includes(words), error?.message);
    t.is(error?.where.file, 'DIR/plan.json');
    t.truthy(error?.hint);
  }
});

test('a plan file that is not there is named', async (t) => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'autopar-plan-'));
  const file = path.join(folder, 'plan.json');
  const missing = await t.throwsAsync(() => readPlan(file), { instanceOf: AutoparError });
  t.is(missing?.code, 'plan-missing');
  t.is(missing?.where.file, file);
  const { plan } = await planned(mlpGraph(8, 64, 256), 'local', { dp: 1, tp: 2 });
  await writeFile(file, planToJson(plan));
  t.deepEqual(await readPlan(file), plan);
  const within = await t.throwsAsync(() => readPlan(path.join(file, 'plan.json')), { instanceOf: AutoparError });
  t.is(within?.message, 'cannot read the plan: a part of the path is a file, not a folder');
});

test('an edited plan that no longer fits the model is refused with the operator or tensor', async (t) => {
  const graph = mlpGraph(8, 64, 256);
  const { plan } = await planned(graph, 'local', { dp: 1, tp: 2 });
  const refuse = (change: Partial<Plan>) =>
    t.throws(() => assignmentOf({ ...plan, ...change }, graph), { instanceOf: AutoparError });
  const up = plan.operators['layers.0.up'];
  const without = Object.fromEntries(Object.entries(plan.operators).filter(([name]) => name !== 'layers.0.up'));
  const cases = [
    [refuse({ operators: without }), 'plan-incomplete', 'layers.0.up'],
    [refuse({ operators: { ...plan.operators, ...(up ? { other: up } : {}) } }), 'plan-incomplete', 'other'],
    [
      refuse({
        operators: { ...plan.operators, 'layers.0.up': { stage: 0, strategy: { q: ['tp'] }, recompute: false } },
      }),
      'plan-illegal',
      'no such factor',
    ],
    [refuse({ tensors: { ...plan.tensors, 'layers.0.up': '[tp, -]' } }), 'plan-contradicts-itself', '[tp, -]'],
    [refuse({ redistributions: { x: [{ readers: ['y:0'], layout: '[-, -]', steps: [] }] } }), 'plan-incomplete', 'y:0'],
    [
      refuse({ redistributions: { x: [{ readers: ['layers.0.up:0'], layout: '[-]', steps: [] }] } }),
      'plan-illegal',
      'dimensions',
    ],
  ] as const;
  for (const [error, code, words] of cases) {
    t.is(error?.code, code);
    t.true(error?.message.includes(words), error?.message);
  }
});

test('a plan for another model says what differs', async (t) => {
  const { plan } = await planned(mlpGraph(8, 64, 256), 'local', { dp: 1, tp: 2 });
  const same = { name: plan.model.name, fingerprint: FINGERPRINT, dims: plan.model.dims };
  t.notThrows(() => checkFingerprint(plan, same));
  const other = { ...same, fingerprint: 'f'.repeat(64), file: 'model.onnx' };
  const refuse = (imported: typeof other) =>
    t.throws(() => checkFingerprint(plan, imported), { instanceOf: AutoparError });
  t.regex(refuse(other)?.message ?? '', /operators, shapes or constants differ/);
  t.regex(refuse({ ...other, dims: { batch: 4 } })?.message ?? '', /dimension batch is 4, not 2/);
  t.is(refuse(other)?.code, 'model-changed');
  t.deepEqual(refuse(other)?.where, { file: 'model.onnx' });
});

function modelOf(graph: Graph, plan: Plan) {
  return { graph, ...plan.model, passes: plan.passes };
}

function parseClusterOf(plan: Plan) {
  return { nodes: plan.cluster.nodes, perNode: plan.cluster.perNode, device: { id: plan.cluster.device } };
}
