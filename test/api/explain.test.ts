/**
 * explain: chains lead back to what was written, prices add up to the plan's, names that are not there are offered.
 */
import test from 'ava';
import { type Explainable, explainTensor } from '../../src/api/explain.js';
import { explainMesh } from '../../src/api/explanations/explain-mesh.js';
import { explainOperator } from '../../src/api/explanations/explain-operator.js';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { LAUNCHES, OUTSIDE, priceGraph } from '../../src/cost-model/predict.js';
import { trainingGraph } from '../../src/ir/autodiff/training-graph.js';
import { AutoparError } from '../../src/ir/error.js';
import type { Graph } from '../../src/ir/graph.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { type PlanResult, plan } from '../../src/search/plan.js';
import type { Pin } from '../../src/sharding-propagation/pin.js';
import { convGraph, mlpGraph } from '../search/small-graphs.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const CLUSTER = parseCluster('1x4:a100-sxm-80', 4);
const DEGREES = { dp: 2, tp: 2 };
const PIN: Pin = {
  kind: 'operator',
  node: 'layers.0.up',
  source: { file: 'pins.yaml', line: 3, text: 'pins[0]: factors {n: tp} on layers.0.up', priority: 0, why: null },
  axes: { n: ['tp'] },
};

function explainable(graph: Graph, found: PlanResult, pins: readonly Pin[]): Explainable {
  const { assignment, propagation = null } = found;
  return { graph, cluster: CLUSTER, assignment, allToAll: true, propagation, pins };
}

async function propagated(): Promise<Explainable> {
  const graph = mlpGraph(8, 64, 256, 1);
  const found = await plan(graph, CLUSTER, {
    mode: 'sharding_propagation',
    degrees: DEGREES,
    operatorPins: () => [PIN],
  });
  return explainable(graph, found, [PIN]);
}

test('a trained parameter is a weight, what else a step changes is state, and labels are an input', async (t) => {
  const { graph, trained, labels } = trainingGraph(mlpGraph(8, 64, 256, 1), {
    loss: { kind: 'mse' },
    optimizer: { kind: 'sgd', learningRate: 0.1, momentum: 0.9 },
  });
  const subject = explainable(graph, await plan(graph, CLUSTER, { degrees: DEGREES }), []);
  const roles = new Map(graph.inputs.map((name) => [name, explainTensor(subject, name).role]));
  t.true(trained.length > 0);
  for (const name of trained) t.is(roles.get(name), 'weight');
  t.is(roles.get(labels ?? ''), 'input');
  const moments = [...roles].filter(([name]) => name.endsWith('/momentum')).map(([, role]) => role);
  t.deepEqual(
    moments,
    trained.map(() => 'state'),
  );
});

test('a tensor of a propagated plan: step by step back to the pin', async (t) => {
  const { role, layouts, chains, shards } = explainTensor(await propagated(), 'layers.0.B');
  t.is(role, 'weight');
  t.deepEqual(layouts, ['[tp, -]']);
  t.deepEqual(shards, [{ reader: 'layers.0.down', operand: 1, layout: '[tp, -]' }]);
  t.deepEqual(
    chains.map(({ axes, place, steps }) => [axes, place, steps.map(({ says }) => says)]),
    [
      [
        ['tp'],
        'dimension 0',
        [
          'tensor layers.0.B, dimension 0',
          'operator layers.0.down, factor k',
          'tensor layers.0.act, dimension 1',
          'operator layers.0.act, factor a1',
          'tensor layers.0.up, dimension 1',
          'operator layers.0.up, factor n',
          'pins[0]: factors {n: tp} on layers.0.up (pins.yaml:3)',
        ],
      ],
    ],
  );
});

test('an operator of a propagated plan: chains per factor, its pins, its pending reduction', async (t) => {
  const plan = await propagated();
  const down = explainOperator(plan, 'layers.0.down');
  t.deepEqual(
    down.chains.map(({ place, steps }) => [place, steps.at(-1)?.says]),
    [
      ['factor m', 'the batch, which dp shards'],
      ['factor k', 'pins[0]: factors {n: tp} on layers.0.up (pins.yaml:3)'],
    ],
  );
  t.is(down.strategy.reduction, 'all-reduce');
  t.deepEqual(
    down.collectives.map(({ kind, axes }) => [kind, axes]),
    [['all-reduce', ['tp']]],
  );
  t.deepEqual(explainOperator(plan, 'layers.0.up').pins, [PIN.source]);
});

slow("operators' prices and redistributions add up to the plan's cost", async (t) => {
  const [layers, image] = [mlpGraph(8, 64, 256, 2), convGraph(4)];
  const onChannels: Pin = { ...PIN, node: 'conv2', axes: { co: ['tp'] } };
  for (const [graph, found] of [
    [layers, await plan(layers, CLUSTER, { degrees: DEGREES })],
    [
      layers,
      await plan(layers, CLUSTER, { mode: 'sharding_propagation', degrees: DEGREES, operatorPins: () => [PIN] }),
    ],
    [
      image,
      await plan(image, CLUSTER, { mode: 'sharding_propagation', degrees: DEGREES, operatorPins: () => [onChannels] }),
    ],
  ] as const) {
    const subject = explainable(graph, found, []);
    let seconds = 0;
    for (const { name, outputs } of graph.nodes) {
      const { computeSeconds, collectives, redistributions } = explainOperator(subject, name);
      seconds += computeSeconds + collectives.reduce((sum, part) => sum + part.seconds, 0);
      // Views are counted at their maker, readers' own ways at the reader.
      for (const { side, seconds: own } of redistributions) if (side === 'operand') seconds += own;
      for (const output of outputs)
        if (output !== null) for (const view of explainTensor(subject, output).views) seconds += view.seconds;
    }
    t.is(Math.round(seconds * 1e9), priceGraph(onlyStage(found.lowered), CLUSTER));
  }
});

test('alternatives: the chosen strategy differs by nothing, and under no pin no other is better alone', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const found = await plan(graph, CLUSTER, { degrees: DEGREES });
  for (const { name } of graph.nodes) {
    const { alternatives, strategy } = explainOperator(explainable(graph, found, []), name);
    const own = alternatives.find((other) => JSON.stringify(other.strategy) === JSON.stringify(strategy));
    t.true(own !== undefined && Math.abs(own.differenceSeconds) < 1e-12, name);
    t.true(alternatives.length > 1);
    const same = alternatives.every(
      (other, at) => at === 0 || other.differenceSeconds >= (alternatives[at - 1]?.differenceSeconds ?? 0),
    );
    t.true(same, 'cheapest first');
  }
});

test('alternatives that the search had to leave out are marked by what left them out', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const searched = async (degrees: { readonly dp?: number; readonly tp?: number }, pins: readonly Pin[]) => {
    const found = await plan(graph, CLUSTER, { degrees, operatorPins: () => pins });
    const left = { axes: 'roles' as const, degrees: new Set(Object.keys(degrees)) };
    return (name: string) => explainOperator({ ...explainable(graph, found, pins), left }, name);
  };
  const given = await searched(DEGREES, []);
  for (const { name } of graph.nodes) {
    const { alternatives, strategy } = given(name);
    const own = alternatives.find((other) => JSON.stringify(other.strategy) === JSON.stringify(strategy));
    t.is(own?.ruledOut, null, name);
  }
  const { alternatives, rule } = given('layers.0.up');
  t.is(rule, '*b m k+, *b k+ n -> *b m n');
  const textOf = (axes: object) => JSON.stringify(Object.entries(axes).sort());
  const reasonFor = (axes: object, of = alternatives) =>
    of.find(({ strategy }) => strategy.reduction === 'none' && textOf(strategy.axes) === textOf(axes))?.ruledOut;
  t.is(reasonFor({ m: ['dp'], n: ['tp'] }), null);
  t.is(reasonFor({ m: ['dp'] }), 'degrees');
  t.is(reasonFor({ m: ['tp'], n: ['dp'] }), 'roles');
  const pinned = (await searched(DEGREES, [PIN]))('layers.0.up').alternatives;
  t.is(reasonFor({ m: ['dp'], n: ['tp'] }, pinned), null);
  t.is(reasonFor({ m: ['dp'] }, pinned), 'pins');
  const found = await plan(graph, CLUSTER, { degrees: DEGREES });
  const unknown = explainOperator(explainable(graph, found, []), 'layers.0.up');
  t.true(unknown.alternatives.every(({ ruledOut }) => ruledOut === null));
});

test('names that are not there', async (t) => {
  const subject = await propagated();
  for (const [explain, code] of [
    [() => explainTensor(subject, 'layers.0.bct'), 'unknown-tensor'],
    [() => explainOperator(subject, 'layers.0.bct'), 'unknown-node'],
  ] as const) {
    const error = t.throws(explain, { instanceOf: AutoparError });
    t.is((error as AutoparError).code, code);
    t.is((error as AutoparError).hint, 'did you mean layers.0.act?');
  }
});

test('axes of a plan: bytes and seconds add up to the prediction, tp lies inside a node, dp across', async (t) => {
  const graph = mlpGraph(8, 64, 256, 2);
  const cluster = parseCluster('2x2:a100-sxm-80', undefined);
  const found = await plan(graph, cluster, { degrees: { dp: 2, tp: 2 } });
  const axes = explainMesh({ ...explainable(graph, found, []), cluster });
  t.deepEqual(
    axes.map(({ axis, ranks, levels }) => [axis, ranks, levels]),
    [
      ['tp', 2, [{ level: 'node', members: 2 }]],
      ['dp', 2, [{ level: 'network', members: 2 }]],
    ],
  );
  const sum = (of: (axis: (typeof axes)[number]) => number) => axes.reduce((total, axis) => total + of(axis), 0);
  t.is(
    sum(({ sentBytes }) => sentBytes),
    found.prediction.bytesCommunicated,
  );
  const { compute = 0, [LAUNCHES]: _, [OUTSIDE]: __, ...communication } = found.prediction.parts;
  const seconds = Object.values(communication).reduce((total, part) => total + part, 0);
  t.true(seconds > 0 && compute > 0);
  t.true(Math.abs(sum((axis) => axis.seconds) - seconds) < 1e-9);
  t.is(axes[0]?.link?.bytesPerSecond, cluster.levels[0]?.bandwidth);
});
