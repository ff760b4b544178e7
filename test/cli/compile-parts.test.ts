/**
 * @file Which part of a cluster to take, on the command line: clusters of the catalogue and of files, training and inference, in
 * time or not.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { type ClusterSearchOptions, searchClusters } from '../../src/api/search-clusters.js';
import { AutoparError } from '../../src/ir/error.js';
import { autopar, workplace } from './autopar.js';

const SEARCH = 'compile --model gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=1024 --plan-only --global-batch 64';

/** A node of V100s, and one of H100s. */
const MIXED = `version: 1
device: h100-sxm-80
levels:
  - {name: node, size: 2}
  - {name: network, size: 2, bandwidth: 200Gbit/s, cards: 2}
nodes:
  - {count: 1, device: v100-sxm2-32}
  - {count: 1}
`;

interface Answer {
  readonly predicted: { readonly stepSeconds: number };
  readonly inference?: boolean;
  readonly sizes: readonly {
    readonly nodes: number;
    readonly perNode: number;
    readonly firstNode?: number;
    readonly stepSeconds: number;
    readonly deviceSeconds: number;
  }[];
}

function place(t: { teardown: (end: () => void) => void }) {
  const { folder, remove } = workplace();
  t.teardown(remove);
  writeFileSync(join(folder, 'mixed.yaml'), MIXED);
  return (line: string) => autopar(line.split(' '), { cwd: folder });
}

test('of a file with unequal nodes the part that costs least is found, as each part alone is planned', async (t) => {
  const run = place(t);
  const { stdout, stderr, code } = await run(`${SEARCH} --cluster mixed.yaml --train --objective cost -o out --json`);
  t.is(code, 0, stderr);
  const { sizes, predicted } = JSON.parse(stdout) as Answer;
  t.deepEqual(
    sizes.map(({ nodes, perNode, firstNode }) => [nodes, perNode, firstNode]),
    [
      [1, 1, 0],
      [1, 1, 1],
      [1, 2, 0],
      [1, 2, 1],
      [2, 2, 0],
    ],
  );
  const [first] = [...sizes].sort((a, b) => a.deviceSeconds - b.deviceSeconds);
  t.is(first?.stepSeconds, predicted.stepSeconds);
  for (const [at, cluster] of ['v100-sxm2-32', 'h100-sxm-80'].entries()) {
    const alone = JSON.parse(
      (await run(`${SEARCH} --cluster ${cluster} --train -o alone --force --json`)).stdout,
    ) as Answer;
    t.is(sizes[at]?.stepSeconds, alone.predicted.stepSeconds, cluster);
  }
  const explained = await run('explain out --rejected');
  t.is(explained.code, 0, explained.stderr);
});

test('inference is searched over whole steps where one of their options is given, and over parts too', async (t) => {
  const run = place(t);
  const seconds = Math.max(
    ...(
      JSON.parse((await run(`${SEARCH} --cluster mixed.yaml --objective cost -o cost --json`)).stdout) as Answer
    ).sizes
      .filter(({ perNode }) => perNode === 2)
      .map(({ stepSeconds }) => stepSeconds),
  );
  const { stdout, stderr, code } = await run(
    `${SEARCH} --cluster mixed.yaml --objective devices --within ${seconds} -o out`,
  );
  t.is(code, 0, stderr);
  t.regex(stdout, /inference on 1 × h100-sxm-80/);
  t.regex(stdout, /1x1, node 2/);
  const explained = await run('explain out --memory');
  t.is(explained.code, 0, explained.stderr);
  const pinned = await run(`${SEARCH} --cluster 4:a100-sxm-80 --pp 2 -o pinned --json`);
  t.is(pinned.code, 0, pinned.stderr);
  const simulated = await run(
    'simulate --model gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=1024 --global-batch 64 --cluster ' +
      '4:a100-sxm-80 --pp 2 --micro-batches 1 --schedule naive --json',
  );
  const { stepSeconds } = JSON.parse(simulated.stdout) as { stepSeconds: number };
  t.true((JSON.parse(pinned.stdout) as Answer).predicted.stepSeconds <= stepSeconds);
  const refused = await run(`${SEARCH} --cluster 4:a100-sxm-80 --zero 1 -o refused`);
  t.is(refused.code, 2);
  t.regex(refused.stderr, /--zero 1 is about training/);
});

test('a time limit that is over says so, and that no part was in time is another thing', async (t) => {
  const run = place(t);
  const line = `${SEARCH} --cluster mixed.yaml --train --objective cost --time-limit 0`;
  const first = await run(`${line} -o first`);
  t.is(first.code, 0, first.stderr);
  t.regex(first.stderr, /^note: the time limit of 0 s was over before any plan was found: this is the first that fits/);
  const late = await run(`${line} --memory 500MB -o out`);
  t.is(late.code, 4);
  t.regex(late.stderr, /^error\[out-of-time\]: the time limit was over before any plan was found: nothing fits/);
  const slow = await run(`${SEARCH} --cluster mixed.yaml --train --objective devices --within 0.0001 -o out`);
  t.is(slow.code, 4);
  t.regex(slow.stderr, /^error\[not-in-time\]: no part of the cluster makes a step in 0.0001 s: the fastest takes/);
  const enough = await run(`${SEARCH} --cluster mixed.yaml --train --objective cost --time-limit 600 -o out --json`);
  const free = await run(`${SEARCH} --cluster mixed.yaml --train --objective cost -o out --force --json`);
  t.is(enough.stdout, free.stdout);
});

test('where time is over after some parts the best of them is taken, or said to be too slow', async (t) => {
  const searched = (options: Pick<ClusterSearchOptions, 'objective' | 'within'>) => {
    let isOver = false;
    return searchClusters({
      generate: 'gpt:layers=2,hidden=256,heads=4,seq=128,vocab=512',
      cluster: '2x2:a100-sxm-80',
      globalBatch: 8,
      deadline: { isOver: () => isOver },
      onProgress: (text) => {
        isOver ||= text === 'searching 1x2';
      },
      ...options,
    });
  };
  const found = await searched({ objective: 'cost' });
  t.true(found.isCutOff);
  t.is(found.simulation.cluster.perNode, 1);
  const error = await t.throwsAsync(searched({ objective: 'devices', within: 1e-9 }), { instanceOf: AutoparError });
  t.is(error?.code, 'out-of-time');
  t.regex(
    error?.message ?? '',
    /before a part of the cluster was found that makes a step in 1e-9 s: the fastest takes .* on 1x[12]/,
  );
});
