/**
 * @file Which part of a cluster to take, on the command line: clusters of the catalogue and of files, training and inference, in
 * time or not.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { type ClusterSearchOptions, searchClusters } from '../../src/api/planning/search-clusters.js';
import { AutoparError } from '../../src/ir/error.js';
import { slowTests } from '../selection.js';
import { autopar, workplace } from './autopar.js';

const slow = slowTests(test);

const SEARCH = 'compile --model gpt:layers=2,hidden=256,heads=4,seq=128,vocab=512 --plan-only --global-batch 16';

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
  readonly cluster: { readonly nodes: number; readonly perNode: number };
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

slow('of a file with unequal nodes the part that costs least is found, as each part alone is planned', async (t) => {
  const run = place(t);
  const { stdout, stderr, code } = await run(`${SEARCH} --cluster mixed.yaml --train --objective cost -o out --json`);
  t.is(code, 0, stderr);
  const { sizes, cluster } = JSON.parse(stdout) as Answer;
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
  t.deepEqual([cluster.nodes, cluster.perNode], [first?.nodes, first?.perNode]);
  const explained = await run('explain out --rejected');
  t.is(explained.code, 0, explained.stderr);
});

test('inference takes a part of the cluster too', async (t) => {
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
  t.regex(stdout, / on 1 × h100-sxm-80/);
  t.regex(stdout, /1x1, node 2/);
  const explained = await run('explain out --memory');
  t.is(explained.code, 0, explained.stderr);
});

slow('a time limit that is over says so, and that no part was in time is another thing', async (t) => {
  const run = place(t);
  const line = `${SEARCH} --cluster mixed.yaml --train --objective cost --time-limit 0`;
  const late = await run(`${line} --memory 5MB -o out`);
  t.is(late.code, 4);
  t.regex(late.stderr, /^error\[out-of-time\]: the time limit ended before any plan was found: nothing fits/);
  const slow = await run(`${SEARCH} --cluster mixed.yaml --train --objective devices --within 1e-9 -o out`);
  t.is(slow.code, 4);
  t.regex(slow.stderr, /^error\[not-in-time\]: no device subset takes at most 1e-9 s per step: the fastest takes/);
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
        isOver ||= text.endsWith(': 1x2');
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
    /before a device subset with a step within 1e-9 s was found: the fastest takes .* on 1x[12]/,
  );
});
