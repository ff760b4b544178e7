/**
 * @file A model's work continued from two and four samples is the work that is read at more.
 */
import test from 'ava';
import { generatedModel } from '../../../models/families.js';
import { graphOfWork, graphWork } from '../../../src/api/planning/graph-work.js';
import { workReader } from '../../../src/api/planning/step-works.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { type WorkPoint, workAt } from '../../../src/cost-model/step/affine-work.js';
import type { ModelWork } from '../../../src/cost-model/step/work.js';
import { findLayers } from '../../../src/ir/passes/find-layers.js';

const CLUSTER = parseCluster('1x8:a100-sxm-80', undefined);

/** With how many ranks of tp; tokens that are sent to experts are sharded over tp as is cheapest for so many of them. */
const MODELS = [
  ['gpt:layers=2,hidden=512,heads=8,seq=256', 2],
  ['gpt:layers=2,hidden=512,heads=8,seq=256,dropout=0.1', 2],
  ['llama:layers=2,hidden=512,heads=8,seq=256,kv_heads=2', 2],
  ['moe:layers=2,hidden=512,heads=8,ffn=1024,seq=256,experts=4', 1],
  ['hybrid:pattern=ME*M,hidden=512,heads=8,head_width=64,seq=256,experts=8,expert_ffn=256,shared=256,latent=256', 1],
] as const;

/** The work on one rank, in the layouts of four samples. */
function reading(text: string, tp: number): (samples: number) => Promise<WorkPoint> {
  const purpose = { kind: 'training', loss: { kind: 'cross_entropy' } } as const;
  const read = workReader({}, generatedModel(text), purpose, CLUSTER, 4);
  return async (samples) => ({ samples, work: (await read(tp, samples)).work });
}

for (const [text, tp] of MODELS) {
  test(`${text} at 16 samples`, async (t) => {
    const at = reading(text, tp);
    const [two, four] = [await at(2), await at(4)];
    for (const samples of [2, 4, 16]) t.deepEqual(workAt(samples, two, four), (await at(samples)).work);
  });
}

test('works that differ in more than amounts are not continued', async (t) => {
  const at = reading('gpt:layers=2,hidden=512,heads=8,seq=256', 2);
  const [two, three] = [await at(2), await at(3)];
  const changed = (part: Partial<ModelWork>) => ({ ...three, work: { ...three.work, ...part } });
  t.is(workAt(4, two, changed({ first: { ...three.work.first, forward: [] } })), null);
  t.is(workAt(4, two, changed({ layers: [] })), null);
});

test('one layer for each run has the work of all of them', async (t) => {
  const { build } = generatedModel('gpt:layers=3,hidden=64,heads=4,seq=32,vocab=128');
  const graph = findLayers(build(2));
  const purpose = { kind: 'training', loss: { kind: 'cross_entropy' } } as const;
  const reduced = graphOfWork(graph, purpose);
  t.deepEqual([...reduced.standIns.values()], ['layers.0', 'layers.0', 'layers.0']);
  const apart = graphOfWork({ ...graph, nodes: graph.nodes.map((node) => ({ ...node, layer: null })) }, purpose);
  const own = [...reduced.standIns.keys()].map((layer) => [layer, layer] as const);
  const whole = { ...apart, standIns: new Map(own), graph: findLayers(apart.graph) };
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
