/**
 * @file One price: `compile`, `explain`, `simulate` of the written plan and the JSON that they print give the same seconds and bytes
 * to the digit, and say what was priced.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { languageModel } from '../../models/language-model.js';
import { compile, type NestedCompileOptions } from '../../src/api/compile.js';
import { compileStep } from '../../src/api/compile-step.js';
import { explainStep } from '../../src/api/explain-step.js';
import { explainPlan } from '../../src/api/plan-summary.js';
import type { StepSearchOptions } from '../../src/api/search-step.js';
import { simulatePlan } from '../../src/api/simulate-plan.js';
import { resultJson } from '../../src/cli/compile-report.js';
import { simulationJson } from '../../src/cli/simulate-report.js';
import { stepJson } from '../../src/cli/step-report.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import type { Plan } from '../../src/strategy/plan.js';
import { gptSizes } from '../cost-model/step/sizes.js';

const TRAINING = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;

function folderOf(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function written(folder: string): Plan {
  return JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8')) as Plan;
}

const GPT = 'gpt:layers=6,hidden=512,heads=8,seq=512,vocab=1000';
const MOE = 'moe:layers=4,hidden=256,heads=8,seq=128,experts=4,vocab=1000';

/** Choices of training steps, uneven stages among them. */
const STEPS: readonly StepSearchOptions[] = [
  { generate: GPT, cluster: '1x4:h100-sxm-80', globalBatch: 16 },
  { generate: GPT, cluster: '1x4:h100-sxm-80', globalBatch: 16, pp: 4, schedule: 'zero-bubble' },
  { generate: GPT, cluster: '2x4:h100-sxm-80', globalBatch: 16, pp: 2, tp: 2, virtualStages: 3, zero: 1 },
  { generate: GPT, cluster: '2x4:h100-sxm-80', globalBatch: 16, sp: 2, recompute: 'full', zero: 3 },
  { generate: MOE, cluster: '1x4:h100-sxm-80', globalBatch: 16, ep: 2 },
];

for (const options of STEPS)
  test(`a training step has one price: ${JSON.stringify(options)}`, async (t) => {
    const output = folderOf(t);
    const compiled = await compileStep({ ...options, output, training: TRAINING });
    const { predicted } = written(output);
    const { simulation } = compiled.search;
    const explained = await explainStep(output, { sensitivity: false });
    const again = await simulatePlan(join(output, 'plan.json'));
    if (again.kind !== 'step') return t.fail();
    t.deepEqual(simulationJson(again.simulation), simulationJson(simulation));
    t.deepEqual(simulationJson(explained.search.simulation), simulationJson(simulation));
    t.is(predicted.stepSeconds, simulation.stepSeconds);
    t.is(predicted.priceLevel, 'simulated');
    t.is(compiled.search.best[0]?.seconds, simulation.stepSeconds);
    const { stepSeconds, priceLevel, predicted: shown } = stepJson(compiled) as Record<string, unknown>;
    t.deepEqual([stepSeconds, priceLevel], [predicted.stepSeconds, 'simulated']);
    t.like(shown, { stepSeconds, peakBytes: simulation.stages.map(({ total }) => Math.round(total)) });
  });

/** Choices of programs. */
const PROGRAMS: readonly Omit<NestedCompileOptions, 'model'>[] = [
  { degrees: { dp: 2, tp: 2 } },
  { degrees: { dp: 1, tp: 2, pp: 2 }, zero: 1 },
  { degrees: { dp: 2, tp: 1, sp: 2 }, recompute: 'full' },
];

for (const options of PROGRAMS)
  test(`a program has one price: ${JSON.stringify(options)}`, async (t) => {
    const folder = folderOf(t);
    const model = join(folder, 'model.onnx');
    const sizes = gptSizes({ hidden: 16, heads: 2, sequence: 8, vocabulary: 32, layers: 2, batch: 8 });
    writeFileSync(model, writeOnnx(languageModel('gpt', sizes, 1)));
    const output = join(folder, 'out');
    const named = { model, output, training: TRAINING, cluster: '1x4:a100-sxm-80', planOnly: true };
    const result = await compile({ ...named, ...options });
    const { predicted } = written(output);
    const again = await simulatePlan(output);
    if (again.kind !== 'sharding') return t.fail();
    t.is(predicted.priceLevel, 'lowered');
    t.deepEqual(JSON.parse(JSON.stringify(again.prediction)), predicted);
    t.deepEqual((await explainPlan(output)).plan.predicted, predicted);
    const { stepSeconds, peakBytes, priceLevel } = predicted;
    t.like(resultJson(result).predicted, { stepSeconds, peakBytes, priceLevel });
    t.deepEqual(
      result.memory.map((stage) => stage.peakBytes),
      peakBytes,
    );
  });
