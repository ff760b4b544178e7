/**
 * @file Every part that can be kept outside of the devices, in each memory, on data, tensor and pipeline parallel ranks (each
 * two of these together in some plan) and under some schedules: losses of some steps and the state behind them are bit
 * for bit those of the program that keeps all on its devices (which a few steps show as well as many), and what is kept and
 * moved is what is predicted.
 */
import test from 'ava';
import { OUTER_MEMORIES } from '../../src/ir/graph.js';
import { OFFLOAD_PARTS } from '../../src/partition/offload-parts.js';
import { SCHEDULE_KINDS } from '../../src/schedule/schedule.js';
import { thinned } from '../selection.js';
import type { Pipeline } from './compiled-training.js';
import { compareOffload } from './offloaded.js';
import { pairwise } from './pairwise.js';

const STEPS = 3;
const TRAINING = { optimizer: { kind: 'adamw' as const, learningRate: 1e-2, clipNorm: 0.5 } };

const MESHES: readonly Pipeline[] = [
  { stages: 1, dp: 2 },
  { stages: 1, tp: 2 },
  { kind: '1f1b', stages: 2 },
];

const EVERY = MESHES.flatMap((mesh) =>
  ([...OFFLOAD_PARTS, 'all'] as const).flatMap((part) =>
    OUTER_MEMORIES.map((memory) => ({ mesh, on: JSON.stringify(mesh), part, memory })),
  ),
);

for (const { mesh, on, part, memory } of pairwise(EVERY))
  test.serial(`${on} ${part}:${memory}`, async (t) => {
    const task = { model: 'mlp', microBatches: 2, training: TRAINING } as const;
    const { whole, kept } = await compareOffload(t, task, mesh, `${part}:${memory}`, STEPS);
    t.true(kept.outside.predicted.some((own) => own[memory].peakBytes > 0));
    const fall = whole.peaks.counted.map((bytes, stage) => bytes - (kept.peaks.counted[stage] ?? 0));
    t.log(`device peaks fall by ${fall.join(', ')} bytes`);
    // These ranks are fullest in the update; those of dp there have the gradients of all weights, to reduce them.
    const isElsewhere = part === 'activations' || (part === 'gradients' && mesh.dp !== undefined);
    t.true(isElsewhere || Math.max(...fall) > 0);
  });

for (const kind of thinned(SCHEDULE_KINDS, 4))
  test.serial(`the stages of ${kind} keep all outside`, async (t) => {
    const chunks = kind.startsWith('interleaved') || kind === 'zbv' ? 2 : 1;
    const task = { model: 'gpt', microBatches: 4, training: TRAINING } as const;
    await compareOffload(t, task, { kind, stages: 2, chunks, dp: 2 }, 'all:host', STEPS);
    await compareOffload(t, task, { kind, stages: 2, chunks }, 'optimizer:disk,activations', STEPS);
  });

for (const model of thinned(['cnn', 'skips', 'encoder-decoder', 'shared-layer', 'recurrent'] as const, 2))
  test.serial(`${model} keeps all outside`, async (t) => {
    await compareOffload(t, { model, microBatches: 2, training: TRAINING }, { stages: 1, dp: 2 }, 'all', STEPS);
    await compareOffload(t, { model, microBatches: 1 }, { stages: 1, dp: 2 }, 'all:disk', STEPS);
  });
