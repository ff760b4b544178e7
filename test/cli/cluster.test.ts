/**
 * @file Cluster files on the command line: planned for, kept in the plan, priced again by explain, refused by line.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { slowTests } from '../selection.js';
import { autopar, workplace } from './autopar.js';

const slow = slowTests(test);

const FILE = `version: 1
device: a100-sxm-80
levels:
  - {name: node, size: 2}
  - {name: network, size: 2, bandwidth: 25GB/s, cards: 1}
nodes: [{count: 1}, {count: 1, speed: 0.5}]
`;

slow('a plan keeps what its cluster file said, and is priced by it again without the file', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const run = (line: string) => autopar([...line.split(' '), '--json'], { cwd: folder });
  writeFileSync(join(folder, 'two.yaml'), FILE);
  const compiled = await run('compile models/gpt-tiny.onnx --plan-only --cluster two.yaml --dp 2 --tp 2 -o out');
  t.is(compiled.code, 0, compiled.stderr);
  const { cluster, predicted } = JSON.parse(readFileSync(join(folder, 'out/plan.json'), 'utf8')) as {
    cluster: { nodes: number; perNode: number; device: string; description: { levels: unknown[] } };
    predicted: { stepSeconds: number };
  };
  t.deepEqual([cluster.nodes, cluster.perNode, cluster.device], [2, 2, 'a100-sxm-80']);
  t.is(cluster.description.levels.length, 2);

  const whole = await run('compile models/gpt-tiny.onnx --plan-only --cluster 2x2:a100-sxm-80 --dp 2 --tp 2 -o whole');
  const full = JSON.parse(readFileSync(join(folder, 'whole/plan.json'), 'utf8')) as {
    predicted: { stepSeconds: number };
  };
  t.is(whole.code, 0);
  t.true(predicted.stepSeconds > full.predicted.stepSeconds, 'a step waits for the slower node');

  const said = await autopar('compile models/mlp.onnx --cluster two.yaml --dp 4 -o mlp'.split(' '), {
    cwd: folder,
  });
  t.regex(said.stdout, /^mlp on 4 × a100-sxm-80, in unequal nodes\n/);

  const here = await autopar(['run', 'mlp'], { cwd: folder });
  t.regex(here.stdout, /^on threads of this machine; planned for 2 × 2 × a100-sxm-80: [\d.]+ [mµ]s per step$/m);

  rmSync(join(folder, 'two.yaml'));
  const explain = (directory: string) => run(`explain ${directory} --op /h.0/mlp/c_fc/MatMul`);
  const [described, named] = [await explain('out'), await explain('whole')];
  t.is(described.code, 0, described.stderr);
  t.not(described.stdout, named.stdout);
});

test('groups over a cluster file; errors with file and line', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  writeFileSync(join(folder, 'two.yaml'), FILE);
  writeFileSync(join(folder, 'bad.yaml'), FILE.replace('size: 2}', 'size: two}'));
  const groups = await autopar('groups --cluster two.yaml --dp 2 --tp 2 --rank 1'.split(' '), { cwd: folder });
  t.true(groups.stdout.startsWith('4 devices on 2 unequal nodes of 2 × a100-sxm-80: '), groups.stdout);

  const bad = await autopar('groups --cluster bad.yaml --dp 2 --tp 2 --json'.split(' '), { cwd: folder });
  t.is(bad.code, 3);
  t.like(JSON.parse(bad.stdout), {
    error: { code: 'bad-cluster-file', where: { file: 'bad.yaml', line: 4 } },
  });
  const degrees = await autopar(
    'compile models/gpt-tiny.onnx --plan-only --cluster two.yaml --dp 3 --json'.split(' '),
    {
      cwd: folder,
    },
  );
  t.is(degrees.code, 2);
  t.like(JSON.parse(degrees.stdout), { error: { code: 'degrees-do-not-match-devices' } });
});
