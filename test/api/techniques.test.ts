/**
 * Techniques that introductions to distributed training name, each shown on a small model and run on real ranks.
 * docs/reference/coverage.md lists them.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { llama } from '../../models/llama.js';
import { mlp } from '../../models/mlp.js';
import { type CompileResult, compile, type NestedCompileOptions } from '../../src/api/compile.js';
import type { Graph } from '../../src/ir/graph.js';
import { writeOnnx } from '../../src/ir/onnx/writer.js';
import type { Program } from '../../src/program/program.js';

interface Compiled extends CompileResult {
  readonly program: Program;
}

/** Compiles and verifies a graph, with axes in their roles; the folder goes with the test. */
async function compiled(t: ExecutionContext, graph: Graph, options: Partial<NestedCompileOptions>): Promise<Compiled> {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const model = join(folder, 'model.onnx');
  writeFileSync(model, writeOnnx(graph));
  const output = join(folder, 'model.autopar');
  const result = await compile({ model, output, verify: true, axes: 'roles', ...options });
  t.true(result.verification?.passed, 'the program computes what the model does');
  const program = JSON.parse(readFileSync(join(output, 'program', 'program.json'), 'utf8')) as Program;
  return { ...result, program };
}

/** Two layers wide enough that sharding weights pays. */
const wide = (): Graph => mlp('wide', { batch: 8, widths: [64, 1024, 64] }, 1);

const tiny = (): Graph =>
  llama(
    'tiny',
    { batch: 4, sequence: 8, layers: 2, width: 32, heads: 4, keyHeads: 2, feedForward: 64, vocabulary: 64 },
    1,
  );

function shapesOf({ program }: Compiled): readonly (readonly number[])[] {
  return program.stages.flatMap(({ weights }) => Object.values(weights).map(({ localShape }) => localShape));
}

test('data parallelism: a part of the batch each, whole weights, no communication', async (t) => {
  const result = await compiled(t, wide(), { devices: 2, degrees: { dp: 2 } });
  t.deepEqual(result.communication, []);
  const [stage] = result.program.stages;
  t.deepEqual(stage?.tensors[result.program.inputs[0]?.tensor ?? '']?.localShape, [4, 64]);
  t.deepEqual(result.program.inputs[0]?.shape, [8, 64], 'the user hands in the whole batch');
  t.true(
    shapesOf(result).some((shape) => shape.join() === '64,1024'),
    'weights are whole',
  );
  t.true(result.plan.predicted.flopsPerRank <= 0.55 * result.plan.predicted.flopsTotal);
});

test('tensor parallelism: the first weight by columns, the second by rows, one reduction', async (t) => {
  const result = await compiled(t, wide(), { devices: 2, degrees: { tp: 2 } });
  const strategies = Object.values(result.plan.operators).map(({ strategy }) => strategy);
  t.true(
    strategies.some(({ n }) => n?.includes('tp')),
    'columns: X·W = [XW₁, XW₂]',
  );
  t.true(
    strategies.some(({ k }) => k?.includes('tp')),
    'rows: X·W = X₁W₁ + X₂W₂',
  );
  t.deepEqual(
    shapesOf(result).filter((shape) => shape.length === 2),
    [
      [64, 512],
      [512, 64],
    ],
  );
  t.is(result.communication.length, 1);
  t.regex(result.communication[0]?.kind ?? '', /^(all-reduce|reduce-scatter)$/);
  const [stage] = result.program.stages;
  t.deepEqual(stage?.tensors[result.program.inputs[0]?.tensor ?? '']?.localShape, [8, 64], 'all ranks get one input');
});

test('both at once on a mesh of two axes', async (t) => {
  const result = await compiled(t, tiny(), { devices: 4, degrees: { dp: 2, tp: 2 } });
  t.deepEqual(result.plan.mesh, [
    { axis: 'dp', size: 2 },
    { axis: 'tp', size: 2 },
  ]);
  t.true(result.plan.predicted.flopsPerRank <= 0.3 * result.plan.predicted.flopsTotal);
  t.true(
    result.communication.every(({ axes }) => axes.every((axis) => axis.startsWith('tp'))),
    'inference needs no dp traffic',
  );
});

test('equal layers share their segments', async (t) => {
  const result = await compiled(t, tiny(), { devices: 2, degrees: { dp: 2 } });
  const segments = new Set(
    result.program.stages.flatMap((stage) => Object.values(stage.segments)).map(({ file }) => file),
  );
  const calls = result.program.stages
    .flatMap(({ phases }) => Object.values(phases).flat())
    .filter(({ kind }) => kind === 'compute');
  t.true(segments.size < calls.length, `${segments.size} segments for ${calls.length} calls`);
});

test('a degree that divides nothing is no dead end: sizes are padded', async (t) => {
  const odd = mlp('odd', { batch: 4, widths: [10, 14, 10] }, 1);
  const result = await compiled(t, odd, { devices: 3, degrees: { tp: 3 } });
  t.deepEqual(result.exceptions, []);
  const { flopsPerRank, flopsTotal } = result.plan.predicted;
  t.true(flopsPerRank < 0.45 * flopsTotal, `a rank does ${flopsPerRank / flopsTotal} of the work`);
});

test('where there is less than one element for each rank, what cannot be cut is named', async (t) => {
  const small = mlp('small', { batch: 4, widths: [2, 2, 2] }, 1);
  const result = await compiled(t, small, { devices: 3, degrees: { tp: 3 } });
  t.true(result.exceptions.length >= 2, 'both products');
  t.true(result.exceptions.every(({ reason }) => reason.includes('tp')));
});
