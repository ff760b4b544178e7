/**
 * @file Clusters whose nodes differ: a stage of a lowered pipeline takes as long as it takes on a cluster of its own nodes, in
 * the price, in the timeline and in reports.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/index.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const MODEL = 'gpt:layers=4,hidden=1024,heads=16,seq=512,vocab=65536,batch=8';

/** Two nodes of one device each. */
const clusterText = (first: string, second: string) => `version: 1
device: ${first}
levels:
  - {name: node, size: 1}
  - {name: cluster, size: 2}
nodes:
  - {count: 1, device: ${first}}
  - {count: 1, device: ${second}}
`;

async function planned(first: string, second: string) {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const cluster = join(folder, 'cluster.yaml');
    writeFileSync(cluster, clusterText(first, second));
    const { plan, mostExpensive, details } = await compile({
      ...{ generate: MODEL, cluster, output: join(folder, 'out'), pp: 2, planOnly: true },
      stages: 'E t*2 | t*2 H',
      training: { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-4 }, microBatches: 4 },
    });
    const { spans } = await details();
    const ofStage = (stage: number) => {
      const own = spans.filter(({ line, kind }) => line === stage && (kind === 'forward' || kind === 'backward'));
      return own.map(({ from, until }) => Number((until - from).toPrecision(9)));
    };
    const seconds = new Map(mostExpensive.map(({ operator, seconds }) => [operator, seconds]));
    const layers = Math.max(...mostExpensive.map(({ count }) => count));
    return { step: plan.predicted.stepSeconds, stages: [ofStage(0), ofStage(1)], seconds, layers };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

slow('each stage takes what its own nodes take', async (t) => {
  const [fast, late] = ['h100-sxm-80', 'a100-sxm-80'];
  const [allFast, allSlow] = [await planned(fast, fast), await planned(late, late)];
  t.not(allFast.stages[0]?.[0], allSlow.stages[0]?.[0]);
  t.deepEqual([allFast.layers, allSlow.layers], [4, 4]);
  for (const [first, second] of [
    [fast, late],
    [late, fast],
  ] as const) {
    const mixed = await planned(first, second);
    // Layers of equal stages are one row of four; stages of unlike devices stay apart.
    t.is(mixed.layers, 2);
    const of = (device: string) => (device === fast ? allFast : allSlow);
    t.deepEqual(mixed.stages, [of(first).stages[0], of(second).stages[1]]);
    t.true(allFast.step < mixed.step && mixed.step < allSlow.step);
    // The head is on the last stage.
    const head = '/head/MatMul/gradient/1';
    t.true((mixed.seconds.get(head) ?? 0) > 0);
    t.is(mixed.seconds.get(head), of(second).seconds.get(head));
  }
});
