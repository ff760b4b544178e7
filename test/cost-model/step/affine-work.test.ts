/**
 * @file A model's work continued from one and two samples is the work that is read at more.
 */
import test from 'ava';
import { generatedModel } from '../../../models/families.js';
import { graphOfWork, graphWork } from '../../../src/api/planning/graph-work.js';
import { modelWork } from '../../../src/api/planning/layer-classes.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { workAt } from '../../../src/cost-model/step/affine-work.js';
import type { ModelWork } from '../../../src/cost-model/step/work.js';
import { findLayers } from '../../../src/ir/passes/find-layers.js';

const CLUSTER = parseCluster('1x8:a100-sxm-80', undefined);

const MODELS = [
  'gpt:layers=2,hidden=512,heads=8,seq=256',
  'gpt:layers=2,hidden=512,heads=8,seq=256,dropout=0.1',
  'llama:layers=2,hidden=512,heads=8,seq=256,kv_heads=2',
  'moe:layers=2,hidden=512,heads=8,ffn=1024,seq=256,experts=4',
  'hybrid:pattern=ME*M,hidden=512,heads=8,head_width=64,seq=256,experts=8,expert_ffn=256,shared=256,latent=256',
];

for (const text of MODELS) {
  test(`${text} at 7 samples`, (t) => {
    const { language } = generatedModel(text);
    if (!language) throw new Error('a language model');
    const at = (batch: number): ModelWork => modelWork({ ...language, batch }, 2, CLUSTER);
    const [two, three] = [
      { samples: 2, work: at(2) },
      { samples: 3, work: at(3) },
    ];
    for (const samples of [2, 3, 7]) t.deepEqual(workAt(samples, two, three), at(samples));
  });
}

test('works that differ in more than amounts are not continued', (t) => {
  const { language } = generatedModel('gpt:layers=2,hidden=512,heads=8,seq=256');
  if (!language) throw new Error('a language model');
  const at = (batch: number) => ({ samples: batch, work: modelWork({ ...language, batch }, 2, CLUSTER) });
  const [two, three] = [at(2), at(3)];
  const changed = (part: Partial<ModelWork>) => ({ ...three, work: { ...three.work, ...part } });
  t.is(workAt(4, two, changed({ first: { ...three.work.first, forward: [] } })), null);
  t.is(workAt(4, two, changed({ layers: [] })), null);
  t.is(workAt(4, at(1), two), null, "one sample needs no sum of the positions' gradients");
});

test('one layer for each run has the work of all of them', async (t) => {
  const { build } = generatedModel('gpt:layers=3,hidden=64,heads=4,seq=32,vocab=128');
  const graph = findLayers(build(2));
  const purpose = { kind: 'training', loss: { kind: 'cross_entropy' } } as const;
  const reduced = graphOfWork(graph, purpose);
  t.deepEqual(reduced.runs, [{ name: 'layers.0', instances: ['layers.0', 'layers.1', 'layers.2'] }]);
  const apart = graphOfWork({ ...graph, nodes: graph.nodes.map((node) => ({ ...node, layer: null })) }, purpose);
  const whole = { ...apart, runs: [], graph: findLayers(apart.graph) };
  const [few, all] = [await graphWork(reduced, 2, CLUSTER), await graphWork(whole, 2, CLUSTER)];
  t.deepEqual(
    few.work.layers.map(({ count }) => count),
    [3],
  );
  const sums = ({ layers, first, last }: ModelWork) =>
    [...layers, { count: 1, part: first }, { count: 1, part: last }].reduce(
      (sum, { count, part }) => ({
        parameters: sum.parameters + count * part.parameters,
        saved: sum.saved + count * part.saved,
      }),
      { parameters: 0, saved: 0 },
    );
  t.deepEqual(sums(few.work), sums(all.work));
});
