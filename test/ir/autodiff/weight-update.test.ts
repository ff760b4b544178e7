/**
 * @file Weight updates as regions: they compute the formulas of the optimizers' papers, whole and in shards; and a weight is
 * one operator to plan.
 */
import test from 'ava';
import fc from 'fast-check';
import { mlp } from '../../../models/mlp.js';
import { appendOptimizer } from '../../../src/ir/autodiff/append-optimizer.js';
import type { OptimizerOptions } from '../../../src/ir/autodiff/optimizer-options.js';
import { cutInMicroBatches, type TrainingOptions, trainingGraph } from '../../../src/ir/autodiff/training-graph.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import { elementCount, type Graph, type Node, type Weight } from '../../../src/ir/graph.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { operatorOf } from '../../../src/ir/operator-of.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { ruleOf } from '../../../src/ir/ops/index.js';
import { evaluate } from '../../../src/runtime/evaluate.js';
import { provesRight } from '../fused-regions/every-strategy.js';

const [STEP, RATE] = [3, 0.05];
/** Norms of a weight, and of the change that LAMB would make to it. */
const [OWN_NORM, CHANGE_NORM] = [1.3, 0.7];
const isRegion = ({ op }: Node) => op === 'OptimizerUpdate';

/** A weight, a gradient that is handed in, and its update. */
function updated(shape: readonly number[], options: OptimizerOptions, decays: boolean): Graph {
  const type = { dtype: 'float32', shape } as const;
  const graph: Graph = {
    ...{ name: 'update', nodes: [], inputs: ['g'], outputs: [], state: [], batch: [] },
    tensors: new Map([
      ['w', type],
      ['g', type],
    ]),
    weights: new Map([['w', { ...type, role: 'parameter', source: { kind: 'absent' } }]]),
  };
  return appendOptimizer(graph, [{ name: 'w', gradient: 'g', decays }], options);
}

/** Scalars that all updates read, in the third step, as ONNX Runtime computes them. */
async function scalarsOf(graph: Graph): Promise<ReadonlyMap<string, number>> {
  const nodes = graph.nodes.filter((node) => !isRegion(node) && node.op !== 'ReduceL2');
  const before = constant('int64', [STEP - 1]);
  const weights = new Map(graph.weights).set('optimizer/step', {
    ...{ dtype: 'int64', shape: [], role: 'buffer', source: { kind: 'inline', data: before.data } },
  });
  weights.delete('w');
  const outputs = nodes.flatMap((node) => node.outputs.flatMap((name) => name ?? []));
  const values = await evaluate(writeOnnx({ ...graph, nodes, weights, inputs: [], outputs, state: [] }), {});
  return new Map(Object.entries(values).map(([name, value]) => [name, numbersOf(value)[0] ?? Number.NaN]));
}

/** Values of tensors around a region, by name; moments are at least zero, as mean squares are. */
function valuesOf(graph: Graph, name: string, scalars: ReadonlyMap<string, number>): readonly number[] {
  const { shape } = graph.tensors.get(name) ?? { shape: [] };
  const scalar = scalars.get(name);
  if (scalar !== undefined) return [scalar];
  const maker = graph.nodes.find(({ outputs }) => outputs.includes(name));
  if (maker?.op === 'ReduceL2') return [maker.inputs[0] === 'w' ? OWN_NORM : CHANGE_NORM];
  const seed = name.length + (name.codePointAt(0) ?? 0);
  const drawn = Array.from({ length: elementCount(shape) }, (_, at) => Math.sin(seed + 1.7 * at));
  return name.endsWith('square') ? drawn.map(Math.abs) : drawn;
}

/** A region alone, with values for what it reads. */
function alone(graph: Graph, node: Node, scalars: ReadonlyMap<string, number>): Graph {
  const names = [...node.inputs, ...node.outputs].filter((name) => name !== null);
  const weights = node.inputs.flatMap((name): readonly (readonly [string, Weight])[] => {
    if (name === null) return [];
    const { dtype, shape } = graph.tensors.get(name) ?? { dtype: 'float32', shape: [] };
    const { data } = constant(dtype, valuesOf(graph, name, scalars), shape);
    return [[name, { dtype, shape, role: 'buffer', source: { kind: 'inline', data } }]];
  });
  return {
    ...{ ...graph, nodes: [node], inputs: [], outputs: node.outputs.filter((name) => name !== null), state: [] },
    tensors: new Map([...graph.tensors].filter(([name]) => names.includes(name))),
    weights: new Map(weights),
  };
}

/** One element of an update, as torch.optim and You et al. (2020) have it: the new value of each name of state. */
function byThePaper(options: OptimizerOptions, decays: boolean, of: (name: string) => number): Record<string, number> {
  const { kind, momentum = 0, nesterov = false, betas: [a, b] = [0.9, 0.999] } = options;
  const decay = decays ? (options.weightDecay ?? (kind === 'adamw' ? 0.01 : 0)) : 0;
  const [w, gradient] = [of('w'), of('g')];
  const slope = kind === 'sgd' || kind === 'adam' ? gradient + decay * w : gradient;
  if (kind === 'sgd' && momentum === 0) return { w: w - RATE * slope };
  if (kind === 'sgd') {
    const buffer = momentum * of('w/momentum') + slope;
    return { w: w - RATE * (nesterov ? slope + momentum * buffer : buffer), 'w/momentum': buffer };
  }
  const mean = a * of('w/mean') + (1 - a) * slope;
  const square = b * of('w/square') + (1 - b) * slope ** 2;
  const epsilon = options.epsilon ?? (kind === 'lamb' ? 1e-6 : 1e-8);
  const direction = mean / (1 - a ** STEP) / (Math.sqrt(square / (1 - b ** STEP)) + epsilon);
  const moments = { 'w/mean': mean, 'w/square': square };
  if (kind === 'lamb') return { ...moments, direction: direction + decay * w };
  return { ...moments, w: (kind === 'adamw' ? w * (1 - RATE * decay) : w) - RATE * direction };
}

const optimizers = fc.oneof(
  fc.record({
    kind: fc.constant('sgd' as const),
    learningRate: fc.constant(RATE),
    momentum: fc.constantFrom(0.9, 0.5),
    nesterov: fc.boolean(),
    weightDecay: fc.constantFrom(0, 0.1),
  }),
  fc.record({ kind: fc.constant('sgd' as const), learningRate: fc.constant(RATE) }),
  fc.record({
    kind: fc.constantFrom('adam' as const, 'adamw' as const, 'lamb' as const),
    learningRate: fc.constant(RATE),
    betas: fc.constantFrom([0.9, 0.999] as const, [0.8, 0.9] as const, [0.9999, 0.999999] as const),
    weightDecay: fc.constantFrom(0, 0.1),
  }),
);
const shapes = fc.array(fc.constantFrom(1, 2, 4, 8), { minLength: 0, maxLength: 3 });

test('a region is what its paper says, and so are its shards under every strategy', async (t) => {
  await fc.assert(
    fc.asyncProperty(shapes, optimizers, fc.boolean(), async (shape, options, decays) => {
      const graph = updated(shape, options, decays);
      const scalars = await scalarsOf(graph);
      const regions = graph.nodes.filter(isRegion);
      const made = new Set(regions.flatMap(({ outputs }) => outputs));
      for (const region of regions) {
        const one = alone(graph, region, scalars);
        const results = await evaluate(writeOnnx(one), {});
        const next = new Map(graph.state.map(({ input, output }) => [output, input]));
        for (const output of one.outputs) {
          const value = results[output];
          const got = value ? numbersOf(value) : [];
          if (got.length !== elementCount(shape)) return false;
          for (const [at, number] of got.entries()) {
            const of = (name: string) => valuesOf(graph, name, scalars)[at] ?? Number.NaN;
            const direction = region.inputs.find((name) => name !== 'w' && made.has(name));
            const wanted = direction
              ? of('w') - RATE * (OWN_NORM / CHANGE_NORM) * of(direction)
              : (byThePaper(options, decays, of)[next.get(output) ?? 'direction'] ?? Number.NaN);
            if (!(Math.abs(number - wanted) <= 2e-5 * Math.max(1, Math.abs(wanted)))) return false;
          }
        }
        await provesRight(one, 1, 6);
      }
      return true;
    }),
    { numRuns: 10 },
  );
  t.pass();
});

test('1 − βᵗ is right where it cancels: decays close to one, in the first steps', async (t) => {
  const betas = [0.9999, 0.999999] as const;
  const graph = updated([2], { kind: 'adam', learningRate: RATE, betas }, false);
  const scalars = await scalarsOf(graph);
  const bias = (beta: number) => -Math.expm1(STEP * Math.log(beta));
  for (const wanted of [Math.sqrt(bias(betas[1])), RATE / bias(betas[0])])
    t.true(
      [...scalars.values()].some((value) => Math.abs(value - wanted) <= 2e-7 * wanted),
      `${wanted} is not among ${[...scalars.values()].join(', ')}`,
    );
});

/** Operators of updates, which are not those that all weights share. */
function updatesOf(layers: number, options: Partial<TrainingOptions>): readonly Node[] {
  const forward = mlp('mlp', { batch: 4, widths: Array.from({ length: layers + 1 }, () => 8) }, 1);
  const optimizer: OptimizerOptions = { kind: 'adamw', learningRate: RATE };
  const { graph } = trainingGraph(forward, { loss: { kind: 'mse' }, optimizer, ...options });
  return graph.nodes.filter(({ phase }) => phase === 'update');
}

for (const { says, options, each } of [
  { says: 'AdamW', options: {}, each: 1 },
  { says: 'SGD', options: { optimizer: { kind: 'sgd', learningRate: RATE } }, each: 1 },
  {
    says: 'LAMB, with two norms between two regions',
    options: { optimizer: { kind: 'lamb', learningRate: RATE } },
    each: 4,
  },
  {
    says: 'clipped, with a sum of squares, and its sum with others',
    options: { optimizer: { kind: 'adamw', learningRate: RATE, clipNorm: 1 } },
    each: 3,
  },
  { says: 'skipped where gradients overflow', options: { precision: 'fp16' }, each: 3 },
] as const satisfies readonly { says: string; options: Partial<TrainingOptions>; each: number }[])
  test(`operators that a weight brings: ${says}`, (t) => {
    // A layer more is two weights more.
    t.is((updatesOf(4, options).length - updatesOf(3, options).length) / 2, each);
  });

test('the bodies of equal layers have one rule, and a weight keeps its dimensions', (t) => {
  const graph = updated([4, 6], { kind: 'adamw', learningRate: RATE }, true);
  const [region] = graph.nodes.filter(isRegion);
  t.is(region && ruleOf(operatorOf(graph, region)).text, 'a0 a1, a0 a1, a0 a1, a0 a1, , ,  -> a0 a1, a0 a1, a0 a1');
  t.deepEqual(region?.inputs.slice(0, 4), ['w', 'g', 'w/mean', 'w/square']);
});

test('a body calls its operands as the graph does, sums over micro-batches too', (t) => {
  const forward = mlp('mlp', { batch: 4, widths: [8, 8] }, 1);
  const loss = { kind: 'mse' } as const;
  const microBatches = cutInMicroBatches(forward, { loss }, 2);
  const { graph } = trainingGraph(mlp('mlp', { batch: 2, widths: [8, 8] }, 1), {
    ...{ loss, microBatches, optimizer: { kind: 'adamw', learningRate: RATE } },
  });
  const opened = flattenRegions(graph);
  const known = new Set([...opened.inputs, ...opened.weights.keys()]);
  for (const node of opened.nodes) {
    for (const name of node.inputs) t.true(name === null || known.has(name), `${node.name} reads ${name}`);
    for (const name of node.outputs) if (name !== null) known.add(name);
  }
  for (const name of opened.outputs) t.true(known.has(name));
  t.true(graph.nodes.filter(isRegion).every(({ inputs, body }) => body?.inputs.join() === inputs.join()));
});
