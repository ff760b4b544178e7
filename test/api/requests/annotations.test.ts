import { join } from 'node:path';
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { type Training, trainedModel } from '../../../src/api/models/training.js';
import { importedFor } from '../../../src/api/models/training-form.js';
import {
  annotationsOf,
  pinsFor,
  setParallelConfig,
  withAnnotatedDegrees,
} from '../../../src/api/requests/annotations.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { entryOf, ruleOf } from '../../../src/ir/ops/index.js';
import { plan } from '../../../src/search/plan.js';
import type { PinRecord } from '../../../src/sharding-propagation/annotations/annotation.js';
import { type Mesh, makeMesh } from '../../../src/sharding-propagation/mesh.js';
import { satisfies } from '../../../src/sharding-propagation/pin.js';
import { ROOT } from '../../cli/autopar.js';
import { refused } from '../../sharding-propagation/annotations/file.js';

const shipped = async (name: string) => (await importModel(join(ROOT, `models/${name}.onnx`))).graph;

const trained = async (name: string) => {
  const training: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } };
  const at = () => importModel(join(ROOT, `models/${name}.onnx`), importedFor(training));
  return (await trainedModel(await at(), training, at)).graph;
};

const mesh = (dp: number, tp: number): Mesh =>
  makeMesh([
    ['dp', dp],
    ['tp', tp],
  ]);

/** Model and pins as a person would write them. */
const PINNED: readonly (readonly [says: string, model: string, pins: readonly PinRecord[]])[] = [
  ['the pair of every MLP', 'gpt-tiny', [{ match: { module: 'h.*.mlp' }, style: 'pairwise' }]],
  [
    'the heads of one attention, its projection fused',
    'gpt-tiny',
    [{ match: { module: 'h.0.attn' }, style: 'pairwise' }],
  ],
  ["the embedding's vocabulary", 'gpt-tiny', [{ match: { module: 'wte' }, style: 'rowwise' }]],
  ['norms along the sequence', 'gpt-tiny', [{ match: { module: 'h.*.ln_*' }, style: 'sequence' }]],
  ['MLPs without tp', 'gpt-tiny', [{ match: { module: 'h.*.mlp' }, style: 'replicate' }]],
  ['attentions and MLPs of a Llama', 'llama-tiny', [{ match: { module: '**.{self_attn,mlp}' }, style: 'pairwise' }]],
  [
    'channels, out and in',
    'cnn-tiny',
    [
      { match: { module: 'conv0' }, style: 'colwise' },
      { match: { module: 'conv1' }, style: 'rowwise' },
    ],
  ],
  [
    'split counts of one product',
    'gpt-tiny',
    [{ match: { node: '/h.0/mlp/c_fc/MatMul' }, split: '((2, 1, 1), (1, 2))' }],
  ],
];

/** Parameters are state of a training step, and no weights of its graph: styles are about them all the same. */
const TRAINED = PINNED.slice(0, 3).map(([says, ...pinned]) => [`${says}, in training`, ...pinned] as const);

for (const [says, model, pins] of [...PINNED, ...TRAINED])
  test(`a plan keeps ${says}`, async (t) => {
    const graph = says.endsWith('in training') ? await trained(model) : await shipped(model);
    const annotations = annotationsOf({ version: 1, mesh: { dp: 2, tp: 2 }, pins });
    const degrees = { dp: 2, tp: 2 };
    const operatorPins = (on: Mesh) => pinsFor({ annotations, degrees }, graph, on).pins;
    const found = await plan(graph, parseCluster('1x4:a100-sxm-80', undefined), { degrees, operatorPins });
    const kept = operatorPins(found.assignment.mesh).filter((pin) => pin.kind === 'operator');
    t.true(kept.length > 0);
    for (const pin of kept) {
      const node = graph.nodes.find(({ name }) => name === pin.node);
      const strategy = found.assignment.strategies.get(pin.node);
      if (!node || !strategy) throw new Error(`${pin.node} has no strategy`);
      const operator = operatorOf(graph, node);
      const linear = entryOf(node.op, node.domain)?.linear(operator) ?? [];
      t.true(satisfies(pin, strategy, ruleOf(operator), linear, found.assignment.mesh), pin.source.text);
    }
  });

test('where degrees are free, an axis that pins name gets ranks', async (t) => {
  const graph = await shipped('gpt-tiny');
  const annotations = annotationsOf({ version: 1, pins: [{ match: { module: 'h.*.mlp' }, style: 'pairwise' }] });
  const on = (dp: number, tp: number, degrees = {}) => pinsFor({ annotations, degrees }, graph, mesh(dp, tp)).pins;
  t.is(on(2, 2).length, 6);
  const error = await refused(t, () => on(4, 1));
  t.is(error.code, 'pin-does-not-fit');
  t.regex(error.message, /style pairwise on h\.\*\.mlp: tp has one rank on this mesh \(dp=4, tp=1\)/);
  t.deepEqual(on(4, 1, { tp: 1 }), []);
  t.deepEqual(on(1, 1), []);
  const operatorPins = (where: Mesh) => pinsFor({ annotations }, graph, where).pins;
  const found = await plan(graph, parseCluster('1x4:a100-sxm-80', undefined), { operatorPins });
  t.true(found.degrees.tp > 1);
});

test('annotations go before what a configuration says', async (t) => {
  const graph = await shipped('gpt-tiny');
  const config = setParallelConfig({ modelParallel: 2, vocabEmbDp: true });
  const fromConfig = pinsFor({ config }, graph, mesh(1, 2)).pins;
  t.like(fromConfig, [{ kind: 'operator', node: '/wte/Gather', without: ['tp'] }]);
  const annotations = annotationsOf({ version: 1, pins: [{ match: { module: 'wte' }, style: 'rowwise' }] });
  const both = pinsFor({ config, annotations }, graph, mesh(1, 2)).pins;
  t.deepEqual(
    both.map((pin) => pin.source.text),
    ['pins[0]: style rowwise on wte'],
  );
});

test('degrees of annotations and options must be the same', async (t) => {
  const annotations = annotationsOf({ version: 1, mesh: { dp: 2 }, pins: [] });
  t.deepEqual(withAnnotatedDegrees({ tp: 4 }, annotations), { dp: 2, tp: 4 });
  t.deepEqual(withAnnotatedDegrees({ dp: 2 }, annotations), { dp: 2 });
  const error = await refused(t, () => withAnnotatedDegrees({ dp: 4 }, annotations));
  t.is(error.code, 'annotated-degree');
  t.regex(error.message, /dp 2, and --dp is 4/);
});
