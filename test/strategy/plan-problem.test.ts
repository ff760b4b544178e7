/**
 * @file A plan is checked as a whole wherever it is read: in drawn plans of shipped models, each single edit is refused with its
 * place and both values, and the plan as it was written is not.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { compile } from '../../src/api/compile.js';
import { generatedFile } from '../../src/api/models/generated.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Plan } from '../../src/strategy/plan.js';
import { planFromJson, planToJson } from '../../src/strategy/plan-json.js';
import { workplace } from '../bad-input/refusal.js';
import { autopar } from '../cli/autopar.js';
import { EVERYTHING, slowTests } from '../selection.js';
import { singleEdits } from './plan-edits.js';

const slow = slowTests(test);

const training = { loss: { kind: 'cross_entropy' as const }, optimizer: { kind: 'sgd' as const, learningRate: 0.1 } };

slow('drawn plans of shipped models: as written they are read, each single edit is refused', async (t) => {
  const folder = workplace(t);
  const degree = fc.constantFrom(1, 2);
  const model = fc.constantFrom('mlp', 'gpt-tiny', 'llama-tiny');
  await fc.assert(
    fc.asyncProperty(model, degree, degree, fc.boolean(), async (name, dp, tp, trains) => {
      const step = trains && name === 'gpt-tiny' ? { training, microBatch: 1, globalBatch: 8 } : {};
      const { plan } = await compile({
        model: join(folder, 'models', `${name}.onnx`),
        degrees: { dp, tp },
        axes: 'roles',
        output: join(folder, 'd'),
        ...step,
        planOnly: true,
      });
      checkEdits(plan);
    }),
    { numRuns: 8, seed: 1, includeErrorInReport: true },
  );
  t.pass();
});

slow('plans of training steps', async (t) => {
  const folder = workplace(t);
  const model = await generatedFile('gpt:layers=4,hidden=32,heads=4,seq=16,vocab=64', 16);
  const cases = [{}, { pp: 2 }, { pp: 2, schedule: 'interleaved-1f1b' as const, microBatches: 4 }, { sp: 2, tp: 2 }];
  for (const { schedule, microBatches = 1, ...degrees } of EVERYTHING ? cases : cases.slice(1, 2)) {
    const { plan } = await compile({
      ...{ model, cluster: '2x4:a100-sxm-80', planOnly: true, degrees, output: join(folder, 'd') },
      ...(schedule ? { schedule } : {}),
      training: { ...training, microBatches },
    });
    checkEdits(plan);
  }
  t.pass();
});

/** @throws Error naming the first edit that is not refused as it should be */
function checkEdits(plan: Plan): void {
  planFromJson(planToJson(plan), 'plan.json');
  for (const { name, plan: edited } of singleEdits(plan)) {
    const error = refusal(JSON.stringify(edited));
    if (error?.code !== 'plan-invalid') throw new Error(`${name}: ${error?.message ?? 'not refused'}`);
  }
}

function refusal(text: string): AutoparError | null {
  try {
    planFromJson(text, 'plan.json');
    return null;
  } catch (error) {
    if (error instanceof AutoparError) return error;
    throw error;
  }
}

test('the place and both values are named', async (t) => {
  const folder = workplace(t);
  const { plan } = await compile({
    model: join(folder, 'models/mlp.onnx'),
    degrees: { tp: 2, dp: 1 },
    axes: 'roles',
    output: join(folder, 'd'),
  });
  const [first = ''] = Object.keys(plan.operators);
  const said = (change: object) => refusal(JSON.stringify({ ...plan, ...change }))?.message ?? '';
  t.regex(said({ degrees: { ...plan.degrees, tp: 8 } }), /mesh\.1\.size \(tp\) is 2, degrees\.tp is 8/);
  t.regex(said({ degrees: { ...plan.degrees, pp: 4 } }), /degrees\.pp is 4, mesh has no axis pp/);
  t.regex(said({ schedule: { ...plan.schedule, microBatches: 8 } }), /schedule\.microBatches is 8, training is null/);
  const operators = { ...plan.operators, [first]: { ...plan.operators[first], stage: 7 } };
  t.regex(said({ operators }), /operators\..*\.stage is 7, stages has 1/);
  t.regex(said({ mesh: [{ axis: 'tp', size: 2147483647 }] }), /mesh\.0\.size is 2147483647, must be <= 1048576/);
});

test('every command that reads a plan refuses an edited one', async (t) => {
  const folder = workplace(t);
  const { plan } = await compile({
    model: join(folder, 'models/mlp.onnx'),
    degrees: { tp: 2 },
    axes: 'roles',
    output: join(folder, 'd'),
  });
  const edited = JSON.stringify({ ...plan, degrees: { ...plan.degrees, pp: 4 } });
  for (const file of ['d/plan.json', 'edited.plan.json']) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), edited);
  }
  const lines = [
    ['run', 'd'],
    ['verify', 'd'],
    ['explain', 'd', '--rejected'],
    ['explain', 'd', '--tensor', 'x'],
    ['groups', 'd'],
    ['strategy', 'show', 'd'],
    ['strategy', 'show', 'edited.plan.json'],
    ['strategy', 'convert', 'd', '-o', 'o.plan.json'],
    ['strategy', 'convert', 'd', '-o', 'o.ckpt'],
    ['strategy', 'export', 'd', '--onnx', 'o.onnx'],
    ['strategy', 'diff', 'd', 'edited.plan.json'],
    ['strategy', 'merge', 'd', '-o', 'o.ckpt'],
  ];
  for (const words of lines) {
    const { code, stderr } = await autopar(words, { cwd: folder });
    t.is(code, 3, `${words.join(' ')}: ${stderr}`);
    t.regex(stderr, /^error\[plan-invalid\]: .*degrees\.pp is 4/, words.join(' '));
  }
});
