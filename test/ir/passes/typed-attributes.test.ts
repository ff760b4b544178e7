import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import test from 'ava';
import { compile } from '../../../src/api/compile.js';
import { verify } from '../../../src/api/verify.js';
import { readOnnx } from '../../../src/ir/onnx/reader.js';
import { ATTRIBUTE_TYPE, type AttributeProto, type ModelProto } from '../../../src/ir/onnx/schema.js';
import { readProgram } from '../../../src/program/reader.js';
import { model, node, saved, value } from '../model-maker.js';
import { noise, operators, sameResults } from '../same-results.js';

const ints = (name: string, values: readonly number[]): AttributeProto => ({
  name,
  type: ATTRIBUTE_TYPE.ints,
  ints: values,
});
const floats = (name: string, values: readonly number[]): AttributeProto => ({
  name,
  type: ATTRIBUTE_TYPE.floats,
  floats: values,
});
const strings = (name: string, values: readonly string[]): AttributeProto => ({
  name,
  type: ATTRIBUTE_TYPE.strings,
  strings: values.map((text) => new TextEncoder().encode(text)),
});

/** One tree, `x[0] <= 0 ? class 0 : class 1`, every float of which is a whole number; version 1 of the domain. */
const TREE: readonly AttributeProto[] = [
  ints('class_ids', [0, 1]),
  ints('class_nodeids', [1, 2]),
  ints('class_treeids', [0, 0]),
  floats('class_weights', [1, 2]),
  ints('classlabels_int64s', [0, 1]),
  ints('nodes_falsenodeids', [2, 0, 0]),
  ints('nodes_featureids', [0, 0, 0]),
  floats('nodes_hitrates', [1, 1, 1]),
  strings('nodes_modes', ['BRANCH_LEQ', 'LEAF', 'LEAF']),
  ints('nodes_nodeids', [0, 1, 2]),
  ints('nodes_treeids', [0, 0, 0]),
  ints('nodes_truenodeids', [1, 0, 0]),
  floats('nodes_values', [0, 0, 0]),
];

const labels = ints('classlabels_int64s', [0, 1]);

function classifier(version: number, more: Partial<ModelProto['graph'] & object> = {}): ModelProto {
  const tree = node(
    'TreeEnsembleClassifier',
    ['x'],
    ['label', 'scores'],
    {},
    { domain: 'ai.onnx.ml', attribute: TREE },
  );
  return model(
    {
      node: [tree],
      input: [value('x', [4, 2])],
      output: [value('label', [4], 'int64'), value('scores', [4, 2])],
      ...more,
    },
    18,
    {
      opset_import: [
        { domain: '', version: 18 },
        { domain: 'ai.onnx.ml', version },
      ],
    },
  );
}

test('whole numbers of an operator that the registry lacks keep the type that the file gives them', async (t) => {
  const { graph } = await sameResults(t, classifier(1), { x: noise([4, 2]) });
  const [tree] = graph.nodes;
  t.deepEqual(tree?.attributes['class_weights'], { type: 'floats', numbers: [1, 2] });
  t.deepEqual(tree?.attributes['class_ids'], { type: 'ints', numbers: [0, 1] });
});

for (const version of [1, 3]) {
  test(`a domain's version ${version} in the file is that of the program`, async (t) => {
    const file = await saved(classifier(version));
    const directory = join(dirname(file), 'out');
    await compile({ model: file, output: directory, devices: 2 });
    t.true((await verify({ directory })).passed);
    const [stage] = (await readProgram(directory)).stages;
    for (const segment of Object.values(stage?.segments ?? {})) {
      const { opsets } = await readOnnx(join(directory, 'program', segment.file));
      t.is(opsets.get('ai.onnx.ml'), version);
    }
    await rm(dirname(file), { recursive: true });
  });
}

test('an attribute that a function takes from its call keeps its type', async (t) => {
  const inner = TREE.map((attribute) =>
    attribute.name === 'class_weights'
      ? { name: 'class_weights', type: ATTRIBUTE_TYPE.floats, ref_attr_name: 'weights' }
      : attribute,
  );
  const called = classifier(1, {
    node: [node('Tree', ['x'], ['label', 'scores'], {}, { domain: 'local', attribute: [floats('weights', [1, 2])] })],
  });
  const given: ModelProto = {
    ...called,
    opset_import: [...(called.opset_import ?? []), { domain: 'local', version: 1 }],
    functions: [
      {
        name: 'Tree',
        domain: 'local',
        input: ['in'],
        output: ['which', 'how'],
        attribute: ['weights'],
        node: [
          node('TreeEnsembleClassifier', ['in'], ['which', 'how'], {}, { domain: 'ai.onnx.ml', attribute: inner }),
        ],
        opset_import: [{ domain: 'ai.onnx.ml', version: 1 }],
      },
    ],
  };
  await sameResults(t, given, { x: noise([4, 2]) });
});

test('ZipMap gives the values of its dictionaries', async (t) => {
  const zipped = classifier(1, {
    node: [
      ...(classifier(1).graph?.node ?? []),
      node('ZipMap', ['scores'], ['probabilities'], {}, { domain: 'ai.onnx.ml', attribute: [labels] }),
    ],
    output: [value('label', [4], 'int64'), { name: 'probabilities' }],
  });
  const file = await saved(zipped);
  const directory = join(dirname(file), 'out');
  await compile({ model: file, output: directory, devices: 2 });
  const { passed, outputs } = await verify({ directory });
  t.true(passed);
  t.deepEqual(
    outputs.map(({ name, shape }) => [name, shape]),
    [
      ['label', [4]],
      ['probabilities', [4, 2]],
    ],
  );
  const imported = await sameResults(t, classifier(1), { x: noise([4, 2]) });
  t.deepEqual(operators(imported), ['TreeEnsembleClassifier']);
  await rm(dirname(file), { recursive: true });
});
