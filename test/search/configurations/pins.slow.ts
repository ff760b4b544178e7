/**
 * @file No pin beats the plan: published models on clusters of 64 devices and more are searched with drawn degrees, schedules,
 * ZeRO levels and recomputation and the rest left open, and none is faster than the plan without them.
 */
import test from 'ava';
import * as fc from 'fast-check';
import { type StepSearchOptions, searchStep } from '../../../src/api/planning/search-step.js';
import { AutoparError } from '../../../src/ir/error.js';
import { thinned } from '../../selection.js';

const LOSS = { kind: 'cross_entropy' } as const;

const MODELS: Readonly<Record<string, StepSearchOptions>> = {
  'GPT-3 175B on 1,024 A100': {
    generate: 'gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=51200',
    ...{ cluster: '128x8:a100-sxm-80', globalBatch: 1536 },
  },
  'Llama 3 405B on 16,384 H100': {
    generate: 'llama:layers=126,hidden=16384,heads=128,kv_heads=8,ffn=53248,seq=8192,vocab=128256',
    ...{ cluster: '2048x8:h100-sxm-80', globalBatch: 2048 },
  },
  'Llama 3 70B on 64 H100': {
    generate: 'llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,seq=8192,vocab=128256',
    ...{ cluster: '8x8:h100-sxm-80', globalBatch: 128 },
  },
};

const SEED = 20261123;
const PINS_OF_EACH = 3;

const pins = fc.record(
  {
    pp: fc.constantFrom(1, 2, 4, 8, 16, 32),
    tp: fc.constantFrom(1, 2, 4, 8),
    sp: fc.constantFrom(1, 2, 4, 8),
    zero: fc.constantFrom(0 as const, 1 as const, 3 as const),
    recompute: fc.constantFrom('none' as const, 'selective' as const, 'full' as const),
    schedule: fc.constantFrom('1f1b' as const, 'interleaved-1f1b' as const, 'zero-bubble' as const),
    microBatch: fc.constantFrom(1, 2, 4),
  },
  { requiredKeys: [] },
);

for (const [name, model] of thinned(Object.entries(MODELS), 2))
  test.serial(`no pin beats the plan of ${name} (seed ${SEED})`, async (t) => {
    const asked = { ...model, loss: LOSS, precision: 'bf16' } as const;
    const { simulation } = await searchStep(asked);
    for (const pin of fc.sample(pins, { numRuns: PINS_OF_EACH, seed: SEED })) {
      const pinned = await searchStep({ ...asked, ...pin }).catch((error: unknown) => {
        if (error instanceof AutoparError) return null;
        throw error;
      });
      if (!pinned) continue;
      const { stepSeconds } = pinned.simulation;
      t.true(
        stepSeconds >= simulation.stepSeconds,
        `${JSON.stringify(pin)}: ${stepSeconds} < ${simulation.stepSeconds}`,
      );
    }
  });
