/**
 * @file Weights whose dimensions import moves are pinned, reported and exported in those of the file. Every claim about a weight
 * is checked by sharding the file's tensor as it says: a rank must hold just the elements of its shard.
 */
import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { compile } from '../../src/api/compile.js';
import { explainTensor } from '../../src/api/explain.js';
import { openExplainable } from '../../src/api/explanations/explain-compiled.js';
import { inspect } from '../../src/api/inspect.js';
import { readCompiled } from '../../src/api/output/folder.js';
import { annotationsOf } from '../../src/api/requests/annotations.js';
import { convertStrategy } from '../../src/api/strategy.js';
import { AutoparError } from '../../src/ir/error.js';
import type { GraphProto, NodeProto } from '../../src/ir/onnx/schema.js';
import { integerOf } from '../../src/ir/onnx/tensors.js';
import { readAnnotations } from '../../src/sharding-propagation/annotations/read-annotations.js';
import { decodeStrategy } from '../../src/strategy/mindspore/schema.js';
import { readPlan } from '../../src/strategy/plan-json.js';
import { model, node, saved, tensor, value } from '../ir/model-maker.js';
import { heldShards, positionsBySpec, specsOf } from './annotated-elements.js';

const RANKS = 4;
const NAME = 'm.weight';

/** A form in which a file holds a weight: its shape there, and the operators that read it. */
interface Form {
  readonly shape: readonly number[];
  readonly nodes: readonly NodeProto[];
  readonly more?: readonly NonNullable<GraphProto['initializer']>[number][];
  /** Tensors of the file by which annotations may name it. */
  readonly named?: readonly string[];
  /** The result of the casts is not a parameter, so only pins and annotations name it. */
  readonly cast?: true;
}

const forms: Readonly<Record<string, Form>> = {
  'MatMul as it is': { shape: [16, 8], nodes: [node('MatMul', ['x', NAME], ['y'], {}, { name: 'mm' })] },
  'Gemm, transB': { shape: [8, 16], nodes: [node('Gemm', ['x', NAME], ['y'], { transB: 1 }, { name: 'mm' })] },
  'a Transpose of its own': {
    shape: [8, 16],
    nodes: [
      node('Transpose', [NAME], ['wt'], { perm: [1, 0] }, { name: 'turn' }),
      node('MatMul', ['x', 'wt'], ['y'], {}, { name: 'mm' }),
    ],
    named: ['wt'],
  },
  'a dimension of 1 less': {
    shape: [16, 1, 8],
    nodes: [
      node('Squeeze', [NAME, 'axes'], ['flat'], {}, { name: 'squeeze' }),
      node('MatMul', ['x', 'flat'], ['y'], {}, { name: 'mm' }),
    ],
    more: [tensor('axes', [1], [1], 'int64')],
    named: ['flat'],
  },
  'a Reshape, a Cast and a Transpose': {
    shape: [1, 8, 16],
    nodes: [
      node('Reshape', [NAME, 'shape'], ['matrix'], {}, { name: 'reshape' }),
      node('Cast', ['matrix'], ['wide'], { to: 11 }, { name: 'cast' }),
      node('Cast', ['wide'], ['narrow'], { to: 1 }, { name: 'back' }),
      node('Transpose', ['narrow'], ['wt'], { perm: [1, 0] }, { name: 'turn' }),
      node('MatMul', ['x', 'wt'], ['y'], {}, { name: 'mm' }),
    ],
    more: [tensor('shape', [2], [8, 16], 'int64')],
    named: ['wt'],
    cast: true,
  },
};

async function fileOf({ shape, nodes, more = [] }: Form): Promise<string> {
  const count = shape.reduce((product, size) => product * size, 1);
  // Every element has a value of its own, so that a set of values says which elements a rank holds.
  const weight = tensor(
    NAME,
    shape,
    Array.from({ length: count }, (_, index) => index),
  );
  const graph = { node: nodes, input: [value('x', [4, 16])], output: [value('y', [4, 8])] };
  return saved(model({ ...graph, initializer: [weight, ...more] }));
}

/** Elements of the file's tensor in part `parts[d]` of `counts[d]` of each dimension d. */
function cutElements(shape: readonly number[], counts: readonly number[], parts: readonly number[]): readonly number[] {
  const count = shape.reduce((product, size) => product * size, 1);
  return Array.from({ length: count }, (_, index) => index).filter((index) => {
    let rest = index;
    return shape.toReversed().every((size, back) => {
      const axis = shape.length - 1 - back;
      const at = rest % size;
      rest = Math.floor(rest / size);
      return Math.floor(at / (size / (counts[axis] ?? 1))) === (parts[axis] ?? 0);
    });
  });
}

/** The elements of the weight that each rank of a compiled folder holds, sorted. */
async function heldElements(directory: string): Promise<readonly (readonly number[])[]> {
  const [weight] = await heldShards(directory);
  if (!weight) throw new Error('the program has no weight');
  const value = (bytes: bigint) => new Float32Array(BigUint64Array.of(bytes).buffer)[0] ?? Number.NaN;
  return weight.ranks.map((elements) => Array.from(elements, value).sort((a, b) => a - b));
}

async function compiled(file: string, layout: string): Promise<string> {
  const output = join(await mkdtemp(join(tmpdir(), 'autopar-form-')), 'out');
  const annotations = annotationsOf({
    version: 1,
    mesh: { dp: 1, tp: RANKS },
    pins: [{ match: { tensor: NAME }, layout }],
  });
  await compile({ model: file, output, devices: RANKS, annotations });
  return output;
}

for (const [name, form] of Object.entries(forms)) {
  for (const axis of form.shape.flatMap((size, index) => (size > 1 ? [index] : []))) {
    test(`${name}: dimension ${axis} of the file is what is pinned, held, reported and exported`, async (t) => {
      const { shape } = form;
      const file = await fileOf(form);
      const layout = `[${shape.map((_, index) => (index === axis ? 'tp' : '-')).join(', ')}]`;
      const directory = await compiled(file, layout);
      const counts = shape.map((_, index) => (index === axis ? RANKS : 1));
      const expected = Array.from({ length: RANKS }, (_, rank) =>
        cutElements(
          shape,
          counts,
          shape.map((_, index) => (index === axis ? rank : 0)),
        ),
      );
      t.deepEqual(await heldElements(directory), expected);

      const explained = explainTensor((await openExplainable(directory)).explainable, NAME);
      t.deepEqual([explained.shape, explained.layouts], [shape, [layout]]);

      const annotated = join(directory, '..', 'annotated.onnx');
      await convertStrategy({ from: directory, output: annotated });
      const specs = await specsOf(annotated, 'mm');
      const spec = specs.find(({ tensor_name: own }) => [NAME, ...(form.named ?? [])].includes(own ?? ''));
      if (!spec) return t.fail(`no annotation of the weight: ${JSON.stringify(specs)}`);
      if (spec.tensor_name === NAME) t.deepEqual(positionsBySpec(spec, shape), expected);
      // Results of the file's operators on the weight have their dimensions in the order of MatMul's operand.
      else t.is(integerOf(spec.sharded_dim?.[0]?.axis), shape[axis] === 16 ? 0 : 1);

      const pins = join(directory, '..', 'pins.json');
      await convertStrategy({ from: annotated, output: pins, to: 'annotations', pinsOnly: true });
      const again = join(directory, '..', 'again');
      await compile({ model: file, output: again, devices: RANKS, annotations: await readAnnotations(pins) });
      t.deepEqual((await readCompiled(again)).plan.operators, (await readCompiled(directory)).plan.operators);

      const direct = join(directory, '..', 'direct');
      await compile({ model: annotated, output: direct, devices: RANKS });
      t.deepEqual(await heldElements(direct), expected);

      if (form.cast) return;
      const checkpoint = join(directory, '..', 'out.ckpt');
      await convertStrategy({ from: directory, output: checkpoint });
      const document = decodeStrategy(await readFile(checkpoint), checkpoint);
      const parameter = document.parameters.get(NAME);
      t.deepEqual(
        [parameter?.deviceMatrix, parameter?.tensorMap],
        [[RANKS], shape.map((_, index) => [index === axis ? 0 : -1])],
      );
      t.deepEqual(document.operators.get(`MatMul_${NAME}`)?.splits[1], counts);
      const read = join(directory, '..', 'read.json');
      await convertStrategy({ from: checkpoint, output: read, to: 'annotations', model: file });
      await compile({
        model: file,
        output: join(directory, '..', 'third'),
        devices: RANKS,
        annotations: await readAnnotations(read),
      });
      t.deepEqual(await heldElements(join(directory, '..', 'third')), expected);
    });
  }

  if (form.cast) continue;
  test(`${name}: inspect gives the file's shape`, async (t) => {
    const { parameters } = await inspect({ model: await fileOf(form) });
    t.like(parameters.parameters[0], { name: NAME, shape: form.shape });
  });
}

test('a pin that cuts a dimension of the file into more parts than it has is refused with both', async (t) => {
  const file = await fileOf(forms['Gemm, transB'] as Form);
  const output = join(await mkdtemp(join(tmpdir(), 'autopar-form-')), 'out');
  const pins = [
    { match: { tensor: NAME }, split: [16, 1] },
    {
      match: { node: 'mm' },
      split: [
        [1, 1],
        [16, 1],
      ],
    },
  ];
  for (const pin of pins) {
    const annotations = annotationsOf({ version: 1, mesh: { dp: 1, tp: 16 }, pins: [pin] });
    const error = await t.throwsAsync(compile({ model: file, output, devices: 16, planOnly: true, annotations }), {
      instanceOf: AutoparError,
    });
    t.regex(error?.message ?? '', /\(16, 1\) cuts dimension 0 of .*\[8, 16\] into 16 parts, and it has 8 elements/);
  }
});

test('contradictions are told in the dimensions of the file', async (t) => {
  const file = await fileOf(forms['Gemm, transB'] as Form);
  const pins = [
    { match: { tensor: NAME }, layout: '[tp, -]' },
    { match: { node: 'mm' }, layout: { in: [null, '[-, tp]'] } },
  ];
  const annotations = annotationsOf({ version: 1, mesh: { dp: 1, tp: 2 }, pins });
  const error = await t.throwsAsync(compile({ model: file, devices: 2, planOnly: true, annotations }));
  t.regex(
    error?.message ?? '',
    /pins\[1\].* and pins\[0\].*: operand 1 is \[-, tp\] by the first and \[tp, -\] by the second/,
  );
});

test('a weight that the exporter named itself is named after its module, and in annotations of the file as there', async (t) => {
  const own = 'onnx::MatMul_9';
  const weight = tensor(
    own,
    [16, 8],
    Array.from({ length: 128 }, (_, index) => index),
  );
  const product = node('MatMul', ['x', own], ['y'], {}, { name: '/h/fc/MatMul' });
  const graph = { node: [product], input: [value('x', [4, 16])], output: [value('y', [4, 8])], initializer: [weight] };
  const file = await saved(model(graph));
  for (const tensorName of ['h.fc.weight', own]) {
    const output = join(await mkdtemp(join(tmpdir(), 'autopar-form-')), 'out');
    const pins = [{ match: { tensor: tensorName }, layout: '[tp, -]' }];
    const annotations = annotationsOf({ version: 1, mesh: { dp: 1, tp: RANKS }, pins });
    const { memory } = await compile({ model: file, output, devices: RANKS, annotations });
    t.true(memory[0]?.held.some((held) => held.tensor === 'h.fc.weight'));
    t.is(explainTensor((await openExplainable(output)).explainable, own).tensor, 'h.fc.weight');
    const annotated = join(output, '..', 'annotated.onnx');
    await convertStrategy({ from: output, output: annotated });
    const specs = await specsOf(annotated);
    const spec = specs.find(({ tensor_name: named }) => named === own);
    t.deepEqual(spec && positionsBySpec(spec, [16, 8]), await heldElements(output));
  }
  const { parameters } = await inspect({ model: file });
  t.like(parameters.parameters[0], { name: 'h.fc.weight', weights: [own], shape: [16, 8] });
});

test('a step of training has weight and moments in the dimensions of the file, in every form', async (t) => {
  const file = await fileOf(forms['Gemm, transB'] as Form);
  const output = join(await mkdtemp(join(tmpdir(), 'autopar-form-')), 'out');
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1e-3 } } as const;
  const pins = [{ match: { tensor: NAME }, layout: '[tp, -]' }];
  const annotations = annotationsOf({ version: 1, mesh: { dp: 1, tp: RANKS }, pins });
  const { plan } = await compile({ model: file, output, devices: RANKS, annotations, training, planOnly: true });
  for (const name of [NAME, `${NAME}/mean`, `${NAME}/square`]) t.is(plan.tensors[name], '[tp, -]', name);
  const annotated = join(output, '..', 'annotated.onnx');
  await convertStrategy({ from: output, output: annotated });
  const again = join(output, '..', 'again.plan.json');
  await convertStrategy({ from: annotated, output: again });
  t.deepEqual(await readPlan(again), await readPlan(join(output, 'plan.json')));
});
