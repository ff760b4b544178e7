/** @file Micro-batches in two interleaved halves (interleaved.ts); more of them in interleave.slow.ts. */
import test from 'ava';
import { slowTests } from '../selection.js';
import { checkInterleaved } from './interleaved.js';

const slow = slowTests(test);

slow('an operator cut in two', (t) => checkInterleaved(t, { model: 'mlp', microBatches: 1 }, { stages: 1, tp: 2 }, 3));

test('stages of two ranks', (t) =>
  checkInterleaved(t, { model: 'mlp', microBatches: 2 }, { kind: '1f1b', stages: 2, tp: 2 }, 3));
