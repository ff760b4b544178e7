/**
 * @file One price of a kernel: matmuls and attention of a lowered plan take as long as those that a training step's price reads
 * off the same model, and memory-bound work is split into the kernels that operators form.
 */
import test from 'ava';
import { generatedFile } from '../../src/api/models/generated.js';
import { importModel } from '../../src/api/models/import.js';
import { trainedModel } from '../../src/api/models/training.js';
import { plan } from '../../src/api/plan.js';
import { simulate } from '../../src/api/simulate.js';
import { priceNode } from '../../src/cost-model/price.js';
import { onlyStage } from '../../src/partition/lower-stages.js';

const MODELS = {
  gpt: 'gpt:layers=2,hidden=256,heads=4,seq=128,vocab=1024',
  llama: 'llama:layers=2,hidden=256,heads=4,kv_heads=2,ffn=512,vocab=1024,seq=128',
};
const BATCH = 8;
const LOSS = { kind: 'cross_entropy' as const };

for (const [name, model] of Object.entries(MODELS))
  for (const precision of ['fp32', 'bf16'] as const)
    for (const device of ['h100-sxm-80', 'a100-sxm-80'])
      test(`${name} in ${precision} on ${device}`, async (t) => {
        const cluster = `1x2:${device}`;
        const at = async (batch: number | undefined) =>
          importModel(await generatedFile(model, BATCH), batch === undefined ? {} : { globalBatch: batch });
        const optimizer = { kind: 'adamw' as const, learningRate: 1e-4 };
        const trained = await trainedModel(await at(BATCH), { loss: LOSS, optimizer, precision }, at);
        const planned = await plan(trained, { cluster, degrees: { dp: 2, tp: 1 } });
        const lowered = onlyStage(planned.found.lowered);
        const seconds = (kind: 'matmul' | 'attention') =>
          lowered.nodes.reduce((sum, node) => {
            const isIt = node.kind === 'compute' && node.fused?.kind === kind;
            return isIt ? sum + priceNode(node, lowered, planned.cluster) / 1e9 : sum;
          }, 0);
        const { parts } = await simulate({
          generate: model,
          cluster,
          dp: 2,
          globalBatch: BATCH,
          microBatch: 4,
          loss: LOSS,
          precision,
        });
        // A node is priced in whole nanoseconds.
        t.true(Math.abs(seconds('matmul') - parts.matmul) < 50e-9, `${seconds('matmul')} ${parts.matmul}`);
        t.true(Math.abs(seconds('attention') - parts.attention) < 10e-9, `${seconds('attention')} ${parts.attention}`);
      });
