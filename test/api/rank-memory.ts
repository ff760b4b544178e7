/**
 * @file Bytes that the runtime counts against those that the plan predicts, at the peak of a rank of this machine.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import type { Training } from '../../src/api/models/training.js';
import { openCompiled } from '../../src/api/verify.js';
import { runProgram } from '../../src/runtime/run-program.js';

export interface MemoryCase {
  readonly model: string;
  readonly dims?: Readonly<Record<string, number>>;
  readonly globalBatch?: number;
  readonly training?: Training;
  readonly precision?: 'bf16';
  readonly degrees: { readonly dp: number; readonly tp: number };
}

/** Bytes that the plan predicts, and the most that any rank counts in two steps. */
export async function predictedAndCounted(given: MemoryCase): Promise<{ predicted: number; counted: number }> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const { dp, tp } = given.degrees;
    const output = join(folder, 'compiled');
    const { plan } = await compile({ ...given, output, devices: dp * tp, axes: 'roles' });
    const { imported } = await openCompiled(output);
    const { ranks } = await runProgram(output, randomInputs(imported.graph, 3), { steps: 2 });
    return {
      predicted: Math.max(...plan.predicted.peakBytes),
      counted: Math.max(...ranks.map(({ peakBytes }) => peakBytes)),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const ADAMW: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } };
const MOMENTUM: Training = { loss: { kind: 'mse' }, optimizer: { kind: 'sgd', learningRate: 1e-3, momentum: 0.9 } };

/** Inference and training on one rank, two and four. */
export const CHOICES: readonly Pick<MemoryCase, 'degrees' | 'training' | 'globalBatch' | 'precision'>[] = [
  { degrees: { dp: 1, tp: 1 } },
  { degrees: { dp: 1, tp: 2 } },
  { degrees: { dp: 1, tp: 2 }, precision: 'bf16' },
  { degrees: { dp: 2, tp: 2 }, globalBatch: 4 },
  { degrees: { dp: 1, tp: 1 }, training: ADAMW },
  { degrees: { dp: 2, tp: 1 }, training: MOMENTUM, globalBatch: 4 },
  { degrees: { dp: 2, tp: 2 }, training: ADAMW, globalBatch: 4 },
  { degrees: { dp: 2, tp: 1 }, training: { ...ADAMW, microBatches: 2 }, globalBatch: 8 },
];
