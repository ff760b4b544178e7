/**
 * @file Dispatched experts against the same model as it was written, in ONNX Runtime: exactly it where every token finds a slot,
 * and with a mask over its gates where tokens are dropped.
 */
import test from 'ava';
import { GraphBuilder } from '../../../models/builder.js';
import { randomInputs } from '../../../src/api/execution/inputs.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { AutoparError } from '../../../src/ir/error.js';
import { type DispatchOptions, dispatchExperts as dispatchPlain } from '../../../src/ir/experts/dispatch-experts.js';
import { DISPATCHES } from '../../../src/ir/experts/dispatches.js';
import { expandExperts } from '../../../src/ir/experts/expand-experts.js';
import { sumGathered } from '../../../src/ir/experts/gathered-results.js';
import { sumGatheredWeights } from '../../../src/ir/experts/gathered-weights.js';
import { splitEinsums } from '../../../src/ir/experts/split-einsum.js';
import { stackExperts } from '../../../src/ir/experts/stack-experts.js';
import type { Graph, Node } from '../../../src/ir/graph.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import { EXPERT_FORMS, type ExpertSizes, routedExperts, SMALL } from '../../pipelines/expert-models.js';

const batched = (graph: Graph): Graph => ({ ...graph, batch: [{ input: 'ids', axis: 0 }] });

/** As import does. */
const plainOf = (graph: Graph) => sumGathered(sumGatheredWeights(stackExperts(splitEinsums(expandExperts(graph)))));
const dispatchExperts = (graph: Graph, options: DispatchOptions) => dispatchPlain(plainOf(graph), options);

async function resultsOf(graph: Graph): Promise<Readonly<Record<string, readonly number[]>>> {
  const results = await runGraph(graph, randomInputs(graph, 5));
  return Object.fromEntries(Object.entries(results).map(([name, value]) => [name, numbersOf(value).map(Number)]));
}

function isClose(a: readonly number[] = [], b: readonly number[] = []): boolean {
  const scale = Math.max(...b.map(Math.abs));
  return a.length === b.length && a.every((value, index) => Math.abs(value - (b[index] ?? Number.NaN)) <= 1e-5 * scale);
}

for (const [at, form] of EXPERT_FORMS.filter((each) => each !== 'capacity').entries())
  test(`with room for every token, experts written as ${form} compute what the model does`, async (t) => {
    const graph = batched(routedExperts(form));
    const [dispatch = 'padded'] = DISPATCHES.slice(at % DISPATCHES.length);
    const { graph: sent, layers } = dispatchExperts(graph, { dispatch });
    const [written, dispatched] = [await resultsOf(graph), await resultsOf(sent)];
    t.true(isClose(dispatched['y'], written['y']));
    t.is(layers.length, SMALL.layers);
    for (const { counts, capacity, chosen } of layers) {
      t.is(capacity, SMALL.steps);
      t.is(chosen, SMALL.chosen);
      const sum = dispatched[counts]?.reduce((all, count) => all + count, 0);
      t.is(sum, SMALL.batch * SMALL.steps * SMALL.chosen);
    }
  });

const SKEWS: Readonly<Record<string, Partial<ExpertSizes>>> = {
  'even gates': {},
  'one expert that every token chooses': { bias: 50 },
  'one expert that takes all tokens, the others none': { bias: 50, chosen: 1 },
};

for (const [name, skew] of Object.entries(SKEWS))
  test(`tokens beyond the capacity get nothing from their expert: ${name}`, async (t) => {
    const sizes = { ...SMALL, ...skew };
    const graph = batched(routedExperts('einsum', sizes));
    const { graph: sent, layers } = dispatchExperts(graph, { dispatch: 'padded', capacityFactor: 1 });
    const capacity = Math.ceil((sizes.chosen * sizes.steps) / sizes.experts);
    t.deepEqual(
      layers.map((layer) => layer.capacity),
      [capacity, capacity],
    );
    const { graph: filled } = dispatchExperts(graph, { dispatch: 'variable', capacityFactor: 1 });
    const masked = await resultsOf(routedExperts('einsum', { ...sizes, capacity }));
    const dispatched = await resultsOf(sent);
    t.true(isClose(dispatched['y'], masked['y']));
    t.deepEqual(await resultsOf(filled), dispatched, 'to the bit');
    t.false(isClose(dispatched['y'], (await resultsOf(graph))['y']), 'some are dropped');
    const counts = dispatched[layers[0]?.counts ?? ''] ?? [];
    if (skew.bias) t.true(counts.every((count, index) => index % sizes.experts !== 0 || count === sizes.steps));
    if (skew.chosen === 1) t.is(counts.filter((count) => count > 0).length, sizes.batch);
  });

for (const form of ['unrolled', 'masked', 'together'] as const)
  test(`experts written as ${form} are one on stacked weights, which are those of the file`, async (t) => {
    const graph = batched(routedExperts(form, { ...SMALL, layers: 1, merges: true }));
    const stacked = stackExperts(graph);
    t.true(isClose((await resultsOf(stacked))['y'], (await resultsOf(graph))['y']));
    const { experts, width, inner } = SMALL;
    const shapes = [...stacked.weights].flatMap(([name, { shape, file }]) => (file?.parts ? [[name, shape]] : []));
    t.deepEqual(Object.fromEntries(shapes), {
      'layers.0.experts.experts.up.weight': [experts, width, 2 * inner],
      'layers.0.experts.experts.up.bias': [experts, 2 * inner],
      'layers.0.experts.experts.down.weight': [experts, inner, width],
      // The exporter stored one of equal ones.
      'layers.0.experts.experts.0.down.bias/stacked': [experts, width],
    });
    const parts = [...stacked.weights.values()].flatMap(({ file }) => file?.parts ?? []);
    t.deepEqual([...new Set(parts.map(({ file }) => file.name))].sort(), removed(graph, stacked));
    t.is(stackExperts(stacked), stacked);
  });

/** Names of weights that a graph has no more. */
function removed(graph: Graph, { weights }: Graph): readonly string[] {
  return [...graph.weights.keys()].filter((name) => !weights.has(name)).sort();
}

test('experts of unlike forms, with a weight in common or an inner result that is read stay as they are written', (t) => {
  const graph = batched(routedExperts('unrolled', { ...SMALL, layers: 1, experts: 2 }));
  const [first = '', second = ''] = [0, 1].map((index) => `layers.0.experts.experts.${index}.up.weight`);
  const rewritten = (change: (node: Node) => Node): Graph => ({ ...graph, nodes: graph.nodes.map(change) });
  const inFirst = ({ module }: Node) => module.includes('experts.0');
  const inner = graph.nodes.find((node) => node.op === 'Tanh')?.outputs[0] ?? '';
  const unlike = rewritten((node) => (node.op === 'Tanh' && inFirst(node) ? { ...node, op: 'Sigmoid' } : node));
  const common = rewritten((node) => ({
    ...node,
    inputs: node.inputs.map((name) => (name === second ? first : name)),
  }));
  const read = { ...graph, outputs: [...graph.outputs, inner] };
  for (const each of [unlike, common, read]) t.is(stackExperts(each), each);
  t.not(stackExperts(graph), graph);
});

test('sums of tensors without dimensions are no sums of experts', (t) => {
  const builder = new GraphBuilder('scalars', 21);
  const [a, b] = ['a', 'b'].map((name) => builder.input(name, 'float32', []));
  builder.output('y', builder.operator('Add', [a ?? '', b ?? '']));
  const graph = builder.build();
  t.is(stackExperts(graph), graph);
});

test('what is no layer of experts with a gate of the top k is left alone', (t) => {
  const layersOf = (graph: Graph) => dispatchExperts(batched(graph), { dispatch: 'padded' }).layers.length;
  // Masks of slots are dispatched by themselves; and of four experts the top four are all.
  for (const graph of [routedExperts('capacity'), routedExperts('einsum', { ...SMALL, chosen: 4 })]) {
    const error = t.throws(() => layersOf(graph), { instanceOf: AutoparError });
    t.is(error?.code, 'no-experts');
  }
});

test('gathered results are a sum over experts, unless something else reads them', async (t) => {
  const graph = stackExperts(batched(routedExperts('gathered')));
  const summed = sumGathered(graph);
  t.true(isClose((await resultsOf(summed))['y'], (await resultsOf(graph))['y']));
  // The gathered weights of gates stay, and no result of an expert is gathered any more.
  const gathers = ({ nodes }: Graph) => nodes.filter(({ op }) => op === 'GatherElements').length;
  t.deepEqual([gathers(graph), gathers(summed)], [2 * SMALL.layers, SMALL.layers]);
  const results = graph.nodes.flatMap(({ op, outputs }) => (op === 'GatherElements' ? (outputs[0] ?? []) : []));
  const read = { ...graph, outputs: [...graph.outputs, ...results] };
  t.is(sumGathered(read), read);
});

test('gathered weights are those of all experts, unless something else reads a result', (t) => {
  for (const form of ['chosen', 'lookup'] as const) {
    const graph = batched(routedExperts(form));
    const summed = sumGatheredWeights(graph);
    const gathers = ({ nodes, weights }: Graph) =>
      nodes.filter(({ op, inputs }) => op === 'Gather' && weights.get(inputs[0] ?? '')?.shape.length === 3).length;
    t.deepEqual([gathers(graph), gathers(summed)], [2 * SMALL.layers, 0]);
    const inner = graph.nodes.flatMap(({ op, outputs }) => (['Tanh', 'Relu'].includes(op) ? (outputs[0] ?? []) : []));
    const read = { ...graph, outputs: [...graph.outputs, ...inner] };
    t.is(sumGatheredWeights(read), read);
  }
});

test('a result of the experts that something else reads stays as it is written', (t) => {
  const graph = batched(routedExperts('einsum'));
  const [inner = ''] = graph.nodes.flatMap(({ op, outputs }) => (op === 'Sigmoid' ? (outputs[0] ?? []) : []));
  const read = { ...graph, outputs: [...graph.outputs, inner] };
  t.is(dispatchExperts(read, { dispatch: 'padded' }).layers.length, SMALL.layers - 1);
});
