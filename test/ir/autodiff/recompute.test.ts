/**
 * @file Clones of forward operators: which there are, what they read, and that the graph without them is the one before.
 */
import test from 'ava';
import { SHIPPED_MODELS } from '../../../models/shipped.js';
import { importModel } from '../../../src/api/models/import.js';
import { recomputedOperators } from '../../../src/api/requests/recompute.js';
import { clonedOperators, originalTensors, withClones, withoutClones } from '../../../src/ir/autodiff/recompute.js';
import { operatorsOfKind, repeatedLayers } from '../../../src/ir/autodiff/recompute-kinds.js';
import { RECOMPUTE_KINDS } from '../../../src/ir/autodiff/recompute-names.js';
import { trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import { AutoparError } from '../../../src/ir/error.js';
import { type Graph, isBackward } from '../../../src/ir/graph.js';
import { entryOf } from '../../../src/ir/ops/index.js';
import { findLayers } from '../../../src/ir/passes/find-layers.js';

async function stepOf(file: string): Promise<Graph> {
  const { graph } = await importModel(`models/${file}`);
  const { graph: step } = trainingGraph(graph, {
    loss: { kind: 'cross_entropy' },
    optimizer: { kind: 'sgd', learningRate: 0.1 },
  });
  return findLayers(step);
}

for (const file of Object.keys(SHIPPED_MODELS))
  for (const kind of RECOMPUTE_KINDS)
    test(`${kind} in ${file}`, async (t) => {
      const graph = await stepOf(file);
      const layers = repeatedLayers(graph);
      const operators = operatorsOfKind(
        graph,
        kind,
        kind === 'stage' ? null : new Set(layers.length === 0 ? [null] : layers),
      );
      const own = { operators, acrossLayers: kind === 'stage', exceptLast: false };
      const cloned = withClones(graph, own);
      // The pass leaves nothing to be done again, and can be taken back.
      t.deepEqual(withoutClones(cloned), graph);
      t.deepEqual(withClones(graph, { ...own, operators: clonedOperators(cloned) }), cloned);
      const originals = originalTensors(cloned);
      const nodes = new Map(cloned.nodes.map((node) => [node.name, node]));
      const made = new Set<string | null>([null, ...cloned.inputs, ...cloned.weights.keys()]);
      for (const node of cloned.nodes) {
        const { name, phase, forward, layer, inputs, outputs, group, attributes, op } = node;
        t.true(
          inputs.every((input) => made.has(input)),
          `${name} comes before what it reads`,
        );
        for (const output of outputs) made.add(output);
        const readsClones = inputs.some((input) => input !== null && originals.has(input));
        if (phase !== 'recompute') t.true(isBackward(phase) || !readsClones, `${name} reads a clone`);
        else {
          const original = nodes.get(forward ?? '');
          t.like(original, { op, layer, group, attributes, phase: 'forward' }, name);
          t.deepEqual(
            inputs.map((input) => originals.get(input ?? '') ?? input),
            original?.inputs,
          );
        }
      }
      const forward = new Set(cloned.nodes.flatMap((node) => (node.phase === 'forward' ? node.outputs : [])));
      forward.delete(null);
      const read = new Set(cloned.nodes.flatMap(({ inputs }) => inputs));
      for (const node of cloned.nodes)
        if (node.phase === 'recompute')
          t.true(
            node.outputs.some((output) => read.has(output)),
            `${node.name} is unread`,
          );
      if (kind === 'stage')
        for (const { name, phase, inputs } of cloned.nodes)
          for (const input of inputs)
            t.true(phase === 'forward' || phase === 'update' || !forward.has(input), `${name} keeps ${input}`);
      if (kind !== 'full' || layers.length === 0) return;
      // A layer's backward reads of the layer what is made again, and what other layers make.
      const makers = new Map(cloned.nodes.flatMap((node) => node.outputs.map((output) => [output, node] as const)));
      for (const node of cloned.nodes.filter(({ phase, layer }) => isBackward(phase) && layer !== null))
        for (const input of node.inputs) {
          const maker = makers.get(input);
          const isOwn = maker?.phase === 'forward' && maker.layer === node.layer;
          const isLayerInput = cloned.nodes.some((other) => other.layer !== node.layer && other.inputs.includes(input));
          t.true(!isOwn || isLayerInput, `${node.name} keeps ${input}`);
        }
    });

test('selective is attention alone, operators all but attention and every second product of a layer', async (t) => {
  const graph = await stepOf('gpt-tiny.onnx');
  const layers = new Set(repeatedLayers(graph));
  const nodes = graph.nodes.filter(({ phase, layer }) => phase === 'forward' && layer !== null && layers.has(layer));
  const families = (kind: 'selective' | 'operators') => {
    const own = operatorsOfKind(graph, kind, layers);
    return nodes.map(({ name, op, domain }) => [entryOf(op, domain)?.family, own.has(name)] as const);
  };
  t.true(families('selective').every(([family, is]) => is === (family === 'attention')));
  const operators = families('operators');
  t.true(operators.every(([family, is]) => (family === 'contraction' ? true : is === (family !== 'attention'))));
  t.deepEqual(
    operators.filter(([family]) => family === 'contraction').map(([, is]) => is),
    [false, true, false, true, false, true, false, true],
  );
});

const REFUSED: readonly (readonly [request: string, message: RegExp, hint: RegExp])[] = [
  ['ful', /'ful' is not a kind of recompute/, /did you mean full/],
  ['everything', /not a kind of recompute/, /none, selective, operators, full, stage/],
  ['full:', /empty part/, /full:0-3,6/],
  ['full:0,,1', /empty part/, /full:0-3,6/],
  ['full:2', /there is no layer 2; the model's layers are 0 to 1/, /the last is 1/],
  ['full:0-7', /there is no layer 7; the model's layers are 0 to 1/, /give 0-1/],
  ['full:1-0', /1-0 ends before it begins/, /give 0-1/],
  ['stage:2:except-last', /there is no layer 2/, /the last is 1/],
  ['operators:g.*', /no layer has a name that fits 'g\.\*'/, /h\.0/],
];

for (const [request, message, hint] of REFUSED)
  test(`refused: --recompute ${request}`, async (t) => {
    const graph = await stepOf('gpt-tiny.onnx');
    const error = t.throws(() => recomputedOperators(graph, request, []), { instanceOf: AutoparError });
    t.is(error?.code, 'bad-option');
    t.is(error?.exit, 'usage');
    t.regex(error?.message ?? '', message);
    t.regex(error?.hint ?? '', hint);
  });

test('layers by number, range and name; pins go before them', async (t) => {
  const graph = await stepOf('gpt-tiny.onnx');
  const layersOf = (request: string) => {
    const { operators } = recomputedOperators(graph, request, []);
    return [...new Set(graph.nodes.flatMap(({ name, layer }) => (operators.has(name) ? [layer] : [])))];
  };
  t.deepEqual(layersOf('full'), ['h.0', 'h.1']);
  t.deepEqual(layersOf('full:1'), ['h.1']);
  t.deepEqual(layersOf('full:0-1'), ['h.0', 'h.1']);
  t.deepEqual(layersOf('full:*.0'), ['h.0']);
  const source = { file: null, line: null, text: 'pins[0]', priority: 0, why: null };
  const pin = (node: string, recompute: boolean) => ({ kind: 'recompute' as const, node, recompute, source });
  const gelu = '/h.0/mlp/Gelu';
  t.false(recomputedOperators(graph, 'full', [pin(gelu, false)]).operators.has(gelu));
  t.deepEqual([...recomputedOperators(graph, undefined, [pin(gelu, true)]).operators], [gelu]);
});

test('what changes nothing is said, and so is what only training has', async (t) => {
  const mlp = await stepOf('mlp.onnx');
  t.regex(recomputedOperators(mlp, 'selective', []).notes[0] ?? '', /--recompute selective changes nothing/);
  // Gradients of the layer read its inputs alone.
  t.regex(recomputedOperators(mlp, 'full', []).notes[0] ?? '', /--recompute full changes nothing/);
  const { graph } = await importModel('models/gpt-tiny.onnx');
  const error = t.throws(() => recomputedOperators(graph, 'full', []), { instanceOf: AutoparError });
  t.regex(error?.message ?? '', /applies to training only/);
  t.deepEqual(recomputedOperators(graph, 'none', []).notes, []);
  const once = recomputedOperators(await stepOf('gpt-tiny.onnx'), 'full:except-last', []);
  t.is(once.operators.size, 0);
  t.regex(once.notes[0] ?? '', /changes nothing: a step has one micro-batch, which is the last/);
});
