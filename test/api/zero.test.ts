/**
 * @file A ZeRO level as a user sets it: what the result reports about it, where it changes nothing, what contradicts it, and
 * that a plan that is read again gives the same program.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../models/families.js';
import { randomInputs } from '../../src/api/execution/inputs.js';
import { AutoparError, annotationsOf, type CompileOptions, compile, explainMemory } from '../../src/api/index.js';
import { clusterOf, lowerPlan, programOfPlan } from '../../src/api/planning/lower-plan.js';
import { openCompiled } from '../../src/api/verify.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { runProgram } from '../../src/runtime/run-program.js';
import { readPlan } from '../../src/strategy/plan-json.js';
import { gatheredBytes } from '../pipelines/kept-bytes.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const TRAINING: NonNullable<CompileOptions['training']> = {
  loss: { kind: 'mse' },
  optimizer: { kind: 'adam', learningRate: 0.01 },
  microBatches: 2,
};

async function within<Result>(work: (output: string) => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    return await work(join(folder, 'out'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function compiled(output: string, options: Partial<CompileOptions>) {
  return compile({ model: 'models/mlp.onnx', output, training: TRAINING, degrees: { dp: 2, tp: 1 }, ...options });
}

test('the result and explain name the level that layouts amount to', async (t) => {
  for (const zero of [0, 1, 2, 3] as const) {
    await within(async (output) => {
      const { kept } = await compiled(output, { zero });
      t.is(kept?.level, zero);
      t.deepEqual(kept?.axes, ['dp']);
      const cut = Object.values(kept?.parts ?? {}).filter(({ bytes, wholeBytes }) => bytes < 0.51 * wholeBytes);
      t.is(cut.length, zero);
      t.deepEqual((await explainMemory(output)).kept, kept);
    });
  }
});

test('in a pipeline the state is what a rank of the fullest stage holds', async (t) => {
  await within(async (output) => {
    const { kept, memory } = await compiled(output, {
      ...{ zero: 1, degrees: { pp: 2, dp: 2, tp: 1 }, cluster: '1x4:a100-sxm-80', planOnly: true },
    });
    const peaks = memory.map(({ peakBytes }) => peakBytes);
    const fullest = peaks.indexOf(Math.max(...peaks));
    const { parts = null, stage } = kept ?? {};
    t.is(stage, fullest);
    t.is(parts?.state.bytes, memory[fullest]?.kinds['optimizer state']);
    t.true((parts?.state.bytes ?? 0) < 0.51 * (parts?.state.wholeBytes ?? 0));
    t.deepEqual((await explainMemory(output)).kept, kept);
  });
});

slow('experts stay on the ranks that they are spread over, whatever the level', async (t) => {
  const experts = 'moe:layers=1,hidden=64,heads=4,kv_heads=4,ffn=128,seq=32,vocab=256,experts=4,topk=2,batch=8';
  const parameters = 4 * 3 * 64 * 128;
  for (const zero of [0, 1, 2] as const) {
    await within(async (output) => {
      const model = `${output}.onnx`;
      writeFileSync(model, writeOnnx(generatedModel(experts).build(8)));
      const { kept, communication, verification } = await compile({
        ...{ model, output, zero, degrees: { dp: 4, tp: 1, ep: 4 }, initRandom: true, verify: true },
        training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adam', learningRate: 0.01 } },
      });
      t.true(verification?.passed);
      t.is(kept?.level, zero);
      const ofExperts = /experts\.(up|down).*update/;
      t.deepEqual(
        communication.filter(({ kind, label }) => kind === 'all-gather' && ofExperts.test(label)),
        [],
      );
      // A rank has one of the four experts of each layer, and everything else whole; level 1 shards the state of the latter.
      const { parameter, state } = kept?.parts ?? {};
      t.true((parameter?.bytes ?? 0) >= parameters);
      const moments = (state?.bytes ?? 0) / (parameter?.bytes ?? 1);
      t.true(zero === 0 ? moments >= 2 : moments < 1.95, `${moments} times the parameters`);
      t.is(parameter?.bytes, parameter?.wholeBytes);
    });
  }
});

slow(
  'weights in float32 of which micro-batches read copies in 16 bit are state, in one micro-batch as in several',
  async (t) => {
    for (const microBatches of [1, 2])
      await within(async (output) => {
        const { kept, verification } = await compiled(output, {
          ...{ cluster: '1x2:h100-sxm-80', zero: 1, training: { ...TRAINING, microBatches, precision: 'fp16' } },
          verify: true,
        });
        t.true(verification?.passed);
        t.is(kept?.level, 1);
        // Moments and weights, of which each of two ranks has half.
        const { state } = kept?.parts ?? {};
        const weights = 32 * 64 + 64 * 64 + 64 * 16;
        t.true((state?.wholeBytes ?? 0) >= 3 * 4 * weights, `${state?.wholeBytes} B of ${weights} weights`);
        t.true((state?.bytes ?? 0) < 0.51 * (state?.wholeBytes ?? 0));
      });
  },
);

test('a plan that is read again lowers to the same program', async (t) => {
  await within(async (output) => {
    await compiled(output, { zero: 3, degrees: { dp: 2, tp: 2 } });
    const { planned, program } = await openCompiled(output);
    const plan = await readPlan(join(output, 'plan.json'));
    t.deepEqual(plan.requested, { zero: 3 });
    const again = programOfPlan(lowerPlan(plan, planned.graph), plan, clusterOf(plan)).program;
    t.deepEqual(
      again.stages.map(({ phases }) => phases),
      program.stages.map(({ phases }) => phases),
    );
    t.deepEqual(again.state, program.state);
  });
});

slow('weights that are not trained rest in parts too: in inference, in stages, frozen ones', async (t) => {
  const cases: readonly Partial<CompileOptions>[] = [
    { degrees: { dp: 2, tp: 2 } },
    { degrees: { pp: 2, dp: 2, tp: 1 } },
    { degrees: { dp: 2, tp: 1 }, training: { ...TRAINING, frozen: ['fc0.*'] } },
    // Readers of the table of tokens may ask for a part of it over dp themselves.
    { model: 'models/gpt-tiny.onnx', degrees: { dp: 4, tp: 1 }, axes: 'free' },
  ];
  for (const options of cases) {
    await within(async (output) => {
      const { kept, verification } = await compile({
        model: 'models/mlp.onnx',
        output,
        axes: 'roles',
        zero: 3,
        verify: true,
        ...options,
      });
      const { bytes = 1, wholeBytes = 1 } = kept?.parts.parameter ?? {};
      t.true(bytes < 0.51 * wholeBytes, `${bytes} of ${wholeBytes} B`);
      t.is(kept?.level, 3);
      t.true(verification?.passed);
      const { planned, program } = await openCompiled(output);
      const plan = await readPlan(join(output, 'plan.json'));
      const again = programOfPlan(lowerPlan(plan, planned.graph), plan, clusterOf(plan)).program;
      t.deepEqual(
        again.stages.map(({ phases }) => phases),
        program.stages.map(({ phases }) => phases),
      );
    });
  }
});

slow('weights of inference are gathered in messages ahead of their layer, which changes no result', async (t) => {
  const text = 'gpt:layers=6,hidden=16,heads=2,ffn=64,seq=4,vocab=32';
  const ran = async (options: Partial<CompileOptions>) =>
    within(async (output) => {
      const model = `${output}.onnx`;
      writeFileSync(model, writeOnnx(generatedModel(text).build(2)));
      const { verification, plan } = await compile({
        ...{ model, output, degrees: { dp: 2, tp: 1 }, axes: 'roles', verify: true, initRandom: true },
        ...options,
      });
      const { program, imported } = await openCompiled(output);
      const run = await runProgram(output, randomInputs(imported.graph, 1));
      const starts = program.stages
        .flatMap(({ phases }) => Object.values(phases).flat())
        .flatMap((each) => (each.kind === 'start' ? [each.bucket] : []));
      const peaks = run.ranks.map(({ peakBytes }) => peakBytes);
      t.true(verification?.passed);
      t.deepEqual([Math.max(...peaks)], plan.predicted.peakBytes);
      if (options.zero === 3) {
        const { planned } = await openCompiled(output);
        const { most, layer } = gatheredBytes(lowerPlan(plan, planned.graph).lowered);
        t.true(most > 0 && most <= 2 * layer, `${most} B of ${layer} B a layer`);
      }
      return { tensors: run.tensors, starts, peak: Math.max(...peaks) };
    });
  const [whole, plain, ahead] = [await ran({}), await ran({ zero: 3 }), await ran({ zero: 3, bucket: 25e6 })];
  for (const { peak } of [plain, ahead]) t.true(peak < whole.peak, `${peak} of ${whole.peak} B`);
  t.deepEqual(ahead.tensors, plain.tensors);
  t.is(ahead.starts.length, plain.starts.length);
  t.true(ahead.starts.every((bucket) => bucket !== undefined));
});

test('where a level changes nothing, a note says so; where nothing has the state that it shards, it is refused', async (t) => {
  await within(async (output) => {
    const { notes } = await compiled(output, { zero: 2, degrees: { dp: 1, tp: 2 } });
    t.true(notes.some((note) => note.startsWith('--zero 2 changes nothing: dp is 1')));
  });
  await within(async (output) => {
    const inference = { model: 'models/mlp.onnx', output, degrees: { dp: 2, tp: 1 } };
    for (const zero of [1, 2] as const) {
      const error = await t.throwsAsync(compile({ ...inference, zero }), { instanceOf: AutoparError });
      t.is((error as AutoparError).code, 'bad-option');
      t.regex(error?.message ?? '', /applies to training only: inference stores no optimizer state and gradients/);
    }
    await t.notThrowsAsync(compile({ ...inference, zero: 3 }));
  });
});

test('pins that contradict a level are named beside it', async (t) => {
  const pinned = (layout: string) => annotationsOf({ version: 1, pins: [{ match: { tensor: 'fc0.weight' }, layout }] });
  const refused = async (options: Partial<CompileOptions>) => {
    const error = await within((output) => t.throwsAsync(compiled(output, options), { instanceOf: AutoparError }));
    return error?.message ?? '';
  };
  t.regex(await refused({ zero: 3, annotations: pinned('[-, -]') }), /layout \[-, -\].* and zero: 3: .*fc0\.weight/);
  t.regex(await refused({ zero: 1, annotations: pinned('[dp, -]') }), /layout \[dp, -\].* and zero: 1: .*fc0\.weight/);
  t.regex(await refused({ zero: 1, mode: 'hybrid' }), /mode: '?hybrid'? and zero: 1/);
  t.regex(await refused({ zero: 1, complete: 'propagate' }), /zero: 1 .* complete: '?propagate/);
  t.regex(
    await refused({ zero: 1, timeLimit: 1e-6 }),
    /time limit of 0\.000001 s ended before a plan with the requested ZeRO level/,
  );
  await within(async (output) =>
    t.is((await compiled(output, { zero: 3, annotations: pinned('[dp, -]') })).kept?.level, 3),
  );
});
