/**
 * @file Memory that a training step keeps on an accelerator: 16-bit parameters once for all micro-batches, with the main weights
 * as optimizer state; only the shards of gathered activations, where memory asks for it; of the outputs, the loss alone.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { compile, type NestedCompileOptions } from '../../src/api/compile.js';
import { compiledModel } from '../../src/api/models/compiled-model.js';
import { generatedFile } from '../../src/api/models/generated.js';
import { readSource } from '../../src/api/output/folder.js';
import { lowerPlan } from '../../src/api/planning/lower-plan.js';
import type { ShardedGraph } from '../../src/partition/sharded-graph.js';
import { annotationsOf } from '../../src/sharding-propagation/annotations/read-annotations.js';
import { slowTests } from '../selection.js';

const slow = slowTests(test);

const TRAINING = { loss: { kind: 'cross_entropy' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;

interface Compiled {
  readonly result: Awaited<ReturnType<typeof compile>>;
  readonly stages: readonly ShardedGraph[];
}

async function compiled(t: ExecutionContext, options: Partial<NestedCompileOptions>): Promise<Compiled> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const model = await generatedFile('gpt:layers=2,hidden=128,heads=4,seq=128,vocab=256');
  const output = join(folder, 'out');
  const result = await compile({
    ...{ model, output, globalBatch: 8, initRandom: true, training: TRAINING, axes: 'roles' },
    ...options,
  });
  const { planned } = await compiledModel(output, await readSource(output), result.plan);
  return { result, stages: lowerPlan(result.plan, planned.graph).lowered.map(({ sharded }) => sharded) };
}

const MIXED = {
  cluster: '1x4:a100-sxm-80',
  training: { ...TRAINING, precision: 'bf16', microBatches: 4 },
  planOnly: true,
} as const satisfies Partial<NestedCompileOptions>;

for (const [title, asked] of [
  ['one stage', { degrees: { dp: 2, tp: 2 } }],
  ['two stages', { degrees: { pp: 2, dp: 2, tp: 1 } }],
] as const) {
  slow(`parameters are cast once a step, and ZeRO 1 cuts the main weights: ${title}`, async (t) => {
    const { stages } = await compiled(t, { ...MIXED, ...asked, zero: 1 });
    for (const { nodes, tensors, state } of stages) {
      const weights = new Set(state.map(({ to }) => to));
      const casts = nodes.flatMap((node) =>
        node.kind === 'compute' && node.op === 'Cast' && node.phase !== 'update' ? [node] : [],
      );
      const ofWeights = casts.filter(({ inputs: [input] }) => weights.has(input ?? ''));
      t.true(ofWeights.length > 0);
      t.deepEqual([...new Set(ofWeights.map(({ phase }) => phase))], ['begin']);
      const main = ofWeights.map(({ inputs: [input] }) => tensors.get(input as string));
      const cut = main.filter((tensor) =>
        tensor?.layout.dims.flat().some(({ axes }) => axes.some((axis) => axis.startsWith('dp'))),
      );
      t.is(cut.length, main.length, 'a main weight is whole on a rank');
      // Ranks gather parameters in 16 bit, once a step.
      const gathers = nodes.flatMap((node) =>
        node.kind === 'communicate' && node.collective.kind === 'all-gather' && node.axes.includes('dp') ? [node] : [],
      );
      const large = gathers.filter(({ output }) => (tensors.get(output)?.shape.length ?? 0) > 1);
      t.true(large.some(({ phase, output }) => phase === 'begin' && tensors.get(output)?.dtype === 'bfloat16'));
      t.deepEqual(
        large.filter(({ phase }) => phase === 'forward'),
        [],
      );
    }
  });
}

slow('ZeRO 3 keeps no whole copy of parameters in 16 bit', async (t) => {
  const { stages } = await compiled(t, { ...MIXED, degrees: { dp: 2, tp: 2 }, zero: 3 });
  t.false(stages.some(({ nodes }) => nodes.some(({ phase }) => phase === 'begin')));
});

slow('recompute runs no cast of a parameter again', async (t) => {
  const { stages } = await compiled(t, { ...MIXED, degrees: { dp: 2, tp: 2 }, recompute: 'full' });
  const weights = new Set(stages.flatMap(({ state }) => state.map(({ to }) => to)));
  const again = stages.flatMap(({ nodes }) =>
    nodes.filter(
      (node) =>
        node.kind === 'compute' &&
        node.phase === 'recompute' &&
        weights.has(node.inputs[0] ?? '') &&
        node.op === 'Cast',
    ),
  );
  t.deepEqual(again, []);
  t.true(stages.some(({ nodes }) => nodes.some(({ phase }) => phase === 'recompute')));
});

test('on accelerators a step gives its loss; ranks of this machine give outputs besides', async (t) => {
  const outputs = async (options: Partial<NestedCompileOptions>) => {
    const { stages } = await compiled(t, { planOnly: true, degrees: { dp: 2, tp: 1 }, ...options });
    const state = new Set(stages.flatMap((stage) => stage.state.map(({ from }) => from)));
    return stages.flatMap((stage) =>
      stage.outputs.flatMap(({ output, tensor }) => (state.has(tensor) ? [] : [output])),
    );
  };
  t.deepEqual(await outputs({ cluster: '1x2:a100-sxm-80' }), ['loss']);
  t.deepEqual(await outputs({ devices: 2 }), ['loss', 'logits']);
});

slow('where memory asks for it the backward gathers again, and computes the same', async (t) => {
  const asked = {
    cluster: '1x4:a100-sxm-80',
    degrees: { dp: 1, tp: 4 },
    annotations: ALONG_SEQUENCE,
  } as const;
  const free = await compiled(t, { ...asked, planOnly: true });
  t.is(free.result.plan.schedule.recompute, undefined);
  const [peak = 0] = free.result.plan.predicted.peakBytes;
  const { result, stages } = await compiled(t, { ...asked, memory: Math.floor(0.9 * peak), verify: true });
  t.deepEqual(result.plan.schedule.recompute, { gathers: true });
  t.true((result.plan.predicted.peakBytes[0] ?? peak) <= 0.9 * peak);
  t.true(result.verification?.passed);
  const gathered = stages.flatMap(({ nodes }) =>
    nodes.filter((node) => node.kind === 'communicate' && node.collective.kind === 'all-gather'),
  );
  const twice = gathered.filter(
    (node, index) =>
      node.phase !== 'forward' &&
      gathered.slice(0, index).some((other) => 'input' in other && 'input' in node && other.input === node.input),
  );
  t.true(twice.length > 0);
});

/** Norms and element-wise operators along the sequence over tp. */
const ALONG_SEQUENCE = annotationsOf({ version: 1, pins: [{ match: { module: 'layers.*' }, style: 'sequence' }] });
