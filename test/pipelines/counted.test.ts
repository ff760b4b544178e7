/**
 * @file The bytes that ranks of a pipeline count while they run against those that its lowered stages say: every collective and
 * every transfer of a step, for each rank.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/inputs.js';
import { lowerPlan } from '../../src/api/lower-plan.js';
import { openCompiled } from '../../src/api/verify.js';
import { communicatedBytes } from '../../src/cost-model/price.js';
import { runsPerStep } from '../../src/ir/graph.js';
import { localBytes } from '../../src/partition/partition.js';
import type { ShardedGraph } from '../../src/partition/sharded-graph.js';
import { runProgram } from '../../src/runtime/run-program.js';
import type { ScheduleKind } from '../../src/schedule/schedule.js';

const CASES: readonly {
  readonly model: string;
  readonly degrees: { readonly pp: number; readonly dp?: number; readonly tp?: number };
  readonly meshes?: string;
  readonly schedule?: ScheduleKind;
  readonly virtualStages?: number;
}[] = [
  { model: 'gpt-tiny', degrees: { pp: 2, dp: 1, tp: 1 } },
  { model: 'gpt-tiny', degrees: { pp: 2, dp: 1, tp: 2 }, schedule: 'zero-bubble' },
  { model: 'llama-tiny', degrees: { pp: 2, dp: 2, tp: 1 }, virtualStages: 2 },
  { model: 'gpt-tiny', degrees: { pp: 2 }, meshes: 'tp2 | dp2' },
  { model: 'gpt-tiny', degrees: { pp: 2 }, meshes: 'dp2 tp2 | tp4', schedule: 'zero-bubble' },
  { model: 'mlp', degrees: { pp: 3, dp: 1, tp: 2 }, schedule: 'f-then-b' },
];

for (const { model, degrees, ...options } of CASES) {
  const name = Object.entries(degrees).map(([axis, size]) => `${axis} ${size}`);
  test(`counted bytes are those of the lowered stages: ${[model, ...name, options.meshes ?? ''].join(' ')}`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
    try {
      const output = join(folder, 'compiled');
      const training = {
        loss: { kind: model === 'mlp' ? ('mse' as const) : ('cross_entropy' as const) },
        optimizer: { kind: 'sgd' as const, learningRate: 0.1, clipNorm: 0.5 },
        microBatches: 2,
      };
      const { plan } = await compile({ model: `models/${model}.onnx`, output, training, degrees, ...options });
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

/** Bytes that a rank of a stage sends in a step. */
function sentBytes(stage: ShardedGraph): number {
  const collectives = stage.nodes.reduce(
    (sum, node) => sum + runsPerStep(node.phase, stage) * communicatedBytes(node, stage),
    0,
  );
  const sends = (stage.pipeline?.sends ?? []).reduce((sum, { tensor, when }) => {
    const type = stage.tensors.get(tensor);
    return sum + (when === 'micro' ? (stage.microBatches?.count ?? 1) : 1) * (type ? localBytes(type) : 0);
  }, 0);
  return collectives + sends;
}
