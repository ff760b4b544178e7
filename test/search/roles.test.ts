/**
 * @file Under their roles axes take what they are for, in every candidate of every operator; degrees that a model has nothing for
 * are refused with both values.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../models/families.js';
import { importModel } from '../../src/api/models/import.js';
import { type Training, trainedModel, withTraining } from '../../src/api/models/training.js';
import { importedFor } from '../../src/api/models/training-form.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { isAccumulator } from '../../src/ir/ops/accumulate.js';
import { refuseAbsentFactors, refuseRing, unevenHeads } from '../../src/search/absent-factors.js';
import { candidateSets } from '../../src/search/mesh-problem.js';
import { operatorFactsOf, type RequestedRoles } from '../../src/search/operator-facts.js';
import { innerMesh } from '../../src/sharding-propagation/roles.js';
import { model, node, ramp, saved, tensor, value } from '../ir/model-maker.js';
import { MODELS } from '../pipelines/models.js';

const FOLDER = mkdtempSync(join(tmpdir(), 'autopar-test-'));

/** Tests run side by side: each reads a file of its own. */
let files = 0;

async function imported(name: keyof typeof MODELS): Promise<Graph> {
  const file = join(FOLDER, `${files++}.onnx`);
  writeFileSync(file, writeOnnx(MODELS[name]()));
  return (await importModel(file)).graph;
}

/** For each operator: its families, and the factors that each sub-axis is on in its candidates. */
function placements(graph: Graph, asked: RequestedRoles & { readonly dp?: number; readonly tp?: number }) {
  const mesh = innerMesh(asked);
  const factsOf = operatorFactsOf(graph, asked);
  const cluster = parseCluster('1x8:a100-sxm-80', undefined);
  const sets = candidateSets(graph, mesh, cluster, { axes: 'roles', pinned: new Set(), factsOf });
  return graph.nodes.map((node) => {
    const { factors, place } = factsOf(node).families;
    const on = (axis: string) =>
      sets(node).strategies.map(({ axes }) =>
        Object.keys(axes).filter((factor) => axes[factor]?.some((sub) => sub.split('.')[0] === axis)),
      );
    return { node, factors, place, on };
  });
}

for (const model of ['gpt', 'llama', 'soft-experts', 'moe'] as const) {
  test(`sp lies on the sequence of every operator of ${model} that has one, dp on its batch`, async (t) => {
    const graph = await imported(model);
    const all = placements(graph, { dp: 2, sp: 2, spMethod: 'gather' });
    const having = all.filter(({ factors }) => factors.sequence.size > 0);
    t.true(having.length > graph.nodes.length / 2);
    for (const { node, factors, on } of having) {
      const places = on('sp');
      t.true(places.length > 0);
      const taken = places.every((names) => names.length === 1 && factors.sequence.has(names[0] ?? ''));
      const none = places.every((names) => names.every((name) => !factors.sequence.has(name)));
      // A sequence that the operator cannot shard (a sort along it) is on no candidate.
      t.true(taken || none, node.name);
      if (factors.batch.size > 0 && !none)
        for (const names of on('dp')) t.true(names.length === 1 && factors.batch.has(names[0] ?? ''), node.name);
    }
  });
}

test('with ulysses sp lies on heads in attention, and on the sequence elsewhere', async (t) => {
  const all = placements(await imported('gpt'), { sp: 2, tp: 2, spMethod: 'ulysses' });
  const attention = all.filter(({ node }) => node.op === 'Attention');
  t.is(attention.length, 4);
  for (const { factors, on } of attention) for (const [name = ''] of on('sp')) t.true(factors.heads.has(name));
  const products = all.filter(({ node, place }) => node.op === 'MatMul' && place === 'elsewhere');
  t.true(products.length > 4);
  for (const { factors, on } of products) for (const [name = ''] of on('sp')) t.true(factors.sequence.has(name));
});

for (const model of ['gpt', 'llama', 'moe'] as const) {
  test(`tp is asked to shard norms of ${model} along the sequence, or nothing along it`, async (t) => {
    const graph = await imported(model);
    const norms = placements(graph, { dp: 2, tp: 2, tpSequence: 'on' }).filter(({ place }) => place === 'norm');
    t.true(norms.length >= 2, `${norms.length} norms`);
    for (const { node, factors, on } of norms)
      for (const names of on('tp')) t.true(names.length === 1 && factors.sequence.has(names[0] ?? ''), node.name);
    const all = placements(graph, { dp: 2, tp: 2, tpSequence: 'off' });
    t.true(all.some(({ factors }) => factors.sequence.size > 0));
    for (const { node, factors, on } of all)
      for (const names of on('tp'))
        t.false(
          names.some((name) => factors.sequence.has(name)),
          node.name,
        );
  });
}

test('experts lie on their sub-axes of dp, and the batch on the others', async (t) => {
  const all = placements(await imported('soft-experts'), { dp: 4, ep: 2 });
  const experts = all.filter(({ factors }) => factors.expert.size > 0);
  t.true(experts.some(({ node }) => node.op === 'MatMul'));
  for (const { node, factors, on } of experts)
    for (const names of on('dp')) {
      t.true(
        names.some((name) => factors.expert.has(name)),
        node.name,
      );
      t.true(names.every((name) => factors.expert.has(name) || factors.batch.size === 0 || factors.batch.has(name)));
    }
});

test('gradients of experts may be added up over micro-batches before the ranks beside ep reduce them', async (t) => {
  const file = join(FOLDER, `${files++}.onnx`);
  writeFileSync(file, writeOnnx(MODELS.moe()));
  const training: Training = {
    loss: { kind: 'mse' },
    optimizer: { kind: 'sgd', learningRate: 0.1 },
    microBatches: 2,
  };
  const at = (globalBatch: number) => importModel(file, { ...importedFor(training), globalBatch });
  const { graph } = await trainedModel(await importModel(file, importedFor(training)), training, at);
  const asked = { dp: 4, ep: 2 };
  const mesh = innerMesh(asked);
  const cluster = parseCluster('1x8:a100-sxm-80', undefined);
  const factsOf = operatorFactsOf(graph, asked);
  const sets = candidateSets(graph, mesh, cluster, { axes: 'roles', pinned: new Set(), factsOf });
  const beside = mesh.axes[0]?.subAxes.flatMap(({ name }) => (mesh.experts?.includes(name) ? [] : [name])) ?? [];
  const summed = graph.nodes.filter((each) => isAccumulator(each) && factsOf(each).families.factors.expert.size > 0);
  t.true(summed.length > 0 && beside.length > 0);
  for (const each of summed)
    t.true(
      sets(each).strategies.some(
        ({ axes, partialOperands }) =>
          Object.values(axes).flat().join() === mesh.experts?.join() && partialOperands?.axes.join() === beside.join(),
      ),
      each.name,
    );
});

test('where neither sp nor ep is asked for nothing is a sequence, an expert or a piece', async (t) => {
  const graph = await imported('moe');
  const factsOf = operatorFactsOf(graph);
  for (const node of graph.nodes) {
    const { factors, digits } = factsOf(node).families;
    t.deepEqual([factors.sequence.size, factors.expert.size, Object.keys(digits).length], [0, 0, 0]);
  }
});

const REFUSED: readonly (readonly [
  keyof typeof MODELS,
  Parameters<typeof refuseAbsentFactors>[1][number],
  RegExp,
  string?,
])[] = [
  ['mlp', { sp: 2 }, /--sp 2 shards sequences, and .* has none/],
  ['gpt', { sp: 16 }, /--sp 16 shards sequences, and the longest of .* has 8 positions/],
  ['gpt', { sp: 8 }, /--sp 8 does not divide the 4 heads of .*\ntake --sp 2 or 4, --sp-method ring or /, 'ulysses'],
  [
    'llama',
    { sp: 8 },
    /--sp 8 does not divide the 4 heads of .* \(2 · 2, which share keys\)\ntake --sp 2 or 4, /,
    'ulysses',
  ],
  ['gpt', {}, /--sp-method gather applies to sp above 1, and sp is 1/, 'gather'],
  ['gpt', { ep: 2 }, /--ep 2 shards experts, and .* has none/],
  ['moe', { ep: 3 }, /--ep 3 does not divide the 4 experts of layers\.0\.experts\.\w+\.weight/],
];

for (const [model, degrees, says, method] of REFUSED) {
  test(`refused: ${model} ${JSON.stringify(degrees)} ${method ?? ''}`, async (t) => {
    const graph = await imported(model);
    const error = t.throws(
      () => refuseAbsentFactors(graph, [degrees], method ? { spMethod: method as 'gather' } : {}),
      {
        instanceOf: AutoparError,
      },
    );
    t.regex(`${error.message}\n${error.hint}`, says);
    t.is(error.exit, 'usage');
  });
}

test('a tp that does not divide heads is told with their count and what would do', async (t) => {
  const graph = await imported('llama');
  const [says = ''] = unevenHeads(graph, 8);
  t.regex(says, /^tp 8 does not divide the 4 heads of \S+, .*: tp 2 or 4 shards them evenly, --sp 8 --sp-method ring /);
  t.deepEqual(unevenHeads(graph, 4), []);
});

test('a ring is refused by name where an attention cannot take its keys in chunks, or has fewer than ranks', async (t) => {
  const refused = async (model: keyof typeof MODELS, sp: number) => {
    const graph = await imported(model);
    return t.throws(() => refuseRing(graph, operatorFactsOf(graph, { sp, spMethod: 'ring' }), () => sp), {
      instanceOf: AutoparError,
    }).message;
  };
  t.regex(
    await refused('moe', 2),
    /^--sp-method ring streams chunks of keys .* Attention \S+ needs all of them at once$/,
  );
  t.regex(await refused('grouped-operators', 2), / GroupQueryAttention \S+ needs all of them at once$/);
  t.regex(await refused('encoder-decoder', 5), /--sp 5 is more than the 4 positions of /);
});

test('state-space layers are refused by name', async (t) => {
  const file = join(FOLDER, 'hybrid.onnx');
  const built = generatedModel(
    'hybrid:pattern=M,hidden=16,heads=2,kv_heads=2,state_heads=2,state_width=8,state=8,groups=1,chunk=8,seq=8,vocab=16',
  ).build(2);
  writeFileSync(file, writeOnnx(built, { weights: 'external', name: 'hybrid' }));
  const { graph } = await importModel(file);
  const { message } = t.throws(() => refuseAbsentFactors(graph, [{ sp: 2 }], undefined), { instanceOf: AutoparError });
  t.regex(message, /^--sp 2 shards sequences, and CumSum \/layers\.0\/\S+ of a state-space layer passes a state/);
});

test('the sequence of patches is that of attention', async (t) => {
  const file = join(FOLDER, 'vit.onnx');
  const built = generatedModel('vit:layers=1,hidden=16,heads=2,image=32,patch=16').build(2);
  writeFileSync(file, writeOnnx(built, { weights: 'external', name: 'vit' }));
  const { graph } = await importModel(file);
  t.notThrows(() => refuseAbsentFactors(graph, [{ sp: 2 }], undefined));
});

test('an operator whose windows reach over whole shards of its batch is looked at whole', async (t) => {
  // The gradient of a part of the rows is padded to all of them: no shard reaches from there to its neighbour's.
  const bounds = [0, 2, 4, 6, 8];
  const parts = bounds.slice(1).map((end, index) => ({ name: `part${index}`, from: bounds[index] ?? 0, end }));
  const file = await saved(
    model({
      node: [
        node('MatMul', ['x', 'w'], ['h']),
        ...parts.flatMap(({ name, from, end }) => [
          node('Slice', ['h', `at${from}`, `at${end}`, 'at0'], [name]),
          node('ReduceMean', [name, 'at0'], [`${name}.mean`], { keepdims: 1 }),
        ]),
        node(
          'Concat',
          parts.map(({ name }) => `${name}.mean`),
          ['y'],
          { axis: 0 },
        ),
      ],
      initializer: [ramp('w', [4, 4]), ...bounds.map((at) => tensor(`at${at}`, [1], [at], 'int64'))],
      input: [value('x', [8, 4])],
      output: [value('y', [4, 4])],
    }),
  );
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 0.1 } } as const;
  const { graph } = withTraining(await importModel(file, importedFor({})), training);
  const padded = placements(graph, { dp: 2 }).filter(({ node: { op } }) => op === 'Pad');
  t.true(padded.length > 0);
  for (const { on } of padded) t.true(on('dp').some((factors) => factors.length === 0));
});
