/**
 * @file Why other degrees were not taken, and what another cluster would bring, where a memory limit binds.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { explainChoices } from '../../../src/api/explanations/explain-choices.js';
import { stepTime as cost } from '../pin-replans.js';

const MODEL = join('models', 'mlp.onnx');

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-choices-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

test('more and less than a limit that is given, and that binds', async (t) => {
  const at = folder(t);
  const output = join(at, 'x');
  const given = { model: MODEL, cluster: '1x4:a100-sxm-80', degrees: { dp: 1, tp: 4 }, memory: 16_500 } as const;
  const now = await cost({ ...given, output });
  const { sensitivities } = await explainChoices(output, { sensitivity: true });
  const of = (wanted: string) => sensitivities.find(({ change }) => change === wanted);
  const free = (await cost({ ...given, memory: 16_500 + 1e9, output: join(at, 'y') })) ?? Number.NaN;
  t.true(free <= (now ?? 0));
  t.is(Math.round((of('1 GB more memory per device')?.best?.stepSeconds ?? 0) * 1e9), free);
  t.is(of('half the memory')?.best, null);
  t.is(await cost({ ...given, memory: 8250, output: join(at, 'y') }), null);
});

test('degrees that do not fit have their figures', async (t) => {
  const at = folder(t);
  const output = join(at, 'x');
  await cost({ model: MODEL, cluster: '1x4:a100-sxm-80', memory: 16_400, output });
  const { rejected } = await explainChoices(output, { top: Infinity });
  const large = rejected.filter((ruling) => ruling.kind === 'too-large');
  t.true(large.length > 0);
  for (const ruling of large) {
    if (ruling.kind !== 'too-large') continue;
    t.is(ruling.limitBytes, 16_400);
    t.true(ruling.leastBytes > 16_400 && ruling.atLeastBytes <= ruling.leastBytes);
  }
});
