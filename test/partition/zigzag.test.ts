/**
 * @file A causal ring in zig-zag order: every rank computes the matmuls that its positions need, no rank more than another.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { generatedModel } from '../../models/families.js';
import { llama } from '../../models/llama.js';
import { importModel } from '../../src/api/models/import.js';
import { withTraining } from '../../src/api/models/training.js';
import type { Graph } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { operatorOf } from '../../src/ir/operator-of.js';
import { inZigzag } from '../../src/ir/passes/order-sequence.js';
import { orderedPlaces, reordered } from '../../src/ir/sequence-order.js';
import { lowerOperator } from '../../src/partition/lower-operator.js';
import { partsOfHop } from '../../src/partition/zigzag.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';

const FOLDER = mkdtempSync(join(tmpdir(), 'autopar-test-'));
test.after.always(() => rmSync(FOLDER, { recursive: true, force: true }));

test('over a whole ring every rank computes what its pieces see, once, and no more than one product for nothing', (t) => {
  for (const count of [2, 3, 4, 7])
    for (let rank = 0; rank < count; rank++) {
      const pieces = (of: number) => [of, 2 * count - 1 - of];
      const computed = Array.from({ length: count }, (_, hop) =>
        partsOfHop(hop, count, true).map(({ own, other, byRank }) => {
          const chunk = (rank - hop + count) % count;
          return [pieces(rank)[byRank?.[rank] ?? own], pieces(chunk)[byRank?.[rank] ?? other]].join();
        }),
      ).flat();
      const needed = pieces(rank).flatMap((query) =>
        Array.from({ length: query + 1 }, (_, key) => [query, key].join()),
      );
      t.deepEqual(computed.toSorted(), needed.toSorted(), `rank ${rank} of ${count}`);
    }
});

test('a rank has the pieces r and 2n − 1 − r, and the way back is the way back', (t) => {
  t.deepEqual(orderedPlaces(8, { size: 8, minor: 1, pieces: 4 }), [0, 1, 6, 7, 2, 3, 4, 5]);
  const type = { dtype: 'int64', shape: [2, 24, 3] } as const;
  const data = new Uint8Array(new BigInt64Array(Array.from({ length: 144 }, (_, at) => BigInt(at))).buffer);
  const order = [null, { size: 8, minor: 3, pieces: 4 }, null];
  const there = reordered(data, type, order);
  t.deepEqual(new BigInt64Array(there.buffer)[6 * 3], 18n * 3n);
  t.deepEqual(reordered(there, type, order, true), data);
});

const sizes = { layers: 1, width: 16, heads: 4, keyHeads: 2, feedForward: 32, vocabulary: 32 };

async function trainingStep(model = llama('llama', { batch: 1, sequence: 64, ...sizes }, 1)): Promise<Graph> {
  const file = join(FOLDER, `${model.name}.onnx`);
  writeFileSync(file, writeOnnx(model));
  const imported = await importModel(file, { keepsParameters: true, sharesSequence: true });
  return withTraining(imported, { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'sgd', learningRate: 0.1 } })
    .graph;
}

/** FLOPs of the matmuls that every rank runs of an attention, and of its gradient, in a ring of so many. */
function productsOf(graph: Graph, count: number): readonly number[] {
  return ['Attention', 'AttentionGradient'].map((op) => {
    const node = graph.nodes.find((own) => own.op === op);
    if (!node) throw new Error(`no ${op}`);
    const mesh = makeMesh([['sp', count]]);
    const axes = mesh.axes.flatMap(({ subAxes }) => subAxes.map(({ name }) => name));
    const strategy = { axes: { s: axes, t: axes }, partialOperands: null, pending: { kind: 'none' as const } };
    const { fragment } = lowerOperator(operatorOf(graph, node), strategy, mesh);
    return fragment.nodes.reduce(
      (sum, own) => sum + (own.kind === 'compute' && own.op === 'MatMul' ? own.flops : 0),
      0,
    );
  });
}

test('with n ranks the slowest computes 2n + 1 of the 4n products of pieces that it computes in the model’s order', async (t) => {
  const graph = await trainingStep();
  for (const count of [2, 4]) {
    const { graph: ordered } = inZigzag(graph, count);
    if (!ordered) throw new Error('not in zig-zag order');
    const [plain, balanced] = [productsOf(graph, count), productsOf(ordered, count)];
    t.deepEqual(
      balanced.map((flops, index) => flops / (plain[index] as number)),
      plain.map(() => (2 * count + 1) / (4 * count)),
    );
  }
});

test('activations stay in zig-zag order where rotary embedding is one operator', async (t) => {
  const written = generatedModel('llama:layers=1,hidden=16,heads=4,kv_heads=2,ffn=32,vocab=32,seq=64').build(1);
  const graph = await trainingStep({ ...written, name: 'rotary' });
  t.true(graph.nodes.some(({ op, body }) => op === 'RotaryEmbedding' && body === null));
  const { graph: ordered, reason } = inZigzag(graph, 2);
  t.is(reason, null);
  const before = new Set(graph.nodes.map(({ name }) => name));
  const added = ordered?.nodes.map(({ name }) => name).filter((name) => !before.has(name));
  t.deepEqual(added, ['rotary.cosine/zigzag', 'rotary.sine/zigzag']);
});

test('why a sequence stays in the model’s order', async (t) => {
  const graph = await trainingStep();
  t.regex(inZigzag(graph, 3).reason ?? '', /3 ranks has 6 equal pieces, and the sequence has 64 positions/);
  const open = { ...graph, nodes: graph.nodes.filter(({ op }) => !op.startsWith('Attention')) };
  t.regex(inZigzag(open, 2).reason ?? '', /no attention of the model has only a causal mask/);
});
