/**
 * @file Inference is planned from proposals as training is: stages and separate experts where dp and tp alone do not fit, in
 * programs that are right; and no given degrees are faster than the ones that are chosen without them.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { generatedModel } from '../../../models/families.js';
import { compile, type NestedCompileOptions } from '../../../src/api/compile.js';
import type { Degrees } from '../../../src/cost-model/step/configuration.js';
import { AutoparError } from '../../../src/ir/error.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { divisors } from '../../../src/search/configurations/space.js';
import { slowTests } from '../../selection.js';

const slow = slowTests(test);

/** A generated model as a file, with random weights. */
function asked(t: ExecutionContext, text: string, cluster: string): NestedCompileOptions {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const model = join(folder, 'model.onnx');
  const generated = generatedModel(text);
  writeFileSync(model, writeOnnx(generated.build(generated.batch)));
  return { model, output: join(folder, 'out'), force: true, cluster, initRandom: true };
}

test('where dp alone does not fit, compile finds stages that do, and the program is right', async (t) => {
  const options = {
    ...asked(t, 'gpt:layers=4,hidden=64,heads=2,vocab=64,seq=32,batch=4', '1x4:h100-sxm-80'),
    ...{ degrees: { tp: 1 }, memory: 600_000 },
  };
  const { plan, compared, leftOut, verification } = await compile({ ...options, verify: true });
  t.true(plan.degrees.pp > 1);
  t.true(Math.max(...plan.predicted.peakBytes) <= 600_000);
  t.true(verification?.passed);
  t.is(compared?.[0]?.proposed?.inference, true);
  t.true(compared?.some(({ proposed, reason }) => proposed === null && /needs .* as lowered/.test(reason ?? '')));
  t.deepEqual(leftOut, []);
});

test('where all experts on each rank do not fit, compile spreads them, and the program is right', async (t) => {
  const options = {
    ...asked(t, `${EXPERTS},batch=4`, '1x4:h100-sxm-80'),
    ...{ degrees: { tp: 1 }, memory: 700_000 },
  };
  const { plan, verification } = await compile({ ...options, verify: true });
  t.true(plan.degrees.ep > 1);
  t.true(verification?.passed);
});

const EXPERTS = 'moe:layers=2,hidden=64,heads=4,kv_heads=4,experts=4,seq=32,ffn=128,vocab=64';

test('steps are proposed for as many ranks as the given degrees need', async (t) => {
  const options = asked(t, 'gpt:layers=1,hidden=32,heads=2,vocab=64,seq=16,batch=6', 'local');
  const { notes, searched, plan } = await compile({ ...options, planOnly: true, degrees: { dp: 3, tp: 1 } });
  t.is(plan.degrees.dp, 3);
  t.deepEqual(
    notes.filter((note) => note.includes('proposed')),
    [],
  );
  t.is(searched?.simulation.configuration.degrees.dp, 3);
});

slow('the least memory of a device is found among all degrees', async (t) => {
  const options = {
    ...asked(t, 'gpt:layers=2,hidden=64,heads=4,vocab=64,seq=32,batch=4', '1x4:h100-sxm-80'),
    planOnly: true,
  };
  const least = await compile({ ...options, objective: 'memory' });
  const fastest = await compile(options);
  t.true(Math.max(...least.plan.predicted.peakBytes) < Math.max(...fastest.plan.predicted.peakBytes));
});

for (const [of, text] of [
  ['fewer heads than ranks', 'llama:layers=2,hidden=64,heads=2,kv_heads=2,ffn=128,vocab=64,seq=64,batch=1'],
  ['few heads of keys', 'llama:layers=2,hidden=256,heads=8,kv_heads=1,ffn=128,vocab=64,seq=256,batch=1'],
] as const)
  test(`one sequence of ${of} has the same plan whether sp is given or not, and the program is right`, async (t) => {
    const options = asked(t, text, '1x4:h100-sxm-80');
    const open = await compile({ ...options, degrees: { dp: 1, tp: 1, pp: 1 }, verify: true });
    const given = await compile({ ...options, degrees: { sp: 4 }, verify: true });
    t.is(open.plan.degrees.sp, 4);
    t.is(given.plan.predicted.stepSeconds, open.plan.predicted.stepSeconds);
    t.true(open.verification?.passed);
    t.true(given.verification?.passed);
  });

for (const text of [
  'gpt:layers=2,hidden=1024,heads=16,vocab=1024,seq=2048',
  'llama:layers=2,hidden=1024,heads=16,vocab=1024,seq=2048,batch=2',
  `${EXPERTS},batch=4`,
])
  slow(`no degrees that are given are faster than the plan of ${text}`, async (t: ExecutionContext) => {
    const options = {
      ...asked(t, text, '2x2:h100-sxm-80'),
      ...({ planOnly: true, prefer: 'fastest', headroom: 0 } as const),
    };
    const { plan } = await compile(options);
    let planned = 0;
    for (const degrees of everyDegrees(4, text === `${EXPERTS},batch=4` ? 4 : 1)) {
      const pinned = await compile({ ...options, degrees }).catch(unlessRefused);
      if (!pinned) continue;
      planned++;
      t.true(plan.predicted.stepSeconds <= pinned.plan.predicted.stepSeconds, JSON.stringify(degrees));
    }
    t.true(planned >= 6, `${planned}`);
  });

function everyDegrees(devices: number, experts: number): readonly Degrees[] {
  return divisors(devices).flatMap((pp) =>
    divisors(devices / pp).flatMap((tp) =>
      divisors(devices / pp / tp).flatMap((sp) => {
        const dp = devices / pp / tp / sp;
        return divisors(experts).flatMap((ep) => ((dp * sp) % ep === 0 ? [{ pp, dp, sp, tp, ep }] : []));
      }),
    ),
  );
}

function unlessRefused(error: unknown): null {
  if (error instanceof AutoparError) return null;
  throw error;
}
