/**
 * @file 16-bit recipes on local ranks: gpt-tiny's losses are near those of PyTorch's autocast on one rank, and on two and four
 * ranks near those of one.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile } from '../../src/api/compile.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { labelBounds } from '../../src/api/execution/labels.js';
import type { Training } from '../../src/api/models/training.js';
import { openCompiled } from '../../src/api/verify.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { missing } from '../missing.js';
import { type Arrays, startTorch, torchAbsence } from '../reference/torch.js';

const MODEL = 'models/gpt-tiny.onnx';
const STEPS = 10;
const RECIPES = [
  { precision: 'fp16', autocast: 'float16', tolerance: 5e-3 },
  { precision: 'bf16', autocast: 'bfloat16', tolerance: 2e-2 },
] as const;

interface Run {
  readonly losses: readonly number[];
  readonly inputs: Arrays;
  readonly trained: readonly string[];
}

async function run(t: ExecutionContext, precision: Training['precision'], dp: number, tp: number): Promise<Run> {
  const output = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(output, { recursive: true, force: true }));
  const training: Training = {
    loss: { kind: 'cross_entropy' },
    optimizer: { kind: 'adamw', learningRate: 3e-3 },
    ...(precision ? { precision } : {}),
  };
  await compile({
    ...{ model: MODEL, output, force: true, training, devices: dp * tp, degrees: { dp, tp }, axes: 'roles' },
  });
  const { imported } = await openCompiled(output);
  const inputs = randomInputs(imported.graph, 3, labelBounds(imported.training));
  const { history } = await runProgram(output, inputs, { steps: STEPS });
  const trained = [...(imported.graph.initial ?? [])].flatMap(([name, { role }]) =>
    role === 'parameter' ? [name] : [],
  );
  return { losses: history['loss'] ?? [], inputs, trained };
}

function near(t: ExecutionContext, got: readonly number[], wanted: readonly number[], tolerance: number): void {
  t.is(got.length, STEPS);
  const away = wanted.map((loss, step) => Math.abs((got[step] ?? Number.NaN) - loss) / loss);
  t.log(`worst ${Math.max(...away).toExponential(1)} of ${STEPS} steps`);
  for (const [step, loss] of wanted.entries())
    t.true(Math.abs((got[step] ?? Number.NaN) - loss) <= tolerance * loss, `step ${step}: ${got[step]} / ${loss}`);
}

for (const { precision, tolerance } of RECIPES)
  test.serial(`${precision}: two and four ranks take the steps of one`, async (t) => {
    const alone = await run(t, precision, 1, 1);
    t.true((alone.losses.at(-1) ?? 9) < 0.8 * (alone.losses[0] ?? 0), 'it learns');
    for (const [dp, tp] of [
      [2, 1],
      [1, 2],
      [2, 2],
    ] as const)
      near(t, (await run(t, precision, dp, tp)).losses, alone.losses, tolerance);
  });

const absence = torchAbsence();
if (missing(absence !== null, absence ?? '') !== null) test.skip(`${absence}`, () => undefined);
else
  test.serial("losses are near those of PyTorch's autocast", async (t) => {
    const torch = await startTorch();
    t.teardown(() => torch.close());
    for (const { precision, autocast, tolerance } of RECIPES) {
      const { losses, inputs, trained } = await run(t, precision, 1, 1);
      const reference = await torch.train({
        model: MODEL,
        parameters: trained,
        batches: [inputs],
        loss: { kind: 'cross_entropy', output: 'logits', labels: 'labels' },
        optimizer: { name: 'adamw', learningRate: 3e-3, weightDecay: 0.01, undecayed: trained.filter(isFlat) },
        steps: STEPS,
        autocast,
        ...(precision === 'fp16' ? { initialScale: 2 ** 16 } : {}),
      });
      near(t, losses, reference.losses, tolerance);
    }
  });

/** Biases and scales of gpt-tiny. */
function isFlat(name: string): boolean {
  return name.endsWith('.bias') || name.includes('ln_');
}
