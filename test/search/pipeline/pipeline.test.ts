/**
 * @file Stages that are cut by their seconds.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { linear } from '../../../models/transformer.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { pipelineOf } from '../../../src/search/pipeline/pipeline.js';

test('a stage gets an operator of its own, though one that every stage runs for itself would take less time', (t) => {
  const builder = new GraphBuilder('copied', 21);
  const labels = builder.input('labels', 'int64', [8]);
  builder.output(
    'y',
    linear(builder, 'second', linear(builder, 'first', builder.input('x', 'float32', [8, 16]), 16), 16),
  );
  builder.output('copy', builder.operator('Identity', [labels]));
  const { layout } = pipelineOf(builder.build(), parseCluster('local', 2), { stages: 2 });
  const second = [...layout.placeOf].filter(([, { stage }]) => stage === 1).map(([name]) => name);
  t.true(
    second.some((name) => name.includes('second')),
    second.join(),
  );
});
