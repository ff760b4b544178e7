/**
 * @file Tokens that NonZero picks for each expert, as PyTorch's exporters write transformers' Mixtral: the imported model
 * against ONNX Runtime on the file, and refusals of models whose result depends on how many tokens there are.
 */
import { readFileSync } from 'node:fs';
import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { runGraph } from '../../../src/api/verification/reference.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { NodeProto } from '../../../src/ir/onnx/schema.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import { evaluate } from '../../../src/runtime/evaluate.js';
import { model, node, ramp, saved, tensor, value } from '../model-maker.js';

const [BATCH, STEPS, WIDTH, EXPERTS, CHOSEN] = [4, 6, 8, 3, 2];
const TOKENS = BATCH * STEPS;

/** How an exporter writes what is picked, and what it makes of it. */
type Writer = (expert: number) => readonly NodeProto[];

const ints = (name: string, values: readonly number[], shape = [values.length]) => tensor(name, shape, values, 'int64');

/** One expert: its `rows.I`, by what is in `picked.I`, are `result.I`. */
function expertOf(expert: number): readonly NodeProto[] {
  return [
    node('Gemm', [`picked.${expert}`, `up.${expert}`], [`wide.${expert}`], { transB: 1 }),
    node('Tanh', [`wide.${expert}`], [`open.${expert}`]),
    node('MatMul', [`open.${expert}`, `down.${expert}`], [`result.${expert}`]),
  ];
}

/** torch.export: coordinates cut out by Slice, rows by GatherND, sums by ScatterND. The mask is [experts, choices, tokens]. */
const exported: Writer = (e) => [
  node('Gather', ['mask', `number.${e}`], [`mask.${e}`], { axis: 0 }),
  node('NonZero', [`mask.${e}`], [`places.${e}`], {}, { name: `where.${e}` }),
  node('Transpose', [`places.${e}`], [`turned.${e}`], { perm: [1, 0] }),
  node('Slice', [`turned.${e}`, 'zero', 'one', 'one'], [`first.${e}`]),
  node('Slice', [`turned.${e}`, 'one', 'two', 'one'], [`token.${e}`]),
  node('GatherND', ['x', `token.${e}`], [`picked.${e}`]),
  ...expertOf(e),
  node('Concat', [`token.${e}`, `first.${e}`], [`both.${e}`], { axis: -1 }),
  node('Unsqueeze', ['shares', 'two'], [`column.${e}`]),
  node('GatherND', [`column.${e}`, `both.${e}`], [`share.${e}`]),
  node('Mul', [`result.${e}`, `share.${e}`], [`its.${e}`]),
  node('ScatterND', [`sum.${e}`, `token.${e}`, `its.${e}`], [`sum.${e + 1}`], { reduction: 'add' }),
];

/** TorchScript: sizes are computed from what was picked, and each expert's rows are scattered into zeros. */
const traced: Writer = (e) => [
  node('Gather', ['mask', `number.${e}`], [`number_mask.${e}`], { axis: 0 }),
  node('Cast', [`number_mask.${e}`], [`mask.${e}`], { to: 9 }),
  node('NonZero', [`mask.${e}`], [`places.${e}`], {}, { name: `where.${e}` }),
  node('Transpose', [`places.${e}`], [`turned.${e}`], { perm: [1, 0] }),
  node('Split', [`turned.${e}`, 'halves'], [`first_column.${e}`, `token_column.${e}`], { axis: 1 }),
  node('Squeeze', [`first_column.${e}`, 'one'], [`first.${e}`]),
  node('Squeeze', [`token_column.${e}`, 'one'], [`token.${e}`]),
  node('Unsqueeze', ['x', 'zero'], [`all.${e}`]),
  node('Gather', [`all.${e}`, `token.${e}`], [`some.${e}`], { axis: 1 }),
  node('Reshape', [`some.${e}`, 'rows'], [`picked.${e}`]),
  ...expertOf(e),
  node('Mul', [`token.${e}`, 'two'], [`begin.${e}`]),
  node('Add', [`first.${e}`, `begin.${e}`], [`at.${e}`]),
  node('Reshape', ['shares', 'column'], [`flat.${e}`]),
  node('Gather', [`flat.${e}`, `at.${e}`], [`found.${e}`], { axis: 0 }),
  node('Shape', [`at.${e}`], [`count.${e}`]),
  node('Concat', [`count.${e}`, 'one'], [`size.${e}`], { axis: 0 }),
  node('Reshape', [`found.${e}`, `size.${e}`], [`share.${e}`]),
  node('Mul', [`result.${e}`, `share.${e}`], [`weighted.${e}`]),
  node('Expand', [`weighted.${e}`, 'one'], [`its.${e}`]),
  node('Unsqueeze', [`token.${e}`, 'one'], [`index.${e}`]),
  node('Shape', [`its.${e}`], [`wanted.${e}`]),
  node('Expand', [`index.${e}`, `wanted.${e}`], [`spread.${e}`]),
  node('ScatterElements', ['sum.0', `spread.${e}`, `its.${e}`], [`added.${e}`], { axis: 0 }),
  node('Add', [`sum.${e}`, `added.${e}`], [`sum.${e + 1}`]),
];

const WRITERS = { exported, traced };
const numbers = Array.from({ length: EXPERTS }, (_, expert) => expert);

async function written(
  writer: Writer,
  change: (nodes: readonly NodeProto[]) => readonly NodeProto[] = (nodes) => nodes,
) {
  const nodes = [
    node('Gather', ['table', 'ids'], ['rows_of_samples']),
    node('Reshape', ['rows_of_samples', 'rows'], ['x']),
    node('MatMul', ['x', 'router'], ['scores']),
    node('TopK', ['scores', 'two'], ['best', 'choice']),
    node('Softmax', ['best'], ['shares'], { axis: -1 }),
    node('OneHot', ['choice', 'depth', 'off_on'], ['hot'], { axis: -1 }),
    node('Transpose', ['hot'], ['mask'], { perm: [2, 1, 0] }),
    ...change(numbers.flatMap(writer)),
    node('Reshape', [`sum.${EXPERTS}`, 'samples'], ['y']),
  ];
  const random = (name: string, shape: readonly number[], seed: number) => {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Array.from({ length: count }, (_, index) => Math.sin((index + 1) * seed) / 2);
    return tensor(name, shape, values);
  };
  const initializer = [
    random('table', [16, WIDTH], 7.7),
    random('router', [WIDTH, EXPERTS], 3.1),
    ...numbers.flatMap((e) => [random(`up.${e}`, [5, WIDTH], 1.3 + e), random(`down.${e}`, [5, WIDTH], 2.9 + e)]),
    ...numbers.map((e) => ints(`number.${e}`, [e], [])),
    ...[
      ints('zero', [0]),
      ints('one', [1]),
      ints('two', [CHOSEN]),
      ints('halves', [1, 1]),
      ints('depth', [EXPERTS], []),
    ],
    ...[
      ints('off_on', [0, 1]),
      ints('rows', [-1, WIDTH]),
      ints('column', [-1, 1]),
      ints('samples', [BATCH, STEPS, WIDTH]),
    ],
    ramp('spare', [1, WIDTH]),
    tensor('sum.0', [TOKENS, WIDTH], Array(TOKENS * WIDTH).fill(0)),
  ];
  const input = [value('ids', [BATCH, STEPS], 'int64')];
  return saved(model({ node: nodes, input, output: [value('y', [BATCH, STEPS, WIDTH])], initializer }));
}

/** Every token another, and all tokens one: experts without any. */
const DRAWN = [(index: number) => (index * 7) % 16, () => 3];

for (const [name, writer] of Object.entries(WRITERS))
  test(`tokens of each expert as ${name} are all tokens, by the gate: ONNX Runtime computes the same`, async (t) => {
    const file = await written(writer);
    const { graph } = await importModel(file);
    t.false(graph.nodes.some(({ op }) => op === 'NonZero' || op === 'GatherND' || op.startsWith('Scatter')));
    const { graph: sent, passes } = await importModel(file, { dispatch: 'padded' });
    t.true(passes.some((pass) => pass.name === 'stack-experts'));
    for (const draw of DRAWN) {
      const ids = constant(
        'int64',
        Array.from({ length: TOKENS }, (_, index) => draw(index)),
        [BATCH, STEPS],
      );
      const wanted = (await evaluate(readFileSync(file), { ids }))['y'];
      for (const each of [graph, sent]) {
        const got = (await runGraph(each, { ids }))['y'];
        if (!got || !wanted) throw new Error('no y');
        const [a, b] = [got, wanted].map((array) => numbersOf(array).map(Number));
        t.true(a?.every((number, index) => Math.abs(number - (b?.[index] ?? Number.NaN)) < 1e-6));
        t.true(b?.some((number) => Math.abs(number) > 1e-2));
      }
    }
  });

/** Replacements of the first expert's `result.0` that depend on which tokens there are, and how many. */
const DEPENDENT: Readonly<Record<string, readonly NodeProto[]>> = {
  'a mean over picked tokens': [
    node('ReduceMean', ['picked.0', 'zero'], ['mean'], { keepdims: 1 }),
    node('Sub', ['picked.0', 'mean'], ['result.0']),
  ],
  'a softmax over picked tokens': [node('Softmax', ['picked.0'], ['result.0'], { axis: 0 })],
  'a running sum over picked tokens': [node('CumSum', ['picked.0', 'nought'], ['result.0'])],
  'their number': [
    node('Shape', ['picked.0'], ['sizes']),
    node('Cast', ['sizes'], ['count'], { to: 1 }),
    node('ReduceMax', ['count'], ['most']),
    node('Div', ['picked.0', 'most'], ['result.0']),
  ],
  'tokens and features in another order': [
    node('Reshape', ['picked.0', 'turned_rows'], ['mixed']),
    node('Transpose', ['mixed'], ['result.0'], { perm: [1, 0] }),
  ],
  'tokens beside all tokens': [node('Add', ['picked.0', 'x'], ['result.0'])],
  'tokens of two experts': [node('Add', ['picked.0', 'picked.1'], ['result.0'])],
  'the first of them': [node('Slice', ['picked.0', 'zero', 'one', 'zero'], ['result.0'])],
};

for (const [name, nodes] of Object.entries(DEPENDENT))
  test(`${name}: refused, for the size depends on the data`, async (t) => {
    const file = await written(exported, (all) => {
      const own = all.filter(({ output }) => output?.[0] !== 'result.0');
      const at = own.findIndex(({ output }) => output?.[0] === 'both.0');
      const isBefore = (each: NodeProto) => /^(mask|places|turned|first|token|picked)\.1$/.test(each.output?.[0] ?? '');
      const early = own.filter(isBefore);
      const extra = [
        node('Constant', [], ['nought'], { value: constant('int64', [0], []) }),
        node('Constant', [], ['turned_rows'], { value: constant('int64', [WIDTH, -1], [2]) }),
      ];
      return [...extra, ...own.slice(0, at), ...early, ...nodes, ...own.slice(at).filter((each) => !isBefore(each))];
    });
    const error = await t.throwsAsync(importModel(file), { instanceOf: AutoparError });
    t.is((error as AutoparError).code, 'data-dependent-shape');
    t.regex(error?.message ?? '', /where\.\d/);
  });
