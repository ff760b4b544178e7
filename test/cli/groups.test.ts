import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { processGroups } from '../../src/api/groups.js';
import { slowTests } from '../selection.js';
import { autopar, autoparLine, workplace } from './autopar.js';

const slow = slowTests(test);

/** Two nodes of eight devices, as introductions to hybrid parallelism draw them. */
const SIXTEEN = {
  mp: [
    [0, 1, 4, 5, 8, 9, 12, 13],
    [2, 3, 6, 7, 10, 11, 14, 15],
  ],
  tp: [
    [0, 1],
    [2, 3],
    [4, 5],
    [6, 7],
    [8, 9],
    [10, 11],
    [12, 13],
    [14, 15],
  ],
  pp: [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
  ],
  dp: [
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7],
    [8, 10],
    [9, 11],
    [12, 14],
    [13, 15],
  ],
};

test('sixteen devices, pp 4 · dp 2 · tp 2', async (t) => {
  const { code, stdout } = await autopar(['groups', '--pp', '4', '--dp', '2', '--tp', '2', '--json']);
  t.is(code, 0);
  const result = JSON.parse(stdout) as { schema: string; devices: number; groups: typeof SIXTEEN };
  t.is(result.schema, 'autopar-groups-v1');
  t.is(result.devices, 16);
  t.like(result.groups, SIXTEEN);
});

test('one rank sees its own groups and its place', async (t) => {
  const { stdout } = await autopar(['groups', '--pp', '4', '--dp', '2', '--tp', '2', '--rank', '6', '--json']);
  const { groups, place } = JSON.parse(stdout) as { groups: typeof SIXTEEN; place: Record<string, number> };
  t.deepEqual(place, { pp: 1, dp: 1, sp: 0, tp: 0 });
  t.deepEqual(groups.tp, [[6, 7]]);
  t.deepEqual(groups.pp, [[2, 6, 10, 14]]);
});

test('a cluster gives the devices, and says which exchanges cross nodes', async (t) => {
  const line = 'groups --cluster 2x8:a100-sxm-80 --pp 4 --dp 2 --tp 2 --rank 6';
  const { code, stdout } = await autopar([...line.split(' '), '--json']);
  t.is(code, 0);
  const { groups, communication } = JSON.parse(stdout) as {
    groups: typeof SIXTEEN;
    communication: readonly { kind: string; peers: readonly number[]; withinNode: boolean }[];
  };
  t.deepEqual(groups.mp, [[2, 3, 6, 7, 10, 11, 14, 15]]);
  t.deepEqual(
    communication.map(({ kind, peers, withinNode }) => [kind, peers, withinNode]),
    [
      ['tp', [7], true],
      ['dp', [4], true],
      ['pp', [2], true],
      ['pp', [10], false],
    ],
  );
  const words = (await autopar(line.split(' '))).stdout;
  t.regex(words, /pp {2}with 10 \(across nodes\): sends activations to the next stage/);
  const refused = await autopar(['groups', '--cluster', '2x8:a100-sxm-80', '--dp', '3', '--tp', '2']);
  t.is(refused.code, 2);
});

test('where nodes differ, words and JSON name all kinds', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const levels = '[{name: node, size: 2, bandwidth: 300GB/s}, {name: network, size: 3, bandwidth: 25GB/s}]';
  const nodes = '[{count: 1}, {count: 2, device: v100-sxm2-32}]';
  writeFileSync(join(folder, 'mixed.yaml'), `version: 1\ndevice: h100-sxm-80\nlevels: ${levels}\nnodes: ${nodes}\n`);
  const run = async (line: string) => {
    const { code, stdout, stderr } = await autopar(line.split(' '), { cwd: folder });
    t.is(code, 0, stderr);
    return stdout;
  };
  const words = await run('groups --cluster mixed.yaml --pp 3 --tp 2');
  t.is(
    words.split('\n')[0],
    '6 devices on 3 nodes of 2, 2 × h100-sxm-80 and 4 × v100-sxm2-32: dp 1 · tp 2 · pp 3 · sp 1',
  );
  const kinds = [
    { nodes: 1, device: 'h100-sxm-80' },
    { nodes: 2, device: 'v100-sxm2-32' },
  ];
  await run('plan models/gpt-tiny.onnx --cluster mixed.yaml --dp 1 --tp 2 --pp 3 -o plan');
  for (const line of [
    'explain plan --json',
    'simulate --model gpt --cluster mixed.yaml --dp 6 --global-batch 6 --json',
  ]) {
    const { cluster } = JSON.parse(await run(line)) as { cluster: { device: string; kinds: typeof kinds } };
    t.deepEqual(cluster.kinds, kinds, line);
    t.is(cluster.device, 'v100-sxm2-32');
  }
});

test('64 devices, dp 8 · tp 8', async (t) => {
  const { stdout } = await autopar(['groups', '--devices', '64', '--tp', '8', '--json']);
  const { groups } = JSON.parse(stdout) as { groups: { tp: number[][]; dp: number[][] } };
  t.deepEqual(groups.tp[0], [0, 1, 2, 3, 4, 5, 6, 7]);
  t.deepEqual(groups.dp[0], [0, 8, 16, 24, 32, 40, 48, 56]);
  t.is(groups.tp.length, 8);
});

test('a compiled program says what a rank communicates in it', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const compiled = await autopar('compile models/gpt-tiny.onnx --dp 2 --tp 2 --axes roles -o gpt --quiet'.split(' '), {
    cwd: folder,
  });
  t.is(compiled.code, 0, compiled.stderr);
  const { stdout } = await autopar(['groups', 'gpt', '--rank', '3', '--json'], { cwd: folder });
  const { degrees, communication } = JSON.parse(stdout) as {
    degrees: Record<string, number>;
    communication: readonly {
      collective: string;
      axes: string[];
      ranks: number[];
      count: number;
      receivedBytes: number;
    }[];
  };
  t.like(degrees, { dp: 2, tp: 2 });
  t.true(communication.length > 0);
  for (const { axes, ranks, count, receivedBytes } of communication) {
    t.deepEqual([axes, ranks], [['tp'], [2, 3]]);
    t.true(count > 0 && receivedBytes > 0);
  }
  t.is((await autopar(['groups', 'gpt', '--tp', '2'], { cwd: folder })).code, 2);
  t.is((await autopar(['groups', 'gpt', '--rank', '4'], { cwd: folder })).code, 2);
});

slow('a plan of a pipeline is enough, alone or in its folder; a program counts its transfers', async (t) => {
  const { folder, remove } = workplace();
  t.teardown(remove);
  const step = '--train --loss cross_entropy --optimizer sgd --pp 2 --dp 2 --tp 1 --micro-batches 2 --quiet';
  for (const [out, more] of [
    ['plan', '--plan-only'],
    ['program', ''],
  ] as const) {
    const { code, stderr } = await autoparLine(`autopar compile models/gpt-tiny.onnx ${step} ${more} -o ${out}`, {
      cwd: folder,
    });
    t.is(code, 0, stderr);
  }
  interface Groups {
    readonly groups: Record<string, number[][]>;
    readonly communication: readonly { collective: string; ranks: number[]; count: number; receivedBytes: number }[];
  }
  const groups = async (line: string): Promise<Groups> =>
    JSON.parse((await autoparLine(`autopar groups ${line} --json`, { cwd: folder })).stdout);
  for (const place of ['plan', 'plan/plan.json', 'program'])
    t.like((await groups(place)).groups, {
      pp: [
        [0, 2],
        [1, 3],
      ],
      dp: [
        [0, 1],
        [2, 3],
      ],
      mp: [
        [0, 2],
        [1, 3],
      ],
    });
  t.deepEqual((await groups('plan --rank 3')).groups, {
    ...{ pp: [[1, 3]], dp: [[2, 3]], mp: [[1, 3]], tp: [[3]], sp: [[3]], ep: [[3]] },
  });
  const [first, second] = [await groups('program --rank 0'), await groups('program --rank 2')];
  const transfers = ({ communication }: Groups, kind: string) =>
    communication.filter(({ collective }) => collective === kind);
  // One stage sends as often as the other receives: activations and gradients per micro-batch, the tied table once.
  for (const [from, to] of [
    [first, second],
    [second, first],
  ] as const) {
    const [sent, received] = [transfers(from, 'send'), transfers(to, 'recv')];
    t.deepEqual(
      sent.map(({ ranks, count }) => [ranks, count]),
      received.map(({ ranks, count }) => [ranks, count]),
    );
    t.deepEqual(sent[0]?.ranks, [0, 2]);
    t.true((sent[0]?.count ?? 0) >= 2 && (received[0]?.receivedBytes ?? 0) > 0);
  }
});

test('dp takes what the other degrees leave', async (t) => {
  const { stdout } = await autopar(['groups', '--devices', '16', '--tp', '4', '--json']);
  t.is((JSON.parse(stdout) as { degrees: { dp: number } }).degrees.dp, 4);
});

test('every kind of group is a partition of the ranks into equal parts', (t) => {
  const degree = fc.integer({ min: 1, max: 4 });
  fc.assert(
    fc.property(degree, degree, degree, degree, degree, (pp, dp, sp, tp, ep) => {
      fc.pre((dp * sp) % ep === 0);
      const { devices, groups } = processGroups({ pp, dp, sp, tp, ep });
      const sizes = { pp, dp, sp, tp, ep, mp: pp * sp * tp };
      for (const [kind, lists] of Object.entries(groups)) {
        const ranks = lists.flat().sort((left, right) => left - right);
        t.deepEqual(
          ranks,
          Array.from({ length: devices }, (_, rank) => rank),
        );
        t.true(lists.every((list) => list.length === sizes[kind as keyof typeof sizes]));
      }
    }),
    { numRuns: 40 },
  );
});

test('expert groups take the fastest part of dp · sp', (t) => {
  const { groups } = processGroups({ pp: 1, dp: 4, sp: 1, tp: 2, ep: 2 });
  t.deepEqual(groups.ep, [
    [0, 2],
    [1, 3],
    [4, 6],
    [5, 7],
  ]);
});
