/**
 * @file The bytes that ranks of a pipeline count while they run against those that its lowered stages say: every collective and
 * every transfer of a step, for each rank.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { lowerPlan } from '../../src/api/planning/lower-plan.js';
import { openCompiled } from '../../src/api/verify.js';
import type { ShardedGraph } from '../../src/partition/sharded-graph.js';
import { runProgram } from '../../src/runtime/run-program.js';
import type { ScheduleKind } from '../../src/schedule/schedule.js';
import type { InnerDegrees, SpMethod } from '../../src/sharding-propagation/roles.js';
import { selection } from '../selection.js';
import { sentBytes } from './compiled-training.js';
import { writeModel } from './models.js';

const CASES: readonly {
  readonly model: string;
  readonly degrees: InnerDegrees & { readonly pp: number };
  readonly meshes?: string;
  readonly schedule?: ScheduleKind;
  readonly virtualStages?: number;
  readonly spMethod?: SpMethod;
}[] = [
  { model: 'gpt-tiny', degrees: { pp: 2 }, meshes: 'dp2 tp2 | tp4', schedule: 'zero-bubble' },
  { model: 'gpt-tiny', degrees: { pp: 1, dp: 1, sp: 2, tp: 2 }, spMethod: 'ulysses' },
  { model: 'gpt-tiny', degrees: { pp: 2, dp: 1, tp: 1 } },
  { model: 'gpt-tiny', degrees: { pp: 2, dp: 1, tp: 2 }, schedule: 'zero-bubble' },
  { model: 'llama-tiny', degrees: { pp: 2, dp: 2, tp: 1 }, virtualStages: 2 },
  { model: 'gpt-tiny', degrees: { pp: 2 }, meshes: 'tp2 | dp2' },
  { model: 'mlp', degrees: { pp: 3, dp: 1, tp: 2 }, schedule: 'f-then-b' },
  { model: 'llama-tiny', degrees: { pp: 2, dp: 1, sp: 2, tp: 1 }, spMethod: 'gather' },
  { model: 'soft-experts', degrees: { pp: 1, dp: 4, tp: 1, ep: 2 } },
  { model: 'soft-experts', degrees: { pp: 2, dp: 2, sp: 2, tp: 1, ep: 4 } },
];

/** The first cases of each model: between them they have every kind of option. */
for (const [, { model, degrees, ...options }] of selection(CASES, ({ model }) => model, 1)) {
  const name = Object.entries(degrees).map(([axis, size]) => `${axis} ${size}`);
  test(`counted bytes are those of the lowered stages: ${[model, ...name, options.meshes ?? ''].join(' ')}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    try {
      const output = join(folder, 'compiled');
      const file = model === 'soft-experts' ? join(folder, 'model.onnx') : `models/${model}.onnx`;
      if (model === 'soft-experts') writeModel(model, file);
      const training = {
        loss: { kind: model === 'mlp' || model === 'soft-experts' ? ('mse' as const) : ('cross_entropy' as const) },
        optimizer: { kind: 'sgd' as const, learningRate: 0.1, clipNorm: 0.5 },
        microBatches: 2,
      };
      const { plan } = await compile({ model: file, output, training, degrees, axes: 'roles', ...options });
      const { imported, planned } = await openCompiled(output);
      const { lowered } = lowerPlan(plan, planned.graph);
      const { ranks } = await runProgram(output, randomInputs(imported.graph, 1), { steps: 1, collect: [] });
      const perStage = ranks.length / lowered.length;
      for (const [rank, { bytesCommunicated }] of ranks.entries()) {
        const stage = lowered[Math.floor(rank / perStage)]?.sharded as ShardedGraph;
        t.is(bytesCommunicated, sentBytes(stage), `rank ${rank}`);
      }
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
}
