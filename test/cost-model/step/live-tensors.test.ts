/**
 * @file Live tensors while a model infers, against counts by hand: transformer layers, a head, a chain of matmuls.
 */
import { join } from 'node:path';
import test from 'ava';
import { modelWork } from '../../../src/api/planning/step-works.js';
import { simulate } from '../../../src/api/simulate.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { partBytes } from '../../../src/cost-model/step/part-bytes.js';
import { ROOT } from '../../cli/autopar.js';
import { gptSizes } from './sizes.js';
import { trained } from './trained.js';

const cluster = parseCluster('1x8:a100-sxm-80', undefined);

test('a layer holds its residual beside what its activation reads and makes: s b h (1 + 8 / t) elements', async (t) => {
  const [b, s, h] = [2, 512, 1024];
  for (const tp of [1, 2, 4]) {
    const [layer] = (await modelWork(gptSizes({ batch: b, sequence: s, hidden: h, heads: 16 }), tp, cluster)).layers;
    t.is(layer?.part.live, s * b * h * (1 + 8 / tp));
    t.is(layer?.part.liveShared, (s * b * h * 9) / tp);
  }
});

test('after the layers the head holds its input and the logits; of attention in parts the scores count too', async (t) => {
  const [s, h, heads] = [512, 1024, 16];
  const sizes = gptSizes({ sequence: s, hidden: h, heads, dropout: 0 });
  const model = await modelWork(sizes, 1, cluster);
  const inference = { ...trained({}), inference: true };
  const { last, layers } = partBytes(model, { ...inference, attention: 'fused' });
  t.is(last.transient, 2 * s * (h + sizes.vocabulary));
  t.is(last.saved, 0);
  const parts = partBytes(model, { ...inference, attention: 'parts' });
  t.is((parts.layers[0]?.stored.transient ?? 0) - (layers[0]?.stored.transient ?? 0), 2 * 2 * heads * s * s);
});

test('a model file that infers has room for its activations', async (t) => {
  const { stages } = await simulate({ model: join(ROOT, 'models/mlp.onnx'), cluster: '1x1:a100-sxm-80', dp: 1 });
  t.true((stages[0]?.temporaries ?? 0) > 0);
});
