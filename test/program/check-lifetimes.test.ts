/**
 * @file A tensor that belongs to the step and is made anew by each micro-batch is read only by the micro-batch that made it last:
 * in halves and in pipelines micro-batches overlap.
 */
import test from 'ava';
import { lifetimeFlaw } from '../../src/program/check-lifetimes.js';
import type { Instruction, Program } from '../../src/program/program.js';

const TENSOR = {
  dtype: 'float32',
  localShape: [1],
  shape: [1],
  layout: { dims: [[{ size: 1, axes: [] }]], partial: [] },
} as const;

/** The first makes `left`, which belongs to the step; the second reads it. */
const make: Instruction = { kind: 'move', input: 'x', output: 'left', label: 'make' };
const read: Instruction = { kind: 'move', input: 'left', output: 'y', label: 'read' };
const second = (instruction: Instruction): Instruction => ({ ...instruction, half: 1 });

function programOf(micro: readonly Instruction[], microBatches: readonly number[]): Program {
  return {
    format: 'autopar-program',
    version: 2,
    model: { name: 'm', fingerprint: '0' },
    mesh: [],
    inputs: [{ name: 'x', dtype: 'float32', shape: [2], stage: 0, tensor: 'x', microBatches: { axis: 0, count: 2 } }],
    outputs: [],
    stages: [
      {
        tensors: {
          x: { ...TENSOR, lifetime: 'micro' },
          y: { ...TENSOR, lifetime: 'micro' },
          left: { ...TENSOR, lifetime: 'step' },
        },
        ...{ segments: {}, weights: {}, coordinates: {} },
        phases: { micro },
      },
    ],
    schedule: microBatches.map((microBatch) => ({ stage: 0, chunk: 0, microBatch, phase: 'micro' })),
  };
}

test('micro-batches in turn, and halves that read what they made last', (t) => {
  t.is(lifetimeFlaw(programOf([make, read], [0, 1]), 0), null);
  t.is(lifetimeFlaw(programOf([make, read, second(make), second(read)], [0]), 0), null);
});

test('a half that reads what the other has made anew', (t) => {
  t.is(
    lifetimeFlaw(programOf([make, second(make), read, second(read)], [0]), 0),
    'phase micro: instruction 2: tensor left is read in micro-batch 0, and micro-batch 1 has overwritten it',
  );
});

test('a second half in a list that runs once', (t) => {
  const program = programOf([make, second(make)], [0]);
  const once = program.schedule.map((action) => ({ ...action, microBatch: null }));
  t.regex(lifetimeFlaw({ ...program, schedule: once }, 0) ?? '', /belongs to a micro-batch|the second half/);
});
