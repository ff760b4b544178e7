/**
 * @file Plans of small graphs: the price of the lowered graph, plans that can be foreseen, degrees that cannot be.
 */
import test from 'ava';
import { gpt } from '../../models/gpt.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { LAUNCHES, OUTSIDE, priceGraph } from '../../src/cost-model/predict.js';
import { stepPrice } from '../../src/cost-model/price.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph } from '../../src/ir/graph.js';
import { checkSharded } from '../../src/partition/check.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { partition } from '../../src/partition/partition.js';
import { meshProblem } from '../../src/search/mesh-problem.js';
import { operatorFactsOf } from '../../src/search/operator-facts.js';
import { type PlanOptions, type PlanResult, plan } from '../../src/search/plan.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { makeResharder } from '../../src/sharding-propagation/resharding.js';
import { eliminate } from '../../src/solver/elimination/elimination.js';
import { TableAlgebra } from '../../src/solver/elimination/table-algebra.js';
import { slowTests } from '../selection.js';
import { convGraph, GraphBuilder, llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';

const GRAPHS: Readonly<Record<string, Graph>> = {
  mlp: mlpGraph(8, 64, 256, 2),
  llama: llamaGraph(SMALL_LLAMA),
  'llama of batch 4': llamaGraph({ ...SMALL_LLAMA, batch: 4, layers: 1 }),
  convolutions: convGraph(4),
};

/** Prices the lowered graph of a plan afresh. */
function lowered(graph: Graph, cluster: ReturnType<typeof parseCluster>, found: PlanResult) {
  const price = stepPrice(cluster, found.assignment.mesh);
  return partition(graph, found.assignment, makeResharder(found.assignment.mesh, price));
}

for (const [name, graph] of Object.entries(GRAPHS)) {
  for (const options of [
    { degrees: { dp: 2, tp: 1 } },
    { degrees: { dp: 1, tp: 2 } },
    { degrees: { dp: 2, tp: 2 } },
    { degrees: { dp: 1, tp: 4 } },
    { degrees: { dp: 1, tp: 2 }, axes: 'free' },
  ] as const satisfies readonly PlanOptions[]) {
    // In `npm test` with both degrees, and with every axis on every factor.
    const isSlow = !('axes' in options) && Math.min(options.degrees.dp, options.degrees.tp) === 1;
    slowTests(test, isSlow)(
      `the search minimises the price of the lowered graph: ${name} ${JSON.stringify(options)}`,
      async (t) => {
        const devices = options.degrees.dp * options.degrees.tp;
        for (const text of ['local', `1x${devices}:h100-sxm-80`, `${devices}x1:a100-sxm-80`]) {
          const cluster = parseCluster(text, devices);
          const found = await plan(graph, cluster, options);
          const sharded = lowered(graph, cluster, found);
          t.is(priceGraph(sharded, cluster), found.costNanoseconds);
          t.is(found.boundNanoseconds, found.costNanoseconds);
          t.deepEqual(checkSharded(sharded), []);
          const {
            segments = 0,
            copies = 0,
            [LAUNCHES]: launches = 0,
            [OUTSIDE]: outside = 0,
            ...parts
          } = found.prediction.parts;
          const searched = Object.values(parts).reduce((sum, part) => sum + part, 0);
          t.true(Math.abs(searched * 1e9 - found.costNanoseconds) < 1);
          t.true(Math.abs(searched + segments + copies + launches + outside - found.prediction.stepSeconds) < 1e-9);
          t.is(segments + copies > 0, cluster.local);
          t.is(launches > 0, !cluster.local);
        }
      },
    );
  }
}

test('a pinned degree is used: a rank does its share of the work', async (t) => {
  for (const [name, graph] of Object.entries(GRAPHS)) {
    for (const degrees of [
      { dp: 2, tp: 1 },
      { dp: 1, tp: 2 },
    ]) {
      const found = await plan(graph, parseCluster('local', 2), { degrees });
      const share = found.prediction.flopsPerRank / found.prediction.flopsTotal;
      t.true(share <= (degrees.dp === 2 ? 0.55 : 0.6), `${name} ${JSON.stringify(degrees)}: ${share}`);
      t.deepEqual(found.exceptions, []);
    }
  }
});

test('a pinned degree is used by whatever weighs in the graph, and what cannot use it is named', async (t) => {
  const builder = new GraphBuilder();
  const x = builder.input('x', [2, 6, 16]);
  const logits = builder.add('logits', 'MatMul', [x, builder.weight('A', [16, 64])]);
  const labels = builder.input('labels', [2, 6], 'int64');
  const classes = builder.add('classes', 'Transpose', [logits], { perm: [0, 2, 1] });
  const loss = builder.add('loss', 'SoftmaxCrossEntropyLoss', [classes, labels], { reduction: 'none' });
  const chain = (name: string, op: string) =>
    builder.add(`${name}.c`, op, [builder.add(`${name}.b`, op, [builder.add(`${name}.a`, op, [logits])])]);
  const graph = builder.build([loss, chain('sharded', 'Erf'), builder.add('largest', 'ArgMax', [logits], { axis: 2 })]);
  const found = await plan(graph, parseCluster('local', 2), { degrees: { tp: 2 } });
  t.true(found.prediction.flopsPerRank <= 0.6 * found.prediction.flopsTotal);
  t.is(found.exceptions.length, 0);

  const products = new GraphBuilder();
  const input = products.input('x', [2, 1, 2]);
  const wide = products.add('wide', 'MatMul', [input, products.weight('A', [2, 16])]);
  const stuck = products.build([products.add('multiplied', 'ReduceProd', [wide], { axes: [2], keepdims: 0 })]);
  const { exceptions } = await plan(stuck, parseCluster('local', 2), { degrees: { tp: 2 } });
  t.deepEqual(
    exceptions.map(({ operator }) => operator),
    ['multiplied'],
  );
});

test('tensor parallelism cuts the first matrix by columns and the second by rows', async (t) => {
  const graph = mlpGraph(64, 1024, 4096);
  const { assignment } = await plan(graph, parseCluster('1x4:h100-sxm-80', undefined), { degrees: { tp: 4 } });
  t.deepEqual(assignment.strategies.get('layers.0.up')?.axes, { n: ['tp.0', 'tp.1'] });
  t.deepEqual(assignment.strategies.get('layers.0.down')?.axes, { k: ['tp.0', 'tp.1'] });
});

test('a fused projection of query, key and value is cut inside each of the three; the mask follows the heads', async (t) => {
  const sizes = { batch: 8, sequence: 256, layers: 2, width: 1024, heads: 16, vocabulary: 2048 };
  const graph: Graph = { ...gpt('gpt', sizes, 1, 'absent'), batch: [{ input: 'ids', axis: 0 }] };
  const found = await plan(graph, parseCluster('1x4:a100-sxm-80', undefined), { degrees: { dp: 1, tp: 4 } });
  const strategyOf = (name: string) => found.assignment.strategies.get(`/h.1/${name}`);
  const tp = ['tp.0', 'tp.1'];
  t.like(strategyOf('attn/c_attn/MatMul'), { axes: { 'n.1': tp }, pieces: { n: [3, 1024] } });
  t.deepEqual(strategyOf('attn/MatMul')?.axes, { b1: tp });
  t.deepEqual(strategyOf('attn/Add')?.axes, { a1: tp });
  t.deepEqual(strategyOf('attn/c_proj/MatMul')?.axes, { k: tp });
  t.deepEqual(strategyOf('mlp/c_fc/MatMul')?.axes, { n: tp });
  t.deepEqual(strategyOf('mlp/c_proj/MatMul')?.axes, { k: tp });
  const inSecondLayer = onlyStage(found.lowered).nodes.flatMap((node) =>
    node.kind === 'communicate' && node.origin.startsWith('/h.1/') ? [node.collective.kind] : [],
  );
  t.deepEqual(inSecondLayer, ['all-gather', 'reduce-scatter', 'all-gather', 'reduce-scatter']);
});

test('two key heads on tp 4: each lies on the first sub-axis', async (t) => {
  const graph = llamaGraph(SMALL_LLAMA);
  const { assignment } = await plan(graph, parseCluster('1x4:h100-sxm-80', undefined), { degrees: { dp: 1, tp: 4 } });
  t.deepEqual(assignment.strategies.get('layers.0.scores')?.axes, { b1: ['tp.0', 'tp.1'] });
});

test('degrees are chosen by price, and the others kept with the reason', async (t) => {
  const graph = mlpGraph(2, 64, 256);
  const found = await plan(graph, parseCluster('local', 4));
  t.is(found.degrees.dp * found.degrees.tp, 4);
  t.is(found.rejected.length, 2);
  const impossible = found.rejected.find(({ degrees }) => degrees.dp === 4);
  t.is(impossible?.reason, 'dp 4 does not divide the batch of 2');
  t.regex(found.rejected.find(({ degrees }) => degrees.dp !== 4)?.reason ?? '', /times as long|as long|no faster/);
});

test('a plan is a function of its question', async (t) => {
  const once = async () => {
    const { memory, ...found } = await plan(llamaGraph(SMALL_LLAMA), parseCluster('2x2:h100-sxm-80', undefined));
    return { ...found, memory: memory.map(({ bytesByTensor: held, ...own }) => ({ ...own, held: held() })) };
  };
  t.deepEqual(await once(), await once());
});

test('degrees that cannot be are refused with what to do', async (t) => {
  const graph = mlpGraph(2, 64, 256);
  const refuse = (devices: number, options: PlanOptions) =>
    t.throwsAsync(() => plan(graph, parseCluster('local', devices), options), { instanceOf: AutoparError });
  const cases = [
    [await refuse(4, { degrees: { dp: 0 } }), 'bad-degree', 'usage', '--dp 2'],
    [await refuse(4, { degrees: { tp: -2 } }), 'bad-degree', 'usage', '--tp 2'],
    [await refuse(4, { degrees: { tp: 3 } }), 'degrees-do-not-match-devices', 'usage', '--devices 6'],
    [await refuse(4, { degrees: { dp: 2, tp: 1 } }), 'degrees-do-not-match-devices', 'usage', '--devices 2'],
    [await refuse(4, { degrees: { dp: 4 } }), 'dp-does-not-divide-batch', 'noPlan', '--global-batch 4'],
    [await refuse(2, { memoryBytes: 1000 }), 'nothing-fits', 'noPlan', 'more memory'],
  ] as const;
  for (const [error, code, exit, hint] of cases) {
    t.is(error?.code, code);
    t.is(error?.exit, exit);
    t.true(error?.hint?.includes(hint), error?.hint);
  }
  t.regex((await refuse(2, { memoryBytes: 1000 }))?.message ?? '', /needs at least .* of 1\.00 kB on each device/);
});

test('what does not fit under given degrees is answered with the cheapest degrees that do', async (t) => {
  const graph = mlpGraph(4, 256, 1024);
  const cluster = parseCluster('1x4:h100-sxm-80', undefined);
  const needed = async (degrees: PlanOptions['degrees']) =>
    Math.max(...(await plan(graph, cluster, { ...(degrees ? { degrees } : {}) })).prediction.peakBytes);
  const [alone, shared] = [await needed({ dp: 4, tp: 1 }), await needed({ dp: 1, tp: 4 })];
  t.true(shared < alone);
  const refused = (memoryBytes: number) =>
    t.throwsAsync(() => plan(graph, cluster, { degrees: { dp: 4, tp: 1 }, memoryBytes }), { instanceOf: AutoparError });
  const between = await refused(Math.floor((shared + alone) / 2));
  const [, dp = '', tp = ''] =
    /^--dp (\d) --tp (\d) fits, at [\d.]+ (s|ms|µs|ns) a step; else /.exec(between?.hint ?? '') ?? [];
  t.true((await needed({ dp: Number(dp), tp: Number(tp) })) <= (shared + alone) / 2);
  t.regex((await refused(1000))?.hint ?? '', /^use devices with more memory/);
  t.regex(
    between?.hint ?? '',
    /; else add --offload parameters: a device then holds [\d.]+ [kM]B of .* with dp 4 tp 1; else use /,
  );
  const kept = await plan(graph, cluster, {
    degrees: { dp: 4, tp: 1 },
    memoryBytes: Math.floor((shared + alone) / 2),
    request: { offload: 'parameters' },
  });
  t.true(Math.max(...kept.prediction.peakBytes) <= (shared + alone) / 2);
});

test('thirty-two layers take fewer than four times the tables of eight', (t) => {
  const mesh = makeMesh([
    ['dp', 2],
    ['tp', 2],
  ]);
  const [of8, of32] = [8, 32].map((layers) => {
    const graph = llamaGraph({ ...SMALL_LLAMA, layers });
    const options = { axes: 'roles', pinned: new Set(['dp', 'tp']), factsOf: operatorFactsOf(graph) } as const;
    const { groups } = meshProblem(graph, mesh, parseCluster('1x4:h100-sxm-80', undefined), options);
    const algebra = new TableAlgebra();
    const { cost, bound } = eliminate(groups.problem(), algebra);
    t.is(cost, bound);
    return algebra.entriesAtFirst;
  });
  t.true((of32 as number) < 4 * (of8 as number), `${of8} entries, then ${of32}`);
});
