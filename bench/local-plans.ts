/**
 * @file Models and plans of `npm run bench:local`: the choices of a user of a machine with few cores. They are small enough
 * that a step takes milliseconds, and different enough that plans differ: weights larger than activations (data parallelism
 * pays for its gradients), activations larger than weights, operators that cannot be sharded without a cost.
 */
import { cnn } from '../models/cnn.js';
import { llama } from '../models/llama.js';
import { mlp } from '../models/mlp.js';
import type { Training } from '../src/api/models/training.js';
import type { Graph } from '../src/ir/graph.js';

export interface BenchModel {
  /** Name in `--models`. */
  readonly id: string;
  readonly title: string;
  readonly build: () => Graph;
  readonly training?: Training;
}

export interface BenchPlan {
  readonly dp: number;
  readonly tp: number;
}

const SQUARES: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 1e-3 } };

const TOKENS: Training = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } };

const TINY_LLAMA = { sequence: 64, width: 256, heads: 8, keyHeads: 4, feedForward: 688, vocabulary: 1024 } as const;

export const MODELS: readonly BenchModel[] = [
  {
    id: 'mlp',
    title: 'mlp 4 × 1024, batch 256',
    build: () => mlp('mlp', { batch: 256, widths: [1024, 1024, 1024, 1024, 1024] }, 1),
  },
  {
    id: 'llama',
    title: 'llama 2 layers × 256, 8 × 64 tokens',
    build: () => llama('llama', { ...TINY_LLAMA, batch: 8, layers: 2 }, 1),
  },
  {
    id: 'cnn',
    title: 'cnn 32-64-128, 16 images of 64 × 64',
    build: () => cnn('cnn', { batch: 16, channels: 3, size: 64, widths: [32, 64, 128], classes: 10 }, 1),
  },
  {
    id: 'mlp-training',
    title: 'mlp 4 × 512, batch 128, training',
    build: () => mlp('mlp', { batch: 128, widths: [512, 512, 512, 512, 512] }, 1),
    training: SQUARES,
  },
  {
    id: 'wide-training',
    title: 'mlp 256-2048-256-2048-256, batch 64, training',
    build: () => mlp('mlp', { batch: 64, widths: [256, 2048, 256, 2048, 256] }, 1),
    training: SQUARES,
  },
  {
    id: 'long-training',
    title: 'mlp 6 × 192, batch 2048, training',
    build: () => mlp('mlp', { batch: 2048, widths: [192, 192, 192, 192, 192, 192, 192] }, 1),
    training: SQUARES,
  },
  {
    id: 'llama-training',
    title: 'llama 1 layer × 256, 4 × 64 tokens, training',
    build: () => llama('llama', { ...TINY_LLAMA, batch: 4, layers: 1 }, 1),
    training: TOKENS,
  },
];

export const PLANS: readonly BenchPlan[] = [
  { dp: 1, tp: 1 },
  { dp: 2, tp: 1 },
  { dp: 1, tp: 2 },
  { dp: 4, tp: 1 },
  { dp: 2, tp: 2 },
  { dp: 1, tp: 4 },
];
