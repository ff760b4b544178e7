import test from 'ava';
import fc from 'fast-check';
import { importModel } from '../../../src/api/models/import.js';
import { findRegions } from '../../../src/ir/fused-regions/find-regions.js';
import { flattenRegions } from '../../../src/ir/fused-regions/flatten-regions.js';
import type { RegionMatch } from '../../../src/ir/fused-regions/fused-region.js';
import { elementCount, type Graph, type Node } from '../../../src/ir/graph.js';
import { ABSENT, sharedCases } from '../../api/shared-models.js';
import { missing } from '../../missing.js';
import { type Drawn, drawnGraph, longChain } from './drawn.js';
import { regionsOf } from './written.js';

type Counts = Readonly<Record<string, number>>;

function counts(regions: readonly RegionMatch[]): Counts {
  const found: Record<string, number> = {};
  for (const { kind } of regions) found[kind] = (found[kind] ?? 0) + 1;
  return found;
}

const TWO_LAYERS = { Attention: 2, Gelu: 2 };
const TWO_LLAMA_LAYERS = { Attention: 2, RMSNormalization: 5, RotaryEmbedding: 4, SwiGLU: 2 };

/** Two layers each, where they are transformers at all. In opset 23, attention and RMS normalisation are operators. */
const MODELS: Readonly<Record<string, Counts>> = {
  'torch-1.13.1-encoder_d64_l2': TWO_LAYERS,
  'torch-1.13.1-gpt2_d64_l2': TWO_LAYERS,
  'torch-1.13.1-gpt2_local_functions': TWO_LAYERS,
  'torch-1.13.1-gpt2_loss': TWO_LAYERS,
  'torch-1.13.1-llama_d64_l2_gqa': TWO_LLAMA_LAYERS,
  'torch-1.13.1-mlp_gemm': {},
  'torch-1.13.1-moe_top2_dense': {},
  'torch-1.13.1-resnet18_w16': {},
  'torch-1.13.1-vit_d64_l2': TWO_LAYERS,
  'torch-2.13.0-hf_bert_mask': TWO_LAYERS,
  'torch-2.13.0-hf_gpt2': TWO_LAYERS,
  'torch-2.13.0-hf_gpt2_dyn': TWO_LAYERS,
  'torch-2.13.0-hf_llama_gqa': TWO_LLAMA_LAYERS,
  'torch-2.13.0-hf_llama_sdpa_opset23': { RotaryEmbedding: 4, SwiGLU: 2 },
  'torch-2.13.0-hf_resnet': {},
  'torch-2.13.0-mlp_fp16': {},
  'torch-2.13.0-moe_top1_capacity': {},
  'torch-2.13.0-nn_lstm': {},
  'torch-2.13.0-train_step_manual': {},
  'torch-2.13.0-two_tower_shared': { Gelu: 2 },
};

/** Sizes of the dimensions that some of them leave open. */
const OPEN: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  'torch-1.13.1-encoder_d64_l2': { N: 2, S: 12 },
  'torch-1.13.1-mlp_gemm': { N: 2 },
  'torch-1.13.1-resnet18_w16': { N: 2 },
  'torch-1.13.1-vit_d64_l2': { N: 2 },
  'torch-2.13.0-hf_gpt2_dyn': { N: 2, T: 12 },
  'torch-2.13.0-hf_resnet': { N: 2 },
};

const cases = sharedCases();
if (missing(cases.length === 0, ABSENT)) test.skip('regions of exported models', (t) => t.pass());
for (const { name, file } of cases) {
  test(`regions of ${name}`, async (t) => {
    const { graph } = await importModel(file, { dims: OPEN[name] ?? {} });
    const plain = flattenRegions(graph);
    const regions = findRegions(plain);
    t.deepEqual(counts(regions), MODELS[name]);
    checkMatches(plain, regions, (holds, why) => t.true(holds, why));
  });
}

test('random graphs give disjoint convex regions', (t) => {
  const choices = fc.array(fc.record({ motif: fc.nat(), sources: fc.tuple(fc.nat(), fc.nat(), fc.nat()) }), {
    minLength: 1,
    maxLength: 14,
  });
  const changes = fc.array(fc.record({ node: fc.nat(), input: fc.nat(), source: fc.nat() }), { maxLength: 3 });
  let found = 0;
  fc.assert(
    fc.property(choices, changes, fc.array(fc.nat(), { maxLength: 3 }), (steps, rewired, outputs) => {
      const graph = drawnGraph({ steps, rewired, outputs } satisfies Drawn);
      const regions = findRegions(graph);
      found += regions.length;
      checkMatches(graph, regions, (holds, why) => {
        if (!holds) throw new Error(why);
      });
    }),
    { numRuns: 300, seed: 7 },
  );
  t.true(found > 200, `only ${found} regions were found at all`);
});

test('regions come in the order of their last nodes', async (t) => {
  const { regions } = await regionsOf({
    inputs: { x: [2, 4, 5, 8], u: [2, 4, 5, 8] },
    weights: { 'norm.weight': [8] },
    lines: `
      q = Pow(x, 2.0)
      v = ReduceMean(q, [-1])
      e = Add(v, 0.001)
      r = Sqrt(e)
      n = Div(x, r)
      h = Mul(n, norm.weight)
      g = Sigmoid(h)
      m = Mul(h, g)
      w = Mul(m, u)
      wt = Transpose(w) {"perm": [0, 1, 3, 2]}
      s = MatMul(w, wt)
      p = Softmax(s) {"axis": 3}
      y = MatMul(p, w)`,
  });
  t.deepEqual(
    regions.map(({ kind, inputs }) => `${kind}(${inputs.join(', ')})`),
    ['RMSNormalization(x, norm.weight)', 'SwiGLU(h, u)', 'Attention(w)'],
  );
});

test('a graph of many nodes takes work in proportion', (t) => {
  const looks = (length: number): number => {
    let count = 0;
    const graph = longChain(length);
    const nodes = graph.nodes.map((node): Node => {
      const get = () => {
        count += 1;
        return node.op;
      };
      return Object.defineProperty({ ...node }, 'op', { get, enumerable: true });
    });
    t.deepEqual(findRegions({ ...graph, nodes }), []);
    return count;
  };
  const [short, long] = [looks(1000), looks(10_000)];
  t.true(short >= 1000 && long <= 11 * short, `${short} looks at operators, then ${long}`);
});

/** All that a match promises, found out by walking the whole graph. */
function checkMatches(
  graph: Graph,
  regions: readonly RegionMatch[],
  check: (holds: boolean, why: string) => void,
): void {
  const taken = new Set<Node>();
  for (const region of regions) {
    const inside = new Set(region.nodes);
    const name = `${region.kind} ending in ${region.outputs.join()}`;
    check(inside.size > 1, `${name} is one node`);
    check(
      region.nodes.every((node) => graph.nodes.includes(node) && !taken.has(node)),
      `${name} shares a node`,
    );
    for (const node of inside) taken.add(node);
    const made = new Set(region.nodes.flatMap((node) => node.outputs));
    const order = region.nodes.map((node) => graph.nodes.indexOf(node));
    check(
      order.every((position, place) => place === 0 || position > (order[place - 1] ?? 0)),
      `${name} is out of order`,
    );
    check(
      region.outputs.every((output) => made.has(output)),
      `${name} does not make its outputs`,
    );
    for (const tensor of made) {
      if (tensor === null || region.outputs.includes(tensor)) continue;
      const outside =
        graph.outputs.includes(tensor) || graph.nodes.some((node) => !inside.has(node) && node.inputs.includes(tensor));
      check(!outside, `${name}: ${tensor} is read outside`);
    }
    const read = region.nodes.flatMap((node) => node.inputs.filter((input) => input !== null && !made.has(input)));
    const wanted = read.filter((input) => input !== null && !isScalarConstant(graph, input));
    check(
      [...new Set(wanted)].sort().join() === [...region.inputs].sort().join(),
      `${name} reads ${wanted.join()}, not ${region.inputs.join()}`,
    );
    check(isConvex(graph, inside), `${name} is not convex`);
  }
}

function isScalarConstant(graph: Graph, tensor: string): boolean {
  const weight = graph.weights.get(tensor);
  return weight?.role === 'constant' && elementCount(weight.shape) === 1;
}

/** Whether no path leaves the nodes and comes back. */
function isConvex(graph: Graph, inside: ReadonlySet<Node>): boolean {
  const left = new Set<string>();
  for (const node of graph.nodes) {
    const after = node.inputs.some((input) => input !== null && left.has(input));
    if (inside.has(node)) {
      if (after) return false;
      continue;
    }
    const reads = node.inputs.some((input) => [...inside].some((other) => other.outputs.includes(input)));
    if (reads || after) for (const output of node.outputs) if (output !== null) left.add(output);
  }
  return true;
}
