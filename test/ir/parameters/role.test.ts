import test from 'ava';
import { importModel } from '../../../src/api/models/import.js';
import { decayOf } from '../../../src/api/models/training.js';
import { importedFor, trainingForm } from '../../../src/api/models/training-form.js';
import { AutoparError } from '../../../src/ir/error.js';
import type { NodeProto, TensorProto } from '../../../src/ir/onnx/schema.js';
import { float, model, node, saved, tensor, value } from '../model-maker.js';

/** Numbers without a pattern. */
function drawn(name: string, shape: readonly number[]): TensorProto {
  const count = shape.reduce((product, size) => product * size, 1);
  return table(name, shape, (index) => Math.sin(index * index * 12.9898 + count) * 0.7);
}

function table(name: string, shape: readonly number[], at: (index: number) => number): TensorProto {
  const count = shape.reduce((product, size) => product * size, 1);
  return tensor(
    name,
    shape,
    Array.from({ length: count }, (_, index) => at(index)),
  );
}

const WEIGHT = drawn('fc.weight', [8, 8]);

/** y = op(x · fc.weight, c), by a file of `producer`. */
async function meeting(op: string, given: TensorProto, after: readonly NodeProto[] = [], producer = 'pytorch') {
  const name = given.name ?? '';
  const last = after.length > 0 ? 'met' : 'y';
  const file = await saved(
    model(
      {
        node: [
          node('MatMul', ['x', 'fc.weight'], ['product'], {}, { name: '/fc/MatMul' }),
          node('Relu', ['product'], ['data'], {}, { name: '/Relu' }),
          node(op, ['data', name], [last], {}, { name: `/own/${op}` }),
          ...after,
        ],
        initializer: [WEIGHT, given],
        input: [value('x', [2, 8, 8])],
        output: [value('y', [2, 8, 8])],
      },
      18,
      { producer_name: producer },
    ),
  );
  return importModel(file, importedFor({}));
}

const SOFTMAX = [node('Softmax', ['met'], ['y'], { axis: -1 }, { name: '/Softmax' })];
const wave = (index: number) => Math.sin(Math.floor(index / 8) * 0.3 ** (index % 8));
const causal = (index: number) => (index % 8 > index / 8 ? -100 : 0);
const distance = (index: number) => -0.25 * Math.abs((index % 8) - Math.floor(index / 8));

const CASES: readonly {
  readonly name: string;
  readonly op: string;
  readonly given: TensorProto;
  readonly after?: readonly NodeProto[];
  readonly producer?: string;
  readonly trained: boolean;
}[] = [
  { name: 'a folded table of positions', op: 'Add', given: drawn('onnx::Add_12', [8, 8]), trained: true },
  { name: 'a vector of any name', op: 'Mul', given: drawn('w', [8]), trained: true },
  { name: 'a vector that divides', op: 'Div', given: drawn('w', [8]), trained: true },
  { name: 'a gate', op: 'Mul', given: drawn('gate', [8, 8]), trained: true },
  { name: 'one slope', op: 'PRelu', given: tensor('slope', [1], [0.25]), trained: true },
  { name: 'slopes of channels', op: 'PRelu', given: drawn('onnx::PRelu_4', [8, 1]), trained: true },
  { name: 'ones to begin with', op: 'Mul', given: table('gamma', [8], () => 1), trained: true },
  { name: 'one number of a module', op: 'Mul', given: tensor('alpha', [], [0.3]), trained: true },
  {
    name: 'one number of another exporter',
    op: 'Mul',
    given: tensor('alpha', [], [0.3]),
    producer: 'tf',
    trained: false,
  },
  { name: 'one number that was folded', op: 'Mul', given: tensor('onnx::Mul_3', [], [0.3]), trained: false },
  { name: 'sinusoidal positions', op: 'Add', given: table('onnx::Add_12', [8, 8], wave), trained: false },
  { name: 'rotary angles', op: 'Mul', given: table('onnx::Mul_12', [8, 8], wave), trained: false },
  { name: 'a mask', op: 'Add', given: table('m', [8, 8], causal), after: SOFTMAX, trained: false },
  {
    name: 'a mask that multiplies',
    op: 'Mul',
    given: table('m', [8, 8], (index) => Number(causal(index) < 0)),
    trained: false,
  },
  { name: 'distances', op: 'Add', given: table('m', [8, 8], distance), after: SOFTMAX, trained: false },
  { name: 'zeros before a softmax', op: 'Add', given: table('m', [8, 8], () => 0), after: SOFTMAX, trained: false },
  { name: 'learned biases of positions', op: 'Add', given: drawn('m', [8, 8]), after: SOFTMAX, trained: true },
];

for (const { name, op, given, after, producer, trained } of CASES) {
  test(`${name}: ${trained ? '' : 'not '}trained`, async (t) => {
    const form = trainingForm(await meeting(op, given, after, producer), {});
    t.is(form.trained.length, trained ? 2 : 1);
  });
}

test('what is not trained for its values is noted, with the reason, and can be overruled', async (t) => {
  const imported = await meeting('Add', table('m', [8, 8], causal), SOFTMAX);
  const { notes } = trainingForm(imported, {});
  t.deepEqual(notes, ['not trained: m (a mask: it has two values only); --trainable NAME trains one']);
  t.true(trainingForm(imported, { trainable: ['m'] }).trained.includes('m'));
});

test('what nothing but data speaks for is trained, noted, and can be overruled', async (t) => {
  const imported = await meeting('Mul', drawn('w', [8]));
  const { notes } = trainingForm(imported, {});
  t.regex(notes.join(), /^trained, as operands of data .*: w; --frozen NAME freezes one$/);
  t.deepEqual(trainingForm(imported, { frozen: ['w'] }).trained, ['fc.weight']);
});

test('a value is known by the name of its module as well as by the file’s', async (t) => {
  const imported = await meeting('Mul', drawn('onnx::Mul_3', [8, 1]));
  t.deepEqual(trainingForm(imported, { frozen: ['own.weight'] }).trained, ['fc.weight']);
  t.deepEqual(trainingForm(imported, { frozen: ['onnx::Mul_3'] }).trained, ['fc.weight']);
  const error = t.throws(() => trainingForm(imported, { frozen: ['other.weight'] }), { instanceOf: AutoparError });
  t.is(error.code, 'unknown-parameter');
});

/** Images are standardised, convolved, and normalised in groups as exporters write it. */
async function image() {
  const file = await saved(
    model(
      {
        node: [
          node('Sub', ['x', 'mean'], ['centred'], {}, { name: '/Sub' }),
          node('Div', ['centred', 'std'], ['standard'], {}, { name: '/Div' }),
          node('Conv', ['standard', 'conv.weight'], ['c'], { kernel_shape: [1, 1] }, { name: '/conv/Conv' }),
          node('Reshape', ['c', 'groups'], ['r'], {}, { name: '/g/Reshape' }),
          node('InstanceNormalization', ['r', 'ones', 'zeros'], ['n'], { epsilon: float(1e-5) }, { name: '/g/IN' }),
          node('Reshape', ['n', 'whole'], ['b'], {}, { name: '/g/Reshape_1' }),
          node('Mul', ['b', 'onnx::Mul_41'], ['s'], {}, { name: '/g/Mul' }),
          node('Unsqueeze', ['g.bias', 'axes'], ['raised'], {}, { name: '/g/Unsqueeze' }),
          node('Add', ['s', 'raised'], ['y'], {}, { name: '/g/Add' }),
        ],
        initializer: [
          tensor('mean', [3, 1, 1], [0.48, 0.45, 0.4]),
          tensor('std', [3, 1, 1], [0.22, 0.23, 0.24]),
          drawn('conv.weight', [8, 3, 1, 1]),
          tensor('groups', [3], [0, 4, -1], 'int64'),
          tensor('whole', [4], [2, 8, 4, 4], 'int64'),
          tensor('axes', [2], [1, 2], 'int64'),
          table('ones', [4], () => 1),
          table('zeros', [4], () => 0),
          drawn('onnx::Mul_41', [8, 1, 1]),
          drawn('g.bias', [8]),
        ],
        input: [value('x', [2, 3, 4, 4])],
        output: [value('y', [2, 8, 4, 4])],
      },
      18,
      { producer_name: 'pytorch' },
    ),
  );
  return importModel(file, importedFor({}));
}

test('scale and bias of groups are trained; helpers of the expansion and standardised inputs are not', async (t) => {
  const { trained, notes } = trainingForm(await image(), {});
  t.deepEqual([...trained].sort(), ['conv.weight', 'g.bias', 'g.weight']);
  t.regex(notes.join('\n'), /not trained: mean, std \(it standardises an input of the model\)/);
  t.deepEqual(trainingForm(await image(), { frozen: ['g.*'] }).trained, ['conv.weight']);
});

test('neither vectors of channels nor biases of a recurrence decay, whatever their shape', async (t) => {
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1 } } as const;
  const channels = trainingForm(await image(), {});
  t.deepEqual(channels.trained.filter(decayOf(channels.graph, training)), ['conv.weight']);
  const file = await saved(
    model(
      {
        node: [node('LSTM', ['x', 'W', 'R', 'B'], ['y'], { hidden_size: 3, direction: 'bidirectional' })],
        initializer: [drawn('W', [2, 12, 5]), drawn('R', [2, 12, 3]), drawn('B', [2, 24])],
        input: [value('x', [4, 2, 5])],
        output: [value('y', [4, 2, 2, 3])],
      },
      18,
    ),
  );
  const recurrent = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual([...recurrent.trained].sort(), ['B', 'R', 'W']);
  t.deepEqual(recurrent.trained.filter(decayOf(recurrent.graph, training)).sort(), ['R', 'W']);
});

test('a scale that multiplies data through a number for each row, and the parts of a bias, are trained', async (t) => {
  const file = await saved(
    model(
      {
        node: [
          node('ReduceMax', ['x'], ['largest'], { axes: [2] }),
          node('Mul', ['largest', 'gamma'], ['factor']),
          node('Mul', ['x', 'factor'], ['scaled']),
          node('MatMul', ['scaled', 'kernel'], ['product']),
          node('Split', ['biases'], ['first', 'second'], { axis: 0 }),
          node('Squeeze', ['first', 'rows'], ['bias']),
          node('Add', ['product', 'bias'], ['biased']),
          node('MatMul', ['biased', 'recurrent'], ['next']),
          node('Add', ['next', 'second'], ['y']),
        ],
        initializer: [
          tensor('rows', [1], [0], 'int64'),
          drawn('gamma', [8]),
          drawn('kernel', [8, 8]),
          drawn('recurrent', [8, 8]),
          drawn('biases', [2, 8]),
        ],
        input: [value('x', [2, 8, 8])],
        output: [value('y', [2, 8, 8])],
      },
      17,
      { producer_name: 'tf2onnx' },
    ),
  );
  const { graph, trained } = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual([...trained].sort(), ['biases', 'gamma', 'kernel', 'recurrent']);
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1 } } as const;
  t.deepEqual(trained.filter(decayOf(graph, training)).sort(), ['kernel', 'recurrent']);
});

test('a bias that is added after a matmul is reshaped to heads does not decay', async (t) => {
  const file = await saved(
    model(
      {
        node: [
          node('MatMul', ['x', 'query'], ['product']),
          node('Reshape', ['product', 'heads'], ['split']),
          node('Add', ['split', 'bias'], ['y']),
        ],
        initializer: [tensor('heads', [4], [2, 8, 2, 4], 'int64'), drawn('query', [8, 8]), drawn('bias', [2, 4])],
        input: [value('x', [2, 8, 8])],
        output: [value('y', [2, 8, 2, 4])],
      },
      17,
      { producer_name: 'tf2onnx' },
    ),
  );
  const { graph, trained, notes } = trainingForm(await importModel(file, importedFor({})), {});
  t.deepEqual([...trained].sort(), ['bias', 'query']);
  t.deepEqual(notes, []);
  const training = { loss: { kind: 'mse' }, optimizer: { kind: 'adamw', learningRate: 1 } } as const;
  t.deepEqual(trained.filter(decayOf(graph, training)), ['query']);
});

test('weights that are inputs have the roles that initializers have, and one number of a module is no literal', async (t) => {
  const shapes = { scale: [4], bias: [4], mean: [4], variance: [4] };
  const own = Object.entries(shapes).map(([name, shape]) => value(`norm.${name}`, shape));
  const file = await saved(
    model({
      node: [
        node('Conv', ['x', 'conv.weight'], ['c'], { kernel_shape: [1, 1] }, { name: '/conv/Conv' }),
        node('BatchNormalization', ['c', ...own.map(({ name = '' }) => name)], ['n'], {}, { name: '/norm/BN' }),
        node('Mul', ['n', 'gate.alpha'], ['y'], {}, { name: '/gate/Mul' }),
      ],
      input: [value('x', [2, 3, 8, 8]), value('conv.weight', [4, 3, 1, 1]), ...own, value('gate.alpha', [])],
      output: [value('y', [2, 4, 8, 8])],
    }),
  );
  const { graph } = await importModel(file, importedFor({}));
  t.deepEqual(graph.inputs, ['x']);
  const roles = Object.fromEntries([...graph.weights].map(([name, { role }]) => [name, role]));
  const [parameter, buffer] = ['parameter', 'buffer'];
  t.deepEqual(roles, {
    ...{ 'conv.weight': parameter, 'norm.scale': parameter, 'norm.bias': parameter, 'gate.alpha': parameter },
    ...{ 'norm.mean': buffer, 'norm.variance': buffer },
  });
});
