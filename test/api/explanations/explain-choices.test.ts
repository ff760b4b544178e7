/**
 * @file Why other degrees were not taken, and what another cluster would bring: beside compiling with those degrees, or on a
 * cluster whose file says what changed.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile } from '../../../src/api/compile.js';
import { explainChoices } from '../../../src/api/explanations/explain-choices.js';
import { explainPins } from '../../../src/api/explanations/explain-pins.js';
import { readClusterFile } from '../../../src/cost-model/cluster-file.js';
import { usableBytes } from '../../../src/cost-model/predict.js';
import { AutoparError } from '../../../src/ir/error.js';
import { stepTime as cost } from '../pin-replans.js';

const MODEL = join('models', 'mlp.onnx');

function folder(t: ExecutionContext): string {
  const made = mkdtempSync(join(tmpdir(), 'autopar-choices-'));
  t.teardown(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

/** Two nodes of two devices; every figure that the sensitivities double is a parameter here. */
function clusterFile(
  at: string,
  changed: Partial<Record<'memory' | 'rate' | 'peak' | 'inside' | 'between', number>> = {},
): string {
  const { memory = 4e9, rate = 1e12, peak = 1e13, inside = 1e11, between = 1e10 } = changed;
  const lines = [
    'version: 1',
    `device: {like: a100-sxm-80, memory: ${memory}, memoryBandwidth: ${rate}, peak: {fp32: ${peak}, tf32: ` +
      `${peak}, bf16: ${peak}, fp16: ${peak}, int8: ${peak}}}`,
    'levels:',
    `  - {name: node, size: 2, bandwidth: ${inside}}`,
    `  - {name: network, size: 2, bandwidth: ${between}}`,
  ];
  const file = join(at, `cluster-${JSON.stringify(changed).replaceAll(/\W+/g, '-')}.yaml`);
  writeFileSync(file, `${lines.join('\n')}\n`);
  return file;
}

test('what another cluster would bring is what compiling for it gives', async (t) => {
  const at = folder(t);
  const output = join(at, 'x');
  const given = { model: MODEL, degrees: { dp: 2, tp: 2 } } as const;
  const now = await cost({ ...given, cluster: clusterFile(at), output });
  const { sensitivities, stepSeconds } = await explainChoices(output, { sensitivity: true });
  t.is(Math.round(stepSeconds * 1e9), now ?? Number.NaN);
  const changes: Readonly<Record<string, Parameters<typeof clusterFile>[1]>> = {
    '1 GB more memory per device': { memory: 5e9 },
    'twice the memory': { memory: 8e9 },
    'half the memory': { memory: 2e9 },
    'twice the network between nodes': { between: 2e10 },
    'twice the links inside a node': { inside: 2e11 },
    'twice the compute': { peak: 2e13 },
    'twice the memory bandwidth': { rate: 2e12 },
  };
  t.deepEqual(
    sensitivities.map(({ change }) => change),
    Object.keys(changes),
  );
  for (const { change, best, ratio } of sensitivities) {
    const edited: number | null = await cost({
      ...given,
      cluster: clusterFile(at, changes[change]),
      output: join(at, 'y'),
    });
    t.is(best ? Math.round(best.stepSeconds * 1e9) : null, edited, change);
    t.is(ratio, best && best.stepSeconds / stepSeconds);
  }
});

test('every other combination of degrees has the figure that rules it out', async (t) => {
  const at = folder(t);
  const output = join(at, 'x');
  const file = clusterFile(at);
  await cost({ model: MODEL, cluster: file, output });
  const { rejected, degrees, stepSeconds } = await explainChoices(output, { top: Infinity });
  t.is(rejected.length, 2);
  for (const ruling of rejected) {
    t.notDeepEqual(ruling.degrees, degrees);
    if (ruling.kind !== 'slower') return t.fail(ruling.reason);
    t.true(ruling.stepNanoseconds / 1e9 >= stepSeconds);
    t.true(ruling.boundNanoseconds <= ruling.stepNanoseconds, 'kernels and collectives, without launches');
    // A pinned degree is used wherever it can be, which a free one need not be.
    const pinned = await cost({ model: MODEL, cluster: file, degrees: ruling.degrees, output: join(at, 'y') });
    t.true((pinned ?? 0) >= ruling.stepNanoseconds - 1);
    const memory = Math.max(...(ruling.peakBytes ?? []));
    t.true(memory > 0 && memory < (usableBytes(await readClusterFile(file)) ?? 0));
  }
});

test('compile, its ranking and explain speak of one figure, that of the whole step, on ranks of this machine too', async (t) => {
  for (const cluster of ['local', '1x4:a100-sxm-80']) {
    const output = join(folder(t), 'x');
    const given = { model: MODEL, cluster, devices: 4, axes: 'roles', planOnly: true, force: true } as const;
    const { plan, top, rejected } = await compile({ ...given, output, top: 3 });
    const { stepSeconds } = plan.predicted;
    const explained = await explainChoices(output, { top: Infinity });
    t.is(explained.stepSeconds, stepSeconds, cluster);
    t.is(top[0]?.stepNanoseconds, Math.round(stepSeconds * 1e9), cluster);
    for (const { degrees, stepNanoseconds } of top) {
      t.true(stepNanoseconds >= Math.round(stepSeconds * 1e9));
      const asked = await compile({ ...given, degrees, output: join(folder(t), 'y') });
      t.true(Math.round(asked.plan.predicted.stepSeconds * 1e9) >= stepNanoseconds - 1, JSON.stringify(degrees));
    }
    for (const ruling of rejected)
      if (ruling.kind === 'slower')
        t.is(top.find(({ reason }) => reason === ruling.reason)?.stepNanoseconds, ruling.stepNanoseconds);
  }
});

test('a plan that was edited is not explained as if it were the search’s', async (t) => {
  const at = folder(t);
  const output = join(at, 'x');
  await cost({ model: MODEL, cluster: '1x2:a100-sxm-80', output });
  const file = join(output, 'plan.json');
  const plan = JSON.parse(readFileSync(file, 'utf8')) as { search: { costSeconds: number } };
  writeFileSync(file, JSON.stringify({ ...plan, search: { ...plan.search, costSeconds: 1 } }));
  for (const explaining of [explainChoices(output, {}), explainPins(output)]) {
    const error = await t.throwsAsync(explaining, { instanceOf: AutoparError });
    t.is(error?.code, 'plan-of-another-version');
    t.regex(error?.message ?? '', /plan\.json: it was edited/);
  }
});

test('degrees that do not divide the batch are told', async (t) => {
  const at = folder(t);
  const output = join(at, 'x');
  await cost({ model: MODEL, cluster: '1x16:a100-sxm-80', output });
  const impossible = (await explainChoices(output, {})).rejected.filter(({ kind }) => kind === 'impossible');
  t.true(impossible.length > 0);
  for (const { reason } of impossible) t.regex(reason, /does not divide the batch/);
});
