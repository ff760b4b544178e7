/**
 * @file One price: `compile`, `explain`, `simulate` of the written plan and the JSON that they print give the same seconds and
 * bytes to the digit, and say what was priced.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { languageModel } from '../../models/language-model.js';
import { compile, type NestedCompileOptions } from '../../src/api/compile.js';
import { explainPlan } from '../../src/api/reports/plan-summary.js';
import { simulatePlan } from '../../src/api/reports/simulate-plan.js';
import { resultJson } from '../../src/cli/compile-report.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import type { Plan } from '../../src/strategy/plan.js';
import { gptSizes } from '../cost-model/step/sizes.js';
import { EVERYTHING } from '../selection.js';

const TRAINING = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;

function folderOf(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function written(folder: string): Plan {
  return JSON.parse(readFileSync(join(folder, 'plan.json'), 'utf8')) as Plan;
}

/** Choices of plans, chosen among training steps as well. */
const PROGRAMS: readonly Omit<NestedCompileOptions, 'model'>[] = [
  { degrees: { dp: 2, tp: 2 } },
  { degrees: { dp: 1, tp: 2, pp: 2 }, zero: 1 },
  { degrees: { dp: 2, tp: 1, sp: 2 }, recompute: 'full' },
  { degrees: { pp: 2 }, training: { ...TRAINING, microBatches: 4 }, schedule: 'zero-bubble' },
  { zero: 3, headroom: 0.5 },
];

for (const options of EVERYTHING ? PROGRAMS : PROGRAMS.slice(1, 2))
  test(`a plan has one price: ${JSON.stringify(options)}`, async (t) => {
    const folder = folderOf(t);
    const model = join(folder, 'model.onnx');
    const sizes = gptSizes({ hidden: 16, heads: 2, sequence: 8, vocabulary: 32, layers: 2, batch: 8 });
    writeFileSync(model, writeOnnx(languageModel('gpt', sizes, 1)));
    const output = join(folder, 'out');
    const named = { model, output, training: TRAINING, cluster: '1x4:a100-sxm-80', planOnly: true };
    const result = await compile({ ...named, ...options });
    const { predicted } = written(output);
    const again = await simulatePlan(output);
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

test('what was compared with a plan has bytes of the same things: tensors, not what the device holds besides', async (t) => {
  const folder = folderOf(t);
  const model = join(folder, 'model.onnx');
  const sizes = gptSizes({ hidden: 256, heads: 4, sequence: 128, vocabulary: 512, layers: 4, batch: 16 });
  writeFileSync(model, writeOnnx(languageModel('gpt', sizes, 1)));
  const named = { model, output: join(folder, 'out'), training: TRAINING, cluster: '1x2:a100-sxm-80', planOnly: true };
  const { comparison } = await compile(named);
  const lowered = (comparison.compared ?? []).filter(({ estimate, peakBytes }) => estimate && peakBytes);
  t.true(lowered.length > 0);
  for (const { estimate, peakBytes } of lowered) {
    const times = (estimate?.peakBytes ?? 0) / (peakBytes ?? 1);
    // A device's context alone takes ten times as much.
    t.true(times > 0.5 && times < 2, `${estimate?.peakBytes} of ${peakBytes}`);
  }
  for (const verdict of comparison.proposals?.verdicts ?? [])
    if (verdict.kind === 'priced') t.true(verdict.peakBytes < 400e6, `${verdict.peakBytes}`);
});
