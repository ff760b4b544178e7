/**
 * @file The work read off model files, whose attention is written operator by operator, against the sizes of the models, and
 * against the same model written with one operator for attention.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'ava';
import { type GeneratedModel, generatedModel } from '../../../models/families.js';
import { importModel } from '../../../src/api/models/import.js';
import { atOtherSamples } from '../../../src/api/planning/at-other-samples.js';
import { graphOfWork, graphWork } from '../../../src/api/planning/graph-work.js';
import { type ModelSource, workReader } from '../../../src/api/planning/step-works.js';
import { simulate } from '../../../src/api/simulate.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { workAt } from '../../../src/cost-model/step/affine-work.js';
import type { PartWork } from '../../../src/cost-model/step/work.js';
import type { Node } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { findLayers } from '../../../src/ir/passes/find-layers.js';
import { factsOf } from '../../../src/search/configurations/space.js';
import type { Layout } from '../../../src/sharding-propagation/layout.js';
import { ROOT } from '../../cli/autopar.js';
import { routedExperts, SMALL } from '../../pipelines/expert-models.js';
import { MODELS } from '../../pipelines/models.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test);

const cluster = parseCluster('1x8:a100-sxm-80', undefined);
const loss = { kind: 'cross_entropy' as const };

async function layerOf(file: string, tp: number): Promise<PartWork> {
  const { graph } = await importModel(join(ROOT, 'models', file));
  const { work } = await graphWork(graphOfWork(graph, { kind: 'training', loss }), tp, cluster);
  const [layer] = work.layers;
  if (!layer) throw new Error('no layers');
  return layer.part;
}

const attentions = (works: PartWork['forward']) => works.flatMap((work) => (work.kind === 'attention' ? [work] : []));

test(
  'attention that a file writes in parts is one kernel, of the heads, positions and features that ' + 'the model has',
  async (t) => {
    const sizes = { batch: 4, queries: 16, keys: 16, width: 8, valueWidth: 8, causal: true };
    for (const [file, keyHeads] of [
      ['gpt-tiny.onnx', 4],
      ['llama-tiny.onnx', 2],
    ] as const) {
      for (const tp of [1, 2]) {
        const { forward, backward } = await layerOf(file, tp);
        const [kernel, ...others] = attentions(forward);
        t.is(others.length, 0, file);
        t.like(kernel, { ...sizes, backward: false, heads: 4 / tp, keyHeads: keyHeads / tp }, `${file} ${tp}`);
        t.deepEqual(attentions(backward), kernel ? [{ ...kernel, backward: true }] : [], file);
      }
    }
  },
);

/** Models with every kind of layer that families have. */
const FAMILIES = [
  'gpt:layers=3,hidden=256,heads=4,seq=128,vocab=512,batch=4',
  'llama:layers=3,hidden=256,heads=4,kv_heads=2,ffn=512,seq=128,vocab=512,batch=4',
  'bert:layers=3,hidden=256,heads=4,seq=128,vocab=512,batch=4',
  'moe:layers=4,dense=1,hidden=256,heads=4,kv_heads=4,ffn=512,experts=4,topk=2,seq=128,vocab=512,batch=4',
  'hybrid:pattern=ME*-ME*-,hidden=256,heads=4,kv_heads=2,head_width=64,ffn=512,expert_ffn=128,vocab=512,seq=128,batch=4',
  'vit:layers=3,hidden=256,heads=4,batch=4',
];

test('a layer of a file has the products and keeps the bytes of the family that it is one of', async (t) => {
  const options = { cluster: '1x2:a100-sxm-80', loss, dp: 2, globalBatch: 4, microBatch: 2 };
  const file = await simulate({ model: join(ROOT, 'models', 'gpt-tiny.onnx'), ...options });
  const family = await simulate({ generate: 'gpt:layers=2,hidden=32,heads=4,seq=16,vocab=64', ...options });
  const near = (a: number, b: number, share: number) => Math.abs(a / b - 1) < share;
  t.true(near(file.parts.matmul, family.parts.matmul, 0.01), `${file.parts.matmul} ${family.parts.matmul}`);
  const [kept, expected] = [file, family].map(({ stages }) => stages[0]?.activations ?? 0);
  t.true(near(kept ?? 0, expected ?? 1, 0.15), `${kept} ${expected}`);
  const parts = await simulate({ model: join(ROOT, 'models', 'gpt-tiny.onnx'), ...options, attention: 'parts' });
  t.true((parts.stages[0]?.activations ?? 0) > (kept ?? 0), 'scores are kept where attention is in parts');
});

for (const [index, text] of FAMILIES.entries())
  slowTests(test, index > 1)(`the file of ${text} has the work of the family, and the same price`, async (t) => {
    const { batch } = generatedModel(text);
    const folder = mkdtempSync(join(tmpdir(), 'autopar-family-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const model = join(folder, 'model.onnx');
    writeFileSync(model, writeOnnx(generatedModel(text).build(batch)));
    const reader = (source: ModelSource, generated: GeneratedModel | null) =>
      workReader(source, generated, { kind: 'training', loss }, cluster, batch);
    const [family, file] = [reader({}, generatedModel(text)), reader({ model }, null)];
    for (const [tp, samples] of [
      [1, 1],
      [2, batch],
      [2, 2],
    ] as const)
      t.deepEqual((await family(tp, samples)).work, (await file(tp, samples)).work, `${text} ${tp} ${samples}`);
    const options = { cluster: '1x8:a100-sxm-80', loss, dp: 4, tp: 2, globalBatch: 8, microBatch: 2 };
    const [named, read] = [await simulate({ generate: text, ...options }), await simulate({ model, ...options })];
    t.deepEqual([named.stepSeconds, named.stages], [read.stepSeconds, read.stages], text);
  });

test(
  'of a model each rank of tp holds its part of every matrix, the table of tokens too, whatever the ' + 'micro-batch',
  async (t) => {
    const { build } = generatedModel('llama:layers=2,hidden=1024,heads=8,kv_heads=8,seq=1024,vocab=8192');
    for (const batch of [1, 4]) {
      const graph = findLayers(build(batch));
      const heldOver = async (tp: number): Promise<number> => {
        const { work } = await graphWork(graphOfWork(graph, { kind: 'training', loss }), tp, cluster);
        const all = [{ count: 1, part: work.first }, ...work.layers, { count: 1, part: work.last }];
        return all.reduce((total, { count, part }) => total + count * part.parameters, 0);
      };
      const [whole, part] = [await heldOver(1), await heldOver(4)];
      // Scales of norms and rotary tables are whole: a hundredth.
      t.true(part >= whole / 4 && part <= (1.02 * whole) / 4, `${batch}: ${part} of ${whole}`);
    }
  },
);

test('pooling moves data: AlexNet multiplies in its convolutions and linear layers alone, gradients included', async (t) => {
  const graph = findLayers(generatedModel('alexnet:batch=4').build(4));
  const { work } = await graphWork(graphOfWork(graph, { kind: 'training', loss }), 1, cluster);
  const parts = [work.first, ...work.layers.flatMap(({ count, part }) => Array<PartWork>(count).fill(part)), work.last];
  const products = (works: PartWork['forward']) =>
    works.reduce(
      (sum, one) => sum + (one.kind === 'matmul' ? 2 * one.batch * one.rows * one.columns * one.depth : 0),
      0,
    );
  const sized = (name: string | null | undefined) => graph.tensors.get(name ?? '')?.shape ?? [];
  const expected = graph.nodes
    .filter(({ op }) => ['Conv', 'Gemm', 'MatMul'].includes(op))
    .map(({ op, inputs, outputs }) => {
      const [result, weight] = [sized(outputs[0]), sized(inputs[1])];
      const depth = op === 'Conv' ? weight.slice(1) : [sized(inputs[0]).at(-1) ?? 1];
      return 2 * [...result, ...depth].reduce((all, size) => all * size, 1);
    });
  const forward = expected.reduce((sum, own) => sum + own, 0);
  // The image has no gradient: the first convolution has one of its kernel alone.
  const backward = 2 * forward - (expected[0] ?? 0);
  const found = (phase: 'forward' | 'backward') => parts.reduce((sum, part) => sum + products(part[phase]), 0);
  t.true(Math.abs(found('forward') / forward - 1) < 1e-9, `${found('forward')} ${forward}`);
  t.true(Math.abs(found('backward') / backward - 1) < 0.02, `${found('backward')} ${backward}`);
});

test('a file is cut along its sequence like a family', async (t) => {
  const model = join(ROOT, 'models', 'gpt-tiny.onnx');
  const cut = await simulate({ model, cluster: '1x4:a100-sxm-80', loss, sp: 4, globalBatch: 1 });
  t.true(cut.bytes.sp > 0, 'keys and values go round');
  await t.throwsAsync(simulate({ model, cluster: '1x3:a100-sxm-80', loss, sp: 3 }), { code: 'degree-does-not-fit' });
});

slow(
  'layouts over tp are searched at one number of samples, so that work at others grows evenly with them',
  async (t) => {
    const generated = generatedModel('resnet:layers=50');
    const read = workReader({}, generated, { kind: 'training', loss }, cluster, 8);
    const point = async (samples: number) => ({ samples, work: (await read(2, samples)).work });
    const [two, four] = [await point(2), await point(4)];
    for (const samples of [1, 8, 16, 64])
      t.deepEqual(workAt(samples, two, four), (await point(samples)).work, `${samples}`);
  },
);

test('a layout that cuts what grows with the samples is not one at another number of them', async (t) => {
  const generated = generatedModel('mlp:layers=2,inputs=16,hidden=16,outputs=16,batch=8');
  const whole = (batch: number) => graphOfWork(findLayers(generated.build(batch)), { kind: 'inference' });
  const { assignment, graph } = await graphWork(whole(8), 2, cluster);
  t.truthy(atOtherSamples(assignment, graph, whole(4).graph));
  const [input = ''] = whole(8).graph.inputs;
  const cut: Layout = { dims: [[{ size: 8, axes: ['tp'] }], [{ size: 16, axes: [] }]], partial: [] };
  const sharded = { ...assignment, inputs: new Map([[input, cut]]) };
  t.is(atOtherSamples(sharded, graph, whole(4).graph), null);
  t.truthy(atOtherSamples(sharded, graph, whole(8).graph));
  const parted: Layout = {
    ...cut,
    dims: [
      [
        { size: 4, axes: [] },
        { size: 2, axes: ['tp'] },
      ],
      [{ size: 16, axes: [] }],
    ],
  };
  const inside = { ...assignment, inputs: new Map([[input, parted]]) };
  const first = (batch: number) => atOtherSamples(inside, graph, whole(batch).graph)?.inputs.get(input)?.dims[0];
  t.deepEqual(first(16), [
    { size: 8, axes: [] },
    { size: 2, axes: ['tp'] },
  ]);
  t.deepEqual(first(2), [{ size: 2, axes: ['tp'] }]);
  t.is(first(3), undefined, 'what is cut does not divide so many samples');
  const [product] = graph.nodes as [Node];
  const pieces = {
    axes: { 'm.1': ['tp'] },
    pieces: { m: [4, 2] },
    partialOperands: null,
    pending: { kind: 'none' },
  } as const;
  const strategies = new Map([...assignment.strategies, [product.group, pieces]]);
  const strategyAt = (batch: number) =>
    atOtherSamples({ ...assignment, strategies }, graph, whole(batch).graph)?.strategies.get(product.group);
  t.deepEqual(strategyAt(16), { ...pieces, pieces: { m: [8, 2] } });
  t.deepEqual(strategyAt(2), { axes: { m: ['tp'] }, partialOperands: null, pending: { kind: 'none' } });
  t.is(strategyAt(3), undefined);
  const padding: Layout = {
    ...cut,
    dims: [[{ size: 10, axes: [] }], [{ size: 16, axes: [] }]],
    extents: [[{ size: 10, valid: 8 }], null],
  };
  const padded = { ...assignment, inputs: new Map([[input, padding]]) };
  t.is(atOtherSamples(padded, graph, whole(4).graph), null, 'nor is padding for so many samples');
  t.truthy(atOtherSamples(padded, graph, whole(8).graph));
});

/** Weights of the chosen experts are gathered for each token, and stored as [experts, columns, rows]. */
async function gatheredExperts(batch: number) {
  const file = join(mkdtempSync(join(tmpdir(), 'autopar-test-')), 'chosen.onnx');
  writeFileSync(file, writeOnnx(routedExperts('chosen', { ...SMALL, batch, layers: 1, attends: false })));
  const { graph } = await importModel(file, { keepsParameters: true, stacksExperts: true });
  rmSync(dirname(file), { recursive: true });
  return graphOfWork(graph, { kind: 'training', loss: { kind: 'mse' } });
}

test('experts whose weights are gathered and stored transposed are those of a step', async (t) => {
  const { work } = await graphWork(await gatheredExperts(8), 1, cluster);
  t.is(factsOf(work).experts, SMALL.experts);
  const { experts, width, inner } = SMALL;
  t.is(
    [work.first, ...work.layers.map(({ part }) => part), work.last].reduce(
      (sum, part) => sum + part.expertParameters,
      0,
    ),
    experts * 3 * inner * width,
  );
});

test('layouts are not reused where a view has the name that one sample gave to another view', async (t) => {
  const { graph, assignment } = await graphWork(await gatheredExperts(1), 1, cluster);
  t.truthy(atOtherSamples(assignment, graph, (await gatheredExperts(1)).graph));
  // One sample needs no view of its rows as those of all experts, so that the next view has its name.
  t.is(atOtherSamples(assignment, graph, (await gatheredExperts(2)).graph), null);
});

slow(
  'what counts steps and gradients that nothing reads are no work: searched and lowered, they cost the same',
  async (t) => {
    for (const name of ['dropout', 'recurrent'] as const) {
      const whole = graphOfWork(findLayers(MODELS[name]()), { kind: 'training', loss: { kind: 'mse' } });
      t.deepEqual(whole.graph.state, [], name);
      // If the search reports another cost than its lowered graph has, that is an internal error, and thrown.
      for (const tp of [1, 2]) await t.notThrowsAsync(graphWork(whole, tp, cluster), `${name}, tp ${tp}`);
    }
  },
);
