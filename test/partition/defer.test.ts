/**
 * @file Recomputed activations are alive in one layer at a time; deferring recomputation never makes nodes wait for each other.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { generatedModel } from '../../models/families.js';
import { importModel } from '../../src/api/models/import.js';
import { withTraining } from '../../src/api/models/training.js';
import { plan } from '../../src/api/plan.js';
import type { Phase } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import { deferrals } from '../../src/partition/defer.js';
import { onlyStage } from '../../src/partition/lower-stages.js';
import { orderLists } from '../../src/partition/order.js';
import { localBytes } from '../../src/partition/partition.js';
import { rankMemory } from '../../src/partition/rank-memory.js';
import { readsOf, resultsOf, type ShardedGraph, type ShardedNode } from '../../src/partition/sharded-graph.js';
import { makeMesh } from '../../src/sharding-propagation/mesh.js';
import { draws } from '../selection.js';

const SEQUENCE = 96;

/** A step of training of a generated model, on two ranks. */
async function trained(t: ExecutionContext, text: string, degrees: { dp: number; tp: number }): Promise<ShardedGraph> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'model.onnx');
  writeFileSync(file, writeOnnx(generatedModel(text).build(2)));
  const model = withTraining(await importModel(file, {}), {
    loss: { kind: 'cross_entropy' },
    optimizer: { kind: 'sgd', learningRate: 0.1 },
  });
  return onlyStage((await plan(model, { devices: 2, degrees })).found.lowered);
}

for (const [family, degrees] of [
  ['gpt', { dp: 2, tp: 1 }],
  ['llama', { dp: 1, tp: 2 }],
] as const) {
  test(`with more layers memory grows by what they store, not by attention scores: ${family}`, async (t) => {
    const made = (layers: number) =>
      trained(t, `${family}:layers=${layers},hidden=16,heads=4,ffn=32,seq=${SEQUENCE},vocab=32,batch=2`, degrees);
    const peaks: number[] = [];
    let scoreBytes = 0;
    for (const layers of [2, 3, 4]) {
      const graph = await made(layers);
      const { peakBytes, bytesByTensor: held } = rankMemory(graph);
      peaks.push(peakBytes);
      const makers = new Map(graph.nodes.flatMap((node) => resultsOf(node).map((name) => [name, node] as const)));
      const scores = [...held().keys()].filter((name) => {
        const tensor = graph.tensors.get(name);
        const isScores = tensor?.localShape.filter((size) => size === SEQUENCE).length === 2 && makers.has(name);
        if (isScores) scoreBytes = Math.max(scoreBytes, localBytes(tensor));
        return isScores;
      });
      t.true(scores.length > 0, 'the fullest moment is in the backward of an attention');
      t.is(new Set(scores.map((name) => makers.get(name)?.layer)).size, 1, scores.join());
    }
    const [two = 0, three = 0, four = 0] = peaks;
    t.is(four - three, three - two);
    t.true(three - two < scoreBytes, `${three - two} a layer, ${scoreBytes} of scores`);
  });
}

const PHASES: readonly Phase[] = ['forward', 'backward-input', 'update'];

/** A graph of two layers in three phases; each node reads two tensors that are there. */
const drawnGraphs = fc
  .array(
    fc.record({
      first: fc.nat(1000),
      second: fc.nat(1000),
      layer: fc.constantFrom('a', 'b', null),
      communicates: fc.boolean(),
    }),
    { minLength: 3, maxLength: 40 },
  )
  .map((drawn): ShardedGraph => {
    const names = ['input', 'weight'];
    const nodes = drawn.map(({ first, second, layer, communicates }, index): ShardedNode => {
      const output = `t${index}`;
      const phase = PHASES[Math.floor((index * PHASES.length) / drawn.length)] as Phase;
      const inputs = [names[first % names.length], names[second % names.length]] as [string, string];
      names.push(output);
      const place = { name: output, origin: output, layer, phase } as const;
      if (communicates)
        return {
          ...place,
          kind: 'communicate',
          collective: { kind: 'all-reduce', reduction: 'sum' },
          axes: [],
          input: inputs[0],
          output,
        };
      const operator = { op: 'Add', domain: '', attributes: {}, flops: 0, bytes: 0 };
      return { ...place, ...operator, kind: 'compute', inputs, outputs: [output] };
    });
    return {
      mesh: makeMesh([]),
      nodes,
      tensors: new Map(),
      coordinates: [],
      weights: [{ tensor: 'weight', weight: 'weight' }],
      constants: new Map(),
      inputs: [{ tensor: 'input', input: 'input' }],
      outputs: [],
      state: [],
    };
  });

test('deferred nodes wait for what their readers wait for; every node runs once, behind its operands', (t) => {
  let found = 0;
  fc.assert(
    fc.property(drawnGraphs, (graph) => {
      const waits = deferrals(graph);
      found += waits.size;
      const there = new Set(['input', 'weight']);
      const run = (node: ShardedNode) => {
        for (const name of [...readsOf(node), ...(waits.get(node) ?? [])]) if (!there.has(name)) return false;
        return true;
      };
      let count = 0;
      for (const instruction of orderLists(graph).flatMap(({ instructions }) => instructions)) {
        if (instruction.kind === 'segment')
          for (const node of instruction.nodes) {
            if (!run(node)) return false;
            for (const name of resultsOf(node)) there.add(name);
          }
        else if (instruction.kind === 'start' && !run(instruction.node)) return false;
        else if (instruction.kind === 'wait') there.add(instruction.node.output);
        count += instruction.kind === 'segment' ? instruction.nodes.length : instruction.kind === 'start' ? 1 : 0;
      }
      return count === graph.nodes.length;
    }),
    { numRuns: draws(3000) },
  );
  t.true(found > 0);
});
