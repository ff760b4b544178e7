/**
 * @file Tensors by name are what a stage's memory is made of: together they are its parameters, gradients, optimizer state and
 * activations.
 */
import test from 'ava';
import { generatedModel } from '../../../models/families.js';
import { workReader } from '../../../src/api/planning/step-works.js';
import { simulate } from '../../../src/api/simulate.js';
import { parseCluster } from '../../../src/cost-model/cluster.js';
import { largestTensors } from '../../../src/cost-model/step/largest-tensors.js';
import { stageMemory } from '../../../src/cost-model/step/step-memory.js';

const LOSS = { kind: 'cross_entropy' } as const;
const SIZES = 'hidden=256,layers=6,heads=4,seq=64,vocab=512';

for (const [generate, options] of [
  [`llama:${SIZES}`, { dp: 2, tp: 2, globalBatch: 8 }],
  [`llama:${SIZES}`, { dp: 1, tp: 2, pp: 2, globalBatch: 8, zero: 1 }],
  [`moe:${SIZES},kv_heads=2,experts=4`, { dp: 4, tp: 1, ep: 2, globalBatch: 8, zero: 2 }],
  [
    'hybrid:pattern=M-M*,hidden=256,heads=4,kv_heads=4,head_width=64,ffn=512,seq=256,vocab=512',
    { dp: 1, tp: 2, pp: 2, globalBatch: 4 },
  ],
  ['mlp:layers=3,inputs=64,hidden=128,outputs=64', { dp: 4, tp: 1, globalBatch: 32, zero: 3 }],
] as const) {
  test(`${generate} ${JSON.stringify(options)}: the parts of every stage's memory`, async (t) => {
    const cluster = '1x4:a100-sxm-80';
    const loss = generate.startsWith('mlp') ? ({ kind: 'mse' } as const) : LOSS;
    const { configuration, largest, tightestStage } = await simulate({ generate, cluster, loss, ...options });
    const read = workReader({}, generatedModel(generate), { kind: 'training', loss }, parseCluster(cluster, undefined));
    const { work, tensors } = await read(configuration.degrees.tp, configuration.microBatch);
    for (const { stage, parameters, gradients, optimizer, activations } of stageMemory(work, configuration)) {
      const held = largestTensors(tensors(), work, configuration, stage);
      const sum = (kind: string) => held.reduce((all, one) => all + (one.kind === kind ? one.bytes : 0), 0);
      near(t, sum('parameter') + sum('buffer'), parameters + gradients + optimizer);
      t.is(sum('buffer'), bufferBytes(generate, stage));
      near(t, sum('activation'), activations);
      if (stage === tightestStage) t.deepEqual(largest, held.slice(0, largest.length));
    }
    t.true(largest.length > 0);
    t.deepEqual(
      largest.map(({ bytes }) => bytes),
      largest.map(({ bytes }) => bytes).sort((a, b) => b - a),
    );
  });
}

function near(t: { true(value: boolean, message: string): unknown }, found: number, truth: number): void {
  t.true(Math.abs(found - truth) <= 1e-9 * truth, `${found} is not ${truth}`);
}

/**
 * Sine and cosine of 64 positions, half a head each, in 16 bits on the stage that makes the angles; a zero where experts are
 * added up. All state-space layers read one mask of the positions of a chunk, 128, and one of its 2 chunks.
 */
function bufferBytes(generate: string, stage: number): number {
  if (generate.startsWith('mlp') || stage > 0) return 0;
  if (generate.startsWith('hybrid')) return 2 * (128 * 128 + 2 * 2);
  return 2 * (2 * 64 * (256 / 4 / 2) + (generate.startsWith('moe') ? 6 : 0));
}
