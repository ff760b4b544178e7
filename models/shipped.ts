/**
 * @file The small models that come with the package, which README and tests compile.
 */
import type { Graph } from '../src/ir/graph.js';
import { cnn } from './cnn.js';
import { gpt } from './gpt.js';
import { llama } from './llama.js';
import { mlp } from './mlp.js';

/** File name in models/ → the graph it holds. */
export const SHIPPED_MODELS: Readonly<Record<string, () => Graph>> = {
  'llama-tiny.onnx': () =>
    llama(
      'llama-tiny',
      { batch: 4, sequence: 16, layers: 2, width: 32, heads: 4, keyHeads: 2, feedForward: 64, vocabulary: 64 },
      1,
    ),
  'gpt-tiny.onnx': () => gpt('gpt-tiny', { batch: 4, sequence: 16, layers: 2, width: 32, heads: 4, vocabulary: 64 }, 2),
  'mlp.onnx': () => mlp('mlp', { batch: 8, widths: [32, 64, 64, 16] }, 3),
  'cnn-tiny.onnx': () => cnn('cnn-tiny', { batch: 4, channels: 3, size: 16, widths: [8, 16], classes: 10 }, 4),
};
