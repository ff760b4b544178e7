/**
 * @file Roles give way where they cost more than 2 %: without `--axes free` AlexNet's convolutions get the batch and its fully
 * connected layers features (Krizhevsky 2014).
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../../src/api/compile.js';
import { generatedFile } from '../../../src/api/models/generated.js';

test('AlexNet on 8 GPUs: convolutions by samples, fully connected layers by features', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const { plan, compared } = await compile({
    model: await generatedFile('alexnet', 256),
    cluster: '1x8:a100-sxm-80',
    training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 0.001 } },
    planOnly: true,
    output: join(folder, 'out'),
  });
  const factors = (name: RegExp) =>
    Object.entries(plan.operators)
      .filter(([operator]) => name.test(operator))
      .map(([, { strategy }]) => Object.keys(strategy).join());
  t.deepEqual(factors(/^\/features\.\d\/Conv$/), ['n', 'n', 'n', 'n', 'n']);
  t.deepEqual(
    factors(/^\/classifier\.\d\/MatMul$/).filter((own) => !/^[nk]$/.test(own)),
    [],
  );
  t.is(compared?.[0]?.axes, 'free');
  const [roles] = (compared ?? []).filter(({ proposed, axes }) => proposed === null && axes === undefined);
  t.true(plan.predicted.stepSeconds * 1.02 < (roles?.stepSeconds ?? 0));
});
