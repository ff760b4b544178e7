/**
 * @file Stages are a partition of the training graph: every operator that depends on a parameter is on one stage, every tensor
 * that a stage reads is fed, kept, made or received there, what is received was sent by an earlier place in the whole graph's
 * order, and forward operators stand in the order in which their chunks run. No stage waits for weight gradients of another.
 */
import test from 'ava';
import fc from 'fast-check';
import { GraphBuilder } from '../../models/builder.js';
import { generatedModel } from '../../models/families.js';
import { linear } from '../../models/transformer.js';
import { trainingGraph } from '../../src/ir/autodiff/training-graph.js';
import type { Graph } from '../../src/ir/graph.js';
import { accumulatedApart, cutStages, type StagePlace } from '../../src/partition/cut-stages.js';
import { draws as drawsOf } from '../selection.js';

const MODELS: Readonly<Record<string, string>> = {
  'a tied table': 'gpt:layers=2,hidden=16,heads=2,seq=8,vocab=32',
  'skip connections': 'unet',
  residuals: 'resnet',
  experts: 'moe:layers=2,hidden=16,heads=2,kv_heads=2,seq=8,experts=2,vocab=32',
};

const graphs = new Map<string, Graph>();

function trained(name: string): Graph {
  const known = graphs.get(name);
  if (known) return known;
  const forward = generatedModel(MODELS[name] ?? '').build(2);
  const optimizer = { kind: 'adamw', learningRate: 1e-3, clipNorm: 1 } as const;
  const { graph } = trainingGraph(forward, { loss: { kind: 'cross_entropy' }, optimizer });
  graphs.set(name, graph);
  return graph;
}

for (const name of Object.keys(MODELS)) {
  test(`a graph with ${name} in stages`, (t) => {
    const graph = trained(name);
    const forward = graph.nodes.filter(({ phase }) => phase === 'forward').map((node) => node.name);
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 2 }),
        fc.infiniteStream(fc.nat()),
        (stages, chunks, draws) => {
          const cuts = Array.from(
            { length: stages * chunks - 1 },
            () => Number(draws.next().value) % (forward.length + 1),
          ).sort((a, b) => a - b);
          const placeOf = new Map<string, StagePlace>();
          forward.forEach((operator, index) => {
            const part = cuts.filter((cut) => cut <= index).length;
            placeOf.set(operator, { stage: part % stages, chunk: Math.floor(part / stages) });
          });
          return problemsOf(accumulatedApart(graph, placeOf), placeOf, stages).length === 0;
        },
      ),
      { numRuns: drawsOf(60) },
    );
    t.deepEqual(problemsOf(graph, new Map(forward.map((operator) => [operator, { stage: 0, chunk: 0 }])), 1), []);
  });
}

test('a cut between layers sends one activation, and one gradient of it: the sum of what its readers make', (t) => {
  const graph = trained('experts');
  const forward = graph.nodes.filter(({ phase }) => phase === 'forward');
  const first = forward.findIndex(({ name }) => name.startsWith('/layers.1/'));
  const placeOf = new Map(forward.map(({ name }, index) => [name, { stage: index < first ? 0 : 1, chunk: 0 }]));
  const apart = accumulatedApart(graph, placeOf);
  const micro = cutStages(apart, placeOf, 2).transfers.filter(({ when }) => when === 'micro');
  t.deepEqual(
    micro.map(({ from, to }) => [from, to]),
    [
      [0, 1],
      [1, 0],
    ],
  );
  const [activation, gradient] = micro.map(({ tensor }) => apart.tensors.get(tensor));
  t.deepEqual(gradient?.shape, activation?.shape);
  const readers = forward.filter(({ inputs }) => inputs.includes(micro[0]?.tensor ?? ''));
  t.is(readers.length, 2);
});

test('the first stage is fed what no operator reads, as the whole graph is', (t) => {
  const builder = new GraphBuilder('unread', 21);
  const x = builder.input('x', 'float32', [4, 8]);
  builder.input('unread', 'float32', [4, 3]);
  builder.output('y', linear(builder, 'second', linear(builder, 'first', x, 8), 8));
  const graph = builder.build();
  const placeOf = new Map(
    graph.nodes.map(({ name }) => [name, { stage: name.includes('second') ? 1 : 0, chunk: 0 }] as const),
  );
  const { stages, transfers } = cutStages(graph, placeOf, 2);
  const [sent] = transfers.map(({ tensor }) => tensor);
  t.deepEqual(
    stages.map(({ graph: { inputs } }) => inputs),
    [['x', 'unread'], [sent ?? '']],
  );
});

function problemsOf(graph: Graph, placeOf: ReadonlyMap<string, StagePlace>, count: number): readonly string[] {
  const { stages, transfers } = cutStages(graph, placeOf, count);
  const problems: string[] = [];
  const order = new Map(graph.nodes.flatMap((node, index) => node.outputs.map((output) => [output, index] as const)));
  const times = new Map<string, number>();
  const ofWeights = movedByParameters(graph);
  for (const { graph: stage } of stages)
    for (const { name } of stage.nodes) times.set(name, (times.get(name) ?? 0) + 1);
  for (const { name, outputs } of graph.nodes) {
    const found = times.get(name) ?? 0;
    if (found === 0) problems.push(`${name} is on no stage`);
    if (found > 1 && outputs.some((output) => ofWeights.has(output))) problems.push(`${name} is on ${found} stages`);
  }
  for (const [index, { graph: stage, chunks }] of stages.entries()) {
    const turns = stage.nodes.flatMap(({ name, phase }) => (phase === 'forward' ? [chunks.get(name) ?? 0] : []));
    if (turns.some((turn, at) => turn < (turns[at - 1] ?? 0))) problems.push(`stage ${index} mixes its chunks`);
    const there = new Set<string | null>([null, ...stage.inputs, ...stage.weights.keys()]);
    for (const node of stage.nodes) {
      for (const input of node.inputs)
        if (!there.has(input)) problems.push(`stage ${index} lacks ${input} for ${node.name}`);
      for (const output of node.outputs) there.add(output);
    }
    const putOff = new Set(stage.nodes.flatMap(({ phase, outputs }) => (phase === 'backward-weight' ? outputs : [])));
    for (const { tensor, from, when } of transfers) {
      if (from !== index) continue;
      if (!there.has(tensor)) problems.push(`stage ${index} sends ${tensor}, which it lacks`);
      // Another stage would wait for what zero-bubble schedules put off.
      if (when === 'micro' && putOff.has(tensor)) problems.push(`stage ${index} may put off ${tensor}, which it sends`);
    }
    for (const { input, output } of stage.state)
      if (!there.has(input) || !there.has(output)) problems.push(`stage ${index} keeps ${input} without its values`);
  }
  const given = new Set(stages.flatMap(({ graph: stage }) => stage.outputs));
  for (const output of graph.outputs) if (!given.has(output)) problems.push(`output ${output} is no stage's`);
  const kept = new Set(stages.flatMap(({ graph: stage }) => stage.state.map(({ input }) => input)));
  for (const { input } of graph.state) if (!kept.has(input)) problems.push(`state ${input} is no stage's`);
  const places = transfers.map(({ tensor, when }) => (when === 'begin' ? -1 : (order.get(tensor) ?? -1)));
  if (places.some((place, index) => place < (places[index - 1] ?? -1))) problems.push('transfers are out of order');
  return problems;
}

/** Tensors that some trained weight has part in. */
function movedByParameters(graph: Graph): ReadonlySet<string | null> {
  const trainedInputs = graph.state.filter(({ output }) => output.includes('/update/')).map(({ input }) => input);
  const moved = new Set<string | null>(trainedInputs.filter((name) => !name.startsWith('optimizer/')));
  for (const node of graph.nodes)
    if (node.inputs.some((name) => moved.has(name))) for (const output of node.outputs) moved.add(output);
  moved.delete(null);
  return moved;
}
