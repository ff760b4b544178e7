/**
 * @file A parameter server in plan.json and in reports about it: the state in the plan is as the server keeps it, and
 * explanations name the collectives that the program has.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { explainTensor } from '../../../src/api/explain.js';
import { explainMemory, openExplainable } from '../../../src/api/explanations/explain-compiled.js';
import { AutoparError, compile } from '../../../src/api/index.js';
import { lowerPlan } from '../../../src/api/planning/lower-plan.js';
import { openCompiled } from '../../../src/api/verify.js';
import type { ErrorCode } from '../../../src/ir/error-codes.js';
import { diffPlans } from '../../../src/strategy/diff.js';
import type { Plan } from '../../../src/strategy/plan.js';
import { planFromJson } from '../../../src/strategy/plan-json.js';

const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(folder, { recursive: true, force: true }));

async function compiled(name: string, options: Partial<Parameters<typeof compile>[0]>) {
  const output = join(folder, name);
  const training = { loss: { kind: 'mse' as const }, optimizer: { kind: 'adam' as const, learningRate: 0.01 } };
  const result = await compile({ model: 'models/mlp.onnx', output, training, ...options });
  return { ...result, output, file: readFileSync(join(output, 'plan.json'), 'utf8') };
}

const SERVED = { dp: 2, tp: 2, axes: 'roles', gradientSync: 'parameter-server' } as const;

test.serial('a plan that contradicts its server is refused with both values', async (t) => {
  const { file, output } = await compiled('edited', SERVED);
  const plan = JSON.parse(file) as Plan;
  const { planned } = await openCompiled(output);
  const [state = '', text = ''] = Object.entries(plan.tensors).find(([, layout]) => layout.includes('first(dp)')) ?? [];
  const without = { ...plan.tensors, [state]: text.replace(' + first(dp)', '') };
  const parameter = Object.keys(plan.tensors).find((name) => `${name}/mean` === state || `${name}/square` === state);
  const { server: _, ...unserved } = plan;
  const cases: readonly (readonly [edited: object, code: ErrorCode, says: RegExp])[] = [
    [{ ...plan, server: ['tp'] }, 'plan-invalid', /server is tp, and the axes .* share parameters are dp/],
    [{ ...plan, server: [] }, 'plan-invalid', /server/],
    [{ ...plan, training: null }, 'plan-invalid', /server is dp, and training is null/],
    [unserved, 'plan-contradicts-itself', /is first\(dp\) in the plan, and on all ranks/],
    [{ ...plan, tensors: without }, 'plan-contradicts-itself', /is on all ranks in the plan, and first\(dp\)/],
    ...(parameter === undefined
      ? []
      : [
          [
            { ...plan, tensors: { ...plan.tensors, [parameter]: `${plan.tensors[parameter]} + first(dp)` } },
            'plan-contradicts-itself',
            /is first\(dp\) in the plan, and on all ranks/,
          ] as const,
        ]),
    [{ ...plan, tensors: { ...plan.tensors, [state]: `${text} + first(tp)` } }, 'plan-illegal', /first/],
  ];
  for (const [edited, code, says] of cases) {
    const error = t.throws(() => lowerPlan(planFromJson(JSON.stringify(edited), 'plan.json'), planned.graph), {
      instanceOf: AutoparError,
    });
    t.is(error?.code, code, error?.message);
    t.regex(error?.message ?? '', says);
  }
});

test.serial('explanations name the reduce and who holds state, at the price of the program', async (t) => {
  const { output, server, plan, communication } = await compiled('explained', { ...SERVED, planOnly: true });
  const { explainable } = await openExplainable(output);
  const steps = explainable.graph.nodes.flatMap(({ outputs }) =>
    outputs.flatMap((name) => (name === null ? [] : explainTensor(explainable, name).views)),
  );
  const reduced = steps.filter((view) => view.steps.includes('reduce(dp)'));
  const said = Object.values(plan.redistributions).flat();
  t.true(reduced.length > 0);
  t.true(said.some((view) => view.steps.includes('reduce(dp)')));
  const priced = communication.filter(({ kind }) => kind === 'reduce').map(({ seconds }) => seconds);
  for (const { seconds } of reduced) t.true(priced.includes(seconds), `${seconds} of ${priced}`);
  const state = explainable.graph.state.map(({ input }) => explainTensor(explainable, input));
  const alone = state.filter(({ layouts }) => layouts.some((layout) => layout.endsWith(' + first(dp)')));
  t.true(alone.length > 0 && alone.length < state.length);
  t.deepEqual((await explainMemory(output)).server, server);
});

test.serial('plans with a server and without differ in it', async (t) => {
  const [served, all] = [
    await compiled('served', { ...SERVED, planOnly: true }),
    await compiled('all', { dp: 2, tp: 2, zero: 0, planOnly: true }),
  ];
  t.is(all.server, null);
  const { settings } = diffPlans(all.plan, served.plan);
  t.true(settings.some(({ name }) => name === 'server'));
  t.truthy(served.server && served.server.peakBytes.others < served.server.peakBytes.server);
});
