/**
 * @file Six experts on two ranks, top 2, as docs/sequences-and-experts.md draws them: where they are, what a rank computes and
 * sends; and what options of dispatch refuse.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { type CompileOptions, compile } from '../../src/api/index.js';
import { lowerPlan } from '../../src/api/lower-plan.js';
import { openCompiled } from '../../src/api/verify.js';
import { AutoparError } from '../../src/ir/error.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import type { ComputeNode, ShardedGraph } from '../../src/partition/sharded-graph.js';
import { type ExpertForm, type ExpertSizes, routedExperts } from '../pipelines/expert-models.js';

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

/** Multiply-adds of a rank's product with a weight per expert, as rows · columns of its blocks. */
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

const REFUSED: readonly (readonly [ExpertForm, Partial<CompileOptions>, string, RegExp])[] = [
  ['einsum', { dispatch: 'padded', capacityFactor: 0 }, 'bad-option', /capacityFactor: 0: expected a number above 0/],
  ['einsum', { capacityFactor: 1 }, 'bad-option', /nothing sends them/],
  ['einsum', { dispatch: 'padded', ep: 4, dp: 4 }, 'degree-does-not-fit', /4 does not divide the 6 experts/],
  ['einsum', { dispatch: 'padded', ep: 8, dp: 8 }, 'degree-does-not-fit', /8 does not divide the 6 experts/],
  ['unrolled', { ep: 4, dp: 4 }, 'degree-does-not-fit', /4 does not divide the 6 experts/],
  ['masked', { ep: 8, dp: 8, dispatch: 'padded' }, 'degree-does-not-fit', /8 does not divide the 6 experts/],
  ['einsum', { dispatch: 'padded', capacityFactor: -1 }, 'bad-option', /expected a number/],
  ['capacity', { dispatch: 'padded' }, 'no-experts', /no layer of experts that is written so/],
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

for (const form of ['operator', 'quantised', 'unrolled', 'together'] as const)
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
});
