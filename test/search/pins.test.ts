/**
 * @file The search with pins: pinned choices are kept, the rest is completed at least cost.
 */
import test from 'ava';
import { parseCluster } from '../../src/cost-model/cluster.js';
import { AutoparError } from '../../src/ir/error.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { ruleOf } from '../../src/ir/ops/index.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { candidatesOf } from '../../src/search/candidates.js';
import { operatorFactsOf } from '../../src/search/operator-facts.js';
import { plan } from '../../src/search/plan.js';
import { type Layout, sameShards } from '../../src/sharding-propagation/layout.js';
import { parseLayout } from '../../src/sharding-propagation/layout-text.js';
import type { Mesh } from '../../src/sharding-propagation/mesh.js';
import type { OperatorPin, Pin, PinSource } from '../../src/sharding-propagation/pin.js';
import { satisfies } from '../../src/sharding-propagation/pin.js';
import { llamaGraph, mlpGraph, SMALL_LLAMA } from './small-graphs.js';

const source: PinSource = { file: 'pins.yaml', line: 3, text: 'pins[0]', priority: 0, why: null };
const CLUSTER = parseCluster('1x4:a100-sxm-80', 4);
const DEGREES = { degrees: { dp: 2, tp: 2 } };

test('pinning the choices of an automatic plan gives that plan back', async (t) => {
  const graph = llamaGraph({ ...SMALL_LLAMA, batch: 4, layers: 1 });
  const free = await plan(graph, CLUSTER, DEGREES);
  const pins = [...free.assignment.strategies].map(
    ([node, { axes }]): OperatorPin => ({ kind: 'operator', node, source, axes: everyFactor(node, axes) }),
  );
  const again = await plan(graph, CLUSTER, { ...DEGREES, operatorPins: () => pins });
  t.is(again.costNanoseconds, free.costNanoseconds);
  for (const [node, { axes }] of free.assignment.strategies)
    t.deepEqual(again.assignment.strategies.get(node)?.axes, axes, node);

  function everyFactor(name: string, axes: OperatorPin['axes']): NonNullable<OperatorPin['axes']> {
    const node = graph.nodes.find((candidate) => candidate.name === name);
    const factors = node ? [...ruleOf(operatorOf(graph, node)).factors.keys()] : [];
    return { ...Object.fromEntries(factors.map((factor) => [factor, []])), ...axes };
  }
});

test('every single pin that an operator allows is kept, and none makes the plan cheaper', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  // Where a pin lifts roles, they are lifted for all: the plan to compare with must be free of them too.
  const free = await plan(graph, CLUSTER, { ...DEGREES, axes: 'free' });
  const { mesh } = free.assignment;
  const factsOf = operatorFactsOf(graph);
  for (const node of graph.nodes) {
    const operator = operatorOf(graph, node);
    const set = candidatesOf({ ...factsOf(node), mesh, cluster: CLUSTER, axes: 'free', pinned: new Set() });
    for (const strategy of set.strategies.slice(0, 12)) {
      const pin: OperatorPin = { kind: 'operator', node: node.name, source, axes: strategy.axes };
      const found = await plan(graph, CLUSTER, { ...DEGREES, operatorPins: () => [pin] });
      const chosen = found.assignment.strategies.get(node.name);
      t.true(chosen && satisfies(pin, chosen, ruleOf(operator), [], mesh), JSON.stringify(strategy.axes));
      t.true(found.costNanoseconds >= free.costNanoseconds);
    }
  }
});

test('a pinned tensor is made, fed or kept in its layout', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const [first] = graph.nodes;
  const result = first?.outputs[0] ?? '';
  const weight = first?.inputs[1] ?? '';
  const input = graph.inputs[0] ?? '';
  const ask = (mesh: Mesh, tensor: string, text: string): Pin => {
    const shape = graph.tensors.get(tensor)?.shape ?? [];
    return { kind: 'tensor', tensor, source, demand: { kind: 'layout', layout: parseLayout(text, shape, mesh) } };
  };
  const found = await plan(graph, CLUSTER, {
    ...DEGREES,
    operatorPins: (mesh) => [ask(mesh, result, '[tp, dp]'), ask(mesh, weight, '[-, dp]'), ask(mesh, input, '[tp, -]')],
  });
  const { mesh } = found.assignment;
  const held = (name: string): Layout => {
    const tensor = onlyStage(found.lowered).tensors.get(name);
    if (!tensor) throw new Error(`no tensor ${name}`);
    return tensor.layout;
  };
  t.true(sameShards(held(result), parseLayout('[tp, dp]', [8, 256], mesh), mesh));
  t.true(sameShards(held(weight), parseLayout('[-, dp]', [64, 256], mesh), mesh));
  t.true(sameShards(held(input), parseLayout('[tp, -]', [8, 64], mesh), mesh));
});

test("a MindSpore user's split counts are met by whichever axes", async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const node = graph.nodes[0]?.name ?? '';
  const split = (counts: readonly number[]) => ({ kind: 'split' as const, counts });
  const pin: OperatorPin = { kind: 'operator', node, source, operands: [split([1, 4]), split([4, 1])] };
  const found = await plan(graph, CLUSTER, { ...DEGREES, operatorPins: () => [pin] });
  const axes = found.assignment.strategies.get(node)?.axes['k'];
  t.deepEqual([...(axes ?? [])].sort(), ['dp', 'tp']);
});

test('a pin that no strategy satisfies is refused with the pin, the operator and its rule', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const node = graph.nodes[0]?.name ?? '';
  const pin: OperatorPin = { kind: 'operator', node, source, operands: [{ kind: 'split', counts: [3, 1] }] };
  const error = await t.throwsAsync(plan(graph, CLUSTER, { ...DEGREES, operatorPins: () => [pin] }), {
    instanceOf: AutoparError,
  });
  t.is((error as AutoparError).code, 'pin-cannot-be-kept');
  t.regex(error?.message ?? '', /pins\[0\].*MatMul.*m k/);
  t.deepEqual((error as AutoparError).where, { file: 'pins.yaml', line: 3 });
});

test('pins bind on every mesh that is tried', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const node = graph.nodes[0]?.name ?? '';
  const seen: string[] = [];
  await plan(graph, CLUSTER, {
    operatorPins: (mesh) => {
      seen.push(mesh.axes.map(({ size }) => size).join());
      return [{ kind: 'operator', node, source, axes: {} }];
    },
  });
  t.deepEqual([...new Set(seen)].sort(), ['1,4', '2,2', '4,1']);
});

test('of pins that an operator cannot keep together, only those that contradict are named', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const pin = (text: string, axes: NonNullable<OperatorPin['axes']>): OperatorPin => ({
    kind: 'operator',
    node: 'layers.0.up',
    source: { ...source, text },
    axes,
  });
  const pins = [pin('rows', { m: ['dp'] }), pin('columns', { n: ['tp'] }), pin('inner', { k: ['tp'] })];
  const error = await t.throwsAsync(plan(graph, CLUSTER, { ...DEGREES, operatorPins: () => pins }), {
    instanceOf: AutoparError,
  });
  t.is(error?.code, 'pin-cannot-be-kept');
  t.regex(error?.message ?? '', /^columns and inner: MatMul layers\.0\.up cannot satisfy this/);
  // Any two of the three that do not contradict are kept.
  for (const kept of [pins.slice(0, 2), [pins[0], pins[2]] as OperatorPin[]])
    await t.notThrowsAsync(plan(graph, CLUSTER, { ...DEGREES, operatorPins: () => kept }));
});

test('of pins that leave no plan, a smallest set is named', async (t) => {
  const graph = mlpGraph(8, 64, 256, 1);
  const [output = ''] = graph.outputs;
  const ask = (mesh: Mesh, tensor: string, text: string): Pin => ({
    kind: 'tensor',
    tensor,
    source: { ...source, text: `${text} on ${tensor}` },
    demand: { kind: 'layout', layout: parseLayout(text, graph.tensors.get(tensor)?.shape ?? [], mesh) },
  });
  const operatorPins = (mesh: Mesh) => [ask(mesh, 'x', '[dp, -]'), ask(mesh, output, '[dp, -] + partial(tp)')];
  for (const mode of ['auto', 'ilp', 'recursive_programming'] as const) {
    const error = await t.throwsAsync(plan(graph, CLUSTER, { ...DEGREES, operatorPins, mode }), {
      instanceOf: AutoparError,
    });
    t.is(error?.code, 'pins-leave-no-plan', mode);
    t.is(
      error?.message,
      `[dp, -] + partial(tp) on ${output} leaves no plan on dp 2 · tp 2, whatever the other operators do`,
    );
  }
});
