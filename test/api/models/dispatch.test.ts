/**
 * @file Six experts on two ranks, top 2, as docs/parallelism.md draws them: where they are, what a rank computes and
 * sends; and what options of dispatch refuse.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { type CompileOptions, compile, runCompiled } from '../../../src/api/index.js';
import { slotsOf } from '../../../src/api/models/dispatch.js';
import { lowerPlan } from '../../../src/api/planning/lower-plan.js';
import { expertLoads } from '../../../src/api/reports/expert-load.js';
import { openCompiled } from '../../../src/api/verify.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { ErrorCode } from '../../../src/ir/error-codes.js';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { numbersOf } from '../../../src/ir/ops/constants.js';
import type { ComputeNode, ShardedGraph } from '../../../src/partition/sharded-graph.js';
import { sentBytes } from '../../pipelines/compiled-training.js';
import { type ExpertForm, type ExpertSizes, routedExperts } from '../../pipelines/expert-models.js';
import { slowTests } from '../../selection.js';

const SIX: ExpertSizes = { batch: 2, steps: 12, width: 16, inner: 8, experts: 6, chosen: 2, layers: 1, attends: false };
const CAPACITY = 4;

async function inFolder<Result>(
  form: ExpertForm,
  sizes: ExpertSizes,
  body: (model: string, output: string) => Promise<Result>,
) {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  try {
    const model = join(folder, 'experts.onnx');
    writeFileSync(model, writeOnnx(routedExperts(form, sizes)));
    return await body(model, join(folder, 'out'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Multiply-adds of a rank's matmul with a weight per expert, as rows · columns of its shards. */
function products({ nodes, tensors }: ShardedGraph) {
  const shape = (name: string | null | undefined) => tensors.get(name ?? '')?.localShape ?? [];
  return nodes
    .filter((node): node is ComputeNode => node.kind === 'compute' && node.op === 'MatMul')
    .map(({ inputs }) => ({ rows: shape(inputs[0]), matrices: shape(inputs[1]) }))
    .filter(({ matrices }) => matrices.length === 3);
}

test('six experts on two ranks: three on each, with capacity · local experts rows of every sample', async (t) => {
  await inFolder('einsum', SIX, async (model, output) => {
    const { plan, verification } = await compile({
      ...{ model, output, devices: 2, dp: 2, tp: 1, ep: 2, verify: true },
      ...{ dispatch: 'padded', capacityFactor: 1 },
    });
    t.true(verification?.passed);
    t.deepEqual(plan.passes.find(({ name }) => name === 'dispatch-experts')?.options, {
      dispatch: 'padded',
      capacityFactor: 1,
      slots: '4',
    });
    const { planned } = await openCompiled(output);
    const [stage] = lowerPlan(plan, planned.graph).lowered;
    const sharded = stage?.sharded as ShardedGraph;
    t.deepEqual(products(sharded), [
      { rows: [3, SIX.batch * CAPACITY, SIX.width], matrices: [3, SIX.width, SIX.inner] },
      { rows: [3, SIX.batch * CAPACITY, SIX.inner], matrices: [3, SIX.inner, SIX.width] },
    ]);
    const collectives = sharded.nodes.flatMap((node) =>
      node.kind === 'communicate' ? [[node.collective.kind, sharded.tensors.get(node.input)?.localShape]] : [],
    );
    // Slots of all experts for a rank's own sample go out and come back.
    t.deepEqual(collectives, [
      ['all-to-all', [1, 6 * CAPACITY, SIX.width]],
      ['all-to-all', [SIX.batch, 3 * CAPACITY, SIX.width]],
    ]);
  });
});

/** Skews of the gate: even, all tokens to the first expert and one more, all to the first expert alone. */
const SKEWS: readonly Partial<ExpertSizes>[] = [{}, { bias: 50 }, { bias: 50, chosen: 1 }];

for (const [index, skew] of SKEWS.entries())
  slowTests(test, index === 0)(`variable dispatch sends filled slots alone: ${JSON.stringify(skew)}`, async (t) => {
    const sizes = { ...SIX, ...skew };
    await inFolder('batched', sizes, async (model, output) => {
      const asked = { model, output, devices: 2, dp: 2, tp: 1, ep: 2, dispatch: 'variable', verify: true } as const;
      const { plan, verification } = await compile({ ...asked, ...(index === 1 ? { capacityFactor: 1 } : {}) });
      t.true(verification?.passed);
      const { planned } = await openCompiled(output);
      const { lowered } = lowerPlan(plan, planned.graph);
      const run = await runCompiled({ directory: output });
      const counts = Object.entries(run.outputs).find(([name]) => name.includes('/tokens_per_expert'))?.[1];
      const capacity = slotsOf(plan.passes)[0] ?? 0;
      const kept = counts ? numbersOf(counts).map((count) => Math.min(Number(count), capacity)) : [];
      // Sample r is rank r's, and rank k has experts 3k, 3k + 1 and 3k + 2.
      const between = (sample: number, part: number) =>
        kept.slice(sample * 6 + part * 3, sample * 6 + part * 3 + 3).reduce((sum, tokens) => sum + tokens, 0);
      const slots = 3 * capacity;
      const rowBytes = sizes.width * Float32Array.BYTES_PER_ELEMENT;
      const bits = Math.ceil(slots / 8);
      // There and back, each with a bit for each slot; before it a byte for each, which says whether it is empty.
      const bytes = (rows: number) => Math.min(bits + rows * rowBytes, slots * rowBytes);
      for (const [rank, { bytesCommunicated }] of run.ranks.entries()) {
        const wanted = bytes(between(rank, 1 - rank)) + bytes(between(1 - rank, rank)) + slots;
        t.is(bytesCommunicated, wanted, `rank ${rank}`);
        t.true(bytesCommunicated <= Math.max(...lowered.map(({ sharded }) => sentBytes(sharded))));
      }
      const [load] = expertLoads(plan, run.outputs);
      t.is(
        load?.taken,
        kept.reduce((sum, tokens) => sum + tokens, 0),
      );
      // All tokens of both samples at the first expert: its rank has them all, the other none.
      if (skew.chosen === 1) t.deepEqual([load?.fullest, load?.even], [2 * sizes.steps, sizes.steps]);
    });
  });

const REFUSED: readonly (readonly [ExpertForm, Partial<CompileOptions>, ErrorCode, RegExp])[] = [
  ['einsum', { dispatch: 'padded', capacityFactor: 0 }, 'bad-option', /capacityFactor: 0: expected a number above 0/],
  ['einsum', { capacityFactor: 1 }, 'bad-option', /limits the tokens of dispatch, which is not given/],
  ['einsum', { dispatch: 'padded', ep: 4, dp: 4 }, 'degree-does-not-fit', /4 does not divide the 6 experts/],
  ['einsum', { dispatch: 'padded', ep: 8, dp: 8 }, 'degree-does-not-fit', /8 does not divide the 6 experts/],
  ['unrolled', { ep: 4, dp: 4 }, 'degree-does-not-fit', /4 does not divide the 6 experts/],
  ['chosen', { ep: 4, dp: 4 }, 'degree-does-not-fit', /4 does not divide the 6 experts/],
  ['masked', { ep: 8, dp: 8, dispatch: 'padded' }, 'degree-does-not-fit', /8 does not divide the 6 experts/],
  ['einsum', { dispatch: 'padded', capacityFactor: -1 }, 'bad-option', /expected a number/],
  ['capacity', { dispatch: 'padded' }, 'no-experts', /needs experts with top-k routing in a known form/],
];

for (const [form, options, code, message] of REFUSED)
  test(`${form} ${JSON.stringify(options)} is refused`, async (t) => {
    await inFolder(form, { ...SIX, batch: 8 }, async (model, output) => {
      const asked = { model, output, tp: 1, devices: options.dp ?? 1, planOnly: true, ...options };
      const error = await t.throwsAsync(compile(asked), { instanceOf: AutoparError });
      t.is((error as AutoparError).code, code);
      t.regex(error?.message ?? '', message);
    });
  });

for (const form of ['operator', 'quantised', 'unrolled', 'together', 'chosen'] as const)
  test(`experts written as ${form} are sharded over ep as they are`, async (t) => {
    await inFolder(form, SIX, async (model, output) => {
      const asked = { model, output, devices: 2, dp: 2, tp: 1, ep: 2, verify: true };
      const { verification } = await compile(asked);
      t.true(verification?.passed);
      const { program } = await openCompiled(output);
      const held = program.stages.flatMap(({ weights }) => Object.values(weights));
      const stacked = held.filter(({ shape }) => shape?.[0] === SIX.experts && shape.length === 3);
      t.true(stacked.length >= 2);
      for (const { localShape } of stacked) t.is(localShape[0], SIX.experts / 2);
    });
  });

test('more experts for a token than there are is a fault of the model', (t) => {
  t.throws(() => routedExperts('operator', { ...SIX, chosen: 7 }), { message: /k = 7 of 6 experts/ });
  t.throws(() => routedExperts('chosen', { ...SIX, chosen: 7 }), { message: /k = 7 of 6 elements/ });
});
