/**
 * @file Models that are too large, or seem so: refused with the limit, or planned, in seconds and in bounded memory.
 */
import { execFile } from 'node:child_process';
import { openSync, truncateSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test, { type ExecutionContext } from 'ava';
import { importModel } from '../../src/api/models/import.js';
import { plan } from '../../src/api/plan.js';
import { encodeModel, type FunctionProto, type GraphProto, type ModelProto } from '../../src/ir/onnx/schema.js';
import { model, node, tensor, value } from '../ir/model-maker.js';
import { EVERYTHING, slowTests } from '../selection.js';
import type { Measured } from './plan-alone.js';
import { type Refusal, refused, workplace } from './refusal.js';
import { field, graphBytes, modelOf, nestedIfs, repeated, writeHole, writeHollow } from './wire.js';

const slow = slowTests(test);

const OPSETS = [
  { domain: '', version: 18 },
  { domain: 'd', version: 1 },
];
const io = (shape: readonly number[]): GraphProto => ({ input: [value('x', shape)], output: [value('y', shape)] });
const int64s = (name: string, values: readonly number[]) => tensor(name, [values.length], values, 'int64');
const range = <Item>(count: number, make: (index: number) => Item): Item[] =>
  Array.from({ length: count }, (_, index) => make(index));

/** Functions f0, f1, … of which each calls the next `calls` times, the last is a Relu. */
function functions(count: number, calls: number, last = node('Relu', ['a'], ['b'])): ModelProto {
  const definition = (index: number): FunctionProto => ({
    name: `f${index}`,
    domain: 'd',
    input: ['a'],
    output: ['b'],
    opset_import: OPSETS,
    node:
      index === count - 1
        ? [last]
        : range(calls, (call) =>
            node(
              `f${index + 1}`,
              [call === 0 ? 'a' : `m${call}`],
              [call === calls - 1 ? 'b' : `m${call + 1}`],
              {},
              { domain: 'd' },
            ),
          ),
  });
  const graph = { ...io([4]), node: [node('f0', ['x'], ['y'], {}, { domain: 'd' })] };
  return model(graph, 18, { functions: range(count, definition), opset_import: OPSETS });
}

/** x → Relu → … → y, `count` nodes, each named by `name`. */
function chain(count: number, name: (index: number) => string): GraphProto {
  const link = (index: number) =>
    node(
      'Relu',
      [index === 0 ? 'x' : `t${index - 1}`],
      [index === count - 1 ? 'y' : `t${index}`],
      {},
      { name: name(index) },
    );
  return { ...io([4]), node: range(count, link) };
}

const constantOf = (bytes: number): ModelProto =>
  model({
    ...io([4]),
    node: [node('ConstantOfShape', ['s'], ['c']), node('Reshape', ['x', 'c'], ['y'])],
    initializer: [int64s('s', [bytes / 4])],
  });

/** A tensor of ten million ones, each a byte in a packed list. */
const TEN_MILLION = Buffer.concat([
  Uint8Array.of(8, 0x80, 0xad, 0xe2, 0x04, 16, 7),
  field(8, Buffer.from('many')),
  field(7, Buffer.alloc(1e7, 1)),
]);

const REFUSED: Readonly<Record<string, Refusal & { readonly content: () => ModelProto | Uint8Array }>> = {
  'an input of more elements than can be counted': {
    content: () => model({ ...io([2 ** 40, 2 ** 40]), node: [node('Relu', ['x'], ['y'])] }),
    code: 'shape-mismatch',
    exit: 'input',
    says: /more than 2\^53 elements/,
  },
  'a result of more elements than can be counted': {
    content: () =>
      model({
        input: [value('x', [1])],
        output: [value('y', [2 ** 40, 2 ** 40])],
        node: [node('Expand', ['x', 's'], ['y'])],
        initializer: [int64s('s', [2 ** 40, 2 ** 40])],
      }),
    code: 'shape-mismatch',
    exit: 'input',
    says: /more than 2\^53 elements/,
  },
  'a shape that takes 8 GiB to compute': {
    content: () => constantOf(2 ** 33),
    code: 'constant-too-large',
    exit: 'input',
    says: /value of 'c', which takes 8589934592 bytes.*up to 268435456/,
  },
  'a shape of 2^40 numbers in order': {
    content: () =>
      model({
        ...io([4]),
        node: [node('Range', ['zero', 'end', 'one'], ['r']), node('Reshape', ['x', 'r'], ['y'])],
        initializer: [
          tensor('zero', [], [0], 'int64'),
          tensor('end', [], [2 ** 40], 'int64'),
          tensor('one', [], [1], 'int64'),
        ],
      }),
    code: 'constant-too-large',
    exit: 'input',
    says: /planning needs the value of 'r'/,
  },
  'a shape that doubles until it has a million dimensions': {
    content: () =>
      model({
        ...io([1]),
        node: [
          node('Shape', ['x'], ['s0']),
          ...range(20, (step) => node('Concat', [`s${step}`, `s${step}`], [`s${step + 1}`], { axis: 0 })),
          node('Reshape', ['x', 's20'], ['y']),
        ],
      }),
    code: 'shape-mismatch',
    exit: 'input',
    says: /1048576 dimensions, and 64 is the maximum/,
  },
  'ten million sizes for four elements': {
    content: () =>
      modelOf(
        Buffer.concat([
          graphBytes({ ...io([4]), node: [node('Mul', ['many', 'many'], ['s']), node('Reshape', ['x', 's'], ['y'])] }),
          field(5, TEN_MILLION),
        ]),
      ),
    code: 'shape-mismatch',
    exit: 'input',
    says: /^.{1000,2200}$/,
  },
  'an input of 100,000 dimensions': {
    content: () => model({ ...io(range(1e5, () => 1)), node: [node('Relu', ['x'], ['y'])] }),
    code: 'tensor-size',
    exit: 'input',
    says: /'x' has 100000 dimensions; 64/,
  },
  'a weight of 1,000 dimensions': {
    content: () =>
      model({
        ...io([4]),
        node: [node('Add', ['x', 'w'], ['y'])],
        initializer: [
          tensor(
            'w',
            range(1000, () => 1),
            [1],
          ),
        ],
      }),
    code: 'tensor-size',
    exit: 'input',
    says: /'w' has 1000 dimensions/,
  },
  'a dimension whose formula is nested 100,000 deep': {
    content: () =>
      model({
        input: [value('x', [`${'('.repeat(1e5)}N${')'.repeat(1e5)}`])],
        output: [value('y', [4])],
        node: [node('Relu', ['x'], ['y'])],
      }),
    code: 'unbound-dimension',
    exit: 'input',
    says: /leaves dimensions open/,
  },
  '100,000 inputs with open dimensions': {
    content: () =>
      model({
        input: range(1e5, (index) => value(`x${index}`, ['N', 4])),
        output: [value('y', [4])],
        node: [node('Relu', ['x0'], ['y'])],
      }),
    code: 'unbound-dimension',
    exit: 'input',
    says: /x7 \[N, 4\] axis 0; and 99992 more/,
  },
  'functions 10,000 deep': {
    content: () => functions(10_000, 1),
    code: 'functions-too-deep',
    exit: 'input',
    says: /10000 deep; autopar expands calls up to 256/,
  },
  'forty functions that call the next one twice': {
    content: () => functions(40, 2),
    code: 'too-many-nodes',
    exit: 'input',
    says: /549755813888 nodes, its function calls expanded; .* up to 200000/,
  },
  'functions that call each other in a cycle': {
    content: () => functions(3, 1, node('f0', ['a'], ['b'], {}, { domain: 'd' })),
    code: 'recursive-function',
    exit: 'input',
    says: /'f0' calls itself: f0 → f1 → f2 → f0/,
  },
  'a million nodes': {
    content: () => repeated(io([4]), node('Relu', ['t'], ['t']), 1e6),
    code: 'too-many-nodes',
    exit: 'input',
    says: /more than 200000 nodes/,
  },
  'a cycle of 100,000 nodes': {
    content: () => {
      const { node: nodes = [], ...rest } = chain(1e5, (index) => `n${index}`);
      const [first, ...others] = nodes;
      return model({ ...rest, node: [{ ...first, input: ['t99998'] }, ...others] });
    },
    code: 'cyclic-graph',
    exit: 'input',
    says: /nodes form a cycle: (n\d+ → ){5}… → n\d+ → n\d+/,
  },
  'subgraphs 2,000 deep': {
    content: () => nestedIfs(2000, { node: [node('Relu', ['x'], ['o'])], output: [value('o', [4])] }, io([4])),
    code: 'nested-too-deep',
    exit: 'input',
    says: /nested/,
  },
  'a large weight that is not as large as it says': {
    content: () =>
      model({
        ...io([4]),
        node: [node('Add', ['x', 'w'], ['y'])],
        initializer: [{ name: 'w', dims: [4], data_type: 1, raw_data: new Uint8Array(3e6) }],
      }),
    code: 'tensor-size',
    exit: 'input',
    says: /takes 16 bytes, but 3000000 bytes are stored/,
  },
};

/** Cases that take seconds; smaller ones are above and below. */
const TAKES_SECONDS: ReadonlySet<string> = new Set([
  'ten million sizes for four elements',
  'two of ten million sizes',
  'a cycle of 100,000 nodes',
  '100,000 inputs with open dimensions',
  'a shape that takes 10,000 steps',
  '10,000 nodes of one name, in the wrong order',
  '10,000 inputs',
  '10,000 outputs',
]);

for (const [name, { content, ...refusal }] of Object.entries(REFUSED)) {
  slowTests(test.serial, TAKES_SECONDS.has(name))(`refused: ${name}`, async (t) => {
    const folder = workplace(t);
    const file = join(folder, 'm.onnx');
    const made = content();
    writeFileSync(file, made instanceof Uint8Array ? made : encodeModel(made));
    await refused(t, folder, () => importModel(file), refusal);
  });
}

const READERS = EVERYTHING ? 10_000 : 2_000;
const MILLIONS = field(5, TEN_MILLION);

/** Models that look bad and are not: planned, within seconds. */
const PLANNED: Readonly<Record<string, () => ModelProto | Uint8Array>> = {
  'two of ten million sizes': () =>
    modelOf(
      Buffer.concat([
        graphBytes({
          input: [value('x', [1])],
          output: [value('y', [1, 1])],
          node: [
            node('Mul', ['many', 'many'], ['squares']),
            node('Concat', ['many', 'squares'], ['more'], { axis: 0 }),
            node('Gather', ['more', 'places'], ['s']),
            node('Reshape', ['x', 's'], ['y']),
          ],
          initializer: [int64s('places', [0, 1.5e7])],
        }),
        MILLIONS,
      ]),
    ),
  'a shape that takes 10,000 steps': () =>
    model({
      ...io([4]),
      node: [
        node('Shape', ['x'], ['s0']),
        ...range(5000, (step) => [
          node('Concat', [`s${step}`, 'one'], [`c${step}`], { axis: 0 }),
          node('Slice', [`c${step}`, 'zero', 'one'], [`s${step + 1}`]),
        ]).flat(),
        node('Reshape', ['x', 's5000'], ['z']),
        node('Relu', ['z'], ['y']),
      ],
      initializer: [int64s('one', [1]), int64s('zero', [0])],
    }),
  'functions 200 deep': () => functions(200, 1),
  'subgraphs 25 deep': () =>
    nestedIfs(
      25,
      { node: [node('Relu', ['x'], ['o'])], output: [value('o', [4])] },
      { ...io([4]), initializer: [tensor('c', [], [1], 'bool')] },
    ),
  '10,000 nodes of one name, in the wrong order': () => {
    const graph = chain(10_000, () => 'same');
    return model({ ...graph, node: [...(graph.node ?? [])].reverse() });
  },
  'thousands of readers of one tensor': () =>
    model({
      ...io([4]),
      node: range(READERS, (index) =>
        node('Add', [index === 0 ? 'x' : `t${index - 1}`, 'x'], [index === READERS - 1 ? 'y' : `t${index}`]),
      ),
    }),
  '10,000 inputs': () =>
    model({
      input: range(10_000, (index) => value(`x${index}`, [4])),
      output: [value('y', [4])],
      node: [
        node(
          'Sum',
          range(10_000, (index) => `x${index}`),
          ['y'],
        ),
      ],
    }),
  '10,000 outputs': () =>
    model({
      input: [value('x', [10_000])],
      output: range(10_000, (index) => value(`y${index}`, [1])),
      node: [
        node(
          'Split',
          ['x'],
          range(10_000, (index) => `y${index}`),
          { axis: 0, num_outputs: 10_000 },
        ),
      ],
    }),
};

for (const [name, content] of Object.entries(PLANNED)) {
  slowTests(test.serial, TAKES_SECONDS.has(name))(`planned: ${name}`, async (t) => {
    const file = join(workplace(t), 'm.onnx');
    const made = content();
    writeFileSync(file, made instanceof Uint8Array ? made : encodeModel(made));
    const { plan: found } = await plan(await importModel(file), { cluster: '1x2:h100-sxm-80' });
    t.true(found.search.gap < 1);
  });
}

/** Plans in a process of its own: at most these megabytes of memory, and of files. */
async function frugal(t: ExecutionContext, file: string, megabytes: number, operators: number): Promise<void> {
  const program = fileURLToPath(new URL('./plan-alone.js', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [...process.execArgv, program, file]);
  const measured = JSON.parse(stdout) as Measured;
  t.is(measured.operators, operators);
  t.true(measured.peakBytes < 250e6, `${measured.peakBytes} bytes of memory`);
  t.true((measured.readBytes ?? 0) < megabytes * 1e6, `${measured.readBytes} bytes read`);
}

const WIDTH = 8192;
const layers = range(7, (layer) => ({ name: `l.${layer}.weight`, shape: [WIDTH, WIDTH] }));
const stack = (op: string, attributes: Readonly<Record<string, number>>): GraphProto => ({
  input: [value('x', [64, WIDTH])],
  output: [value('y', [64, WIDTH])],
  node: layers.map(({ name }, layer) =>
    node(op, [layer === 0 ? 'x' : `h${layer - 1}`, name], [layer === 6 ? 'y' : `h${layer}`], attributes),
  ),
});

slow('1.9 GB of weights inside the file are not read, transposed ones neither', async (t) => {
  const folder = workplace(t);
  for (const [op, attributes] of [
    ['MatMul', {}],
    ['Gemm', { transB: 1 }],
  ] as const) {
    const file = join(folder, `${op}.onnx`);
    writeHollow(file, stack(op, attributes), layers);
    await frugal(t, file, 20, 7);
  }
});

test.serial('a terabyte of external data is not read', async (t) => {
  const folder = workplace(t);
  const file = join(folder, 'm.onnx');
  const rows = 2 ** 20;
  try {
    writeHole(join(folder, 'w.data'), 2 ** 40);
  } catch {
    t.log('skipped: the file system holds no file of a terabyte');
    t.pass();
    return;
  }
  const external_data = [
    { key: 'location', value: 'w.data' },
    { key: 'offset', value: '0' },
  ];
  const weight = { name: 'w', dims: [rows, 2 ** 18], data_type: 1, data_location: 1, external_data };
  const graph: GraphProto = {
    input: [value('x', [8, rows])],
    output: [value('y', [8, 2 ** 18])],
    node: [node('MatMul', ['x', 'w'], ['y'])],
    initializer: [weight],
  };
  writeFileSync(file, encodeModel(model(graph)));
  await frugal(t, file, 20, 1);
});

test.serial('a file that is cut in the middle of a large weight', async (t) => {
  const folder = workplace(t);
  const file = join(folder, 'm.onnx');
  writeHollow(file, stack('MatMul', {}), layers);
  truncateSync(file, 1e9);
  await refused(t, folder, () => importModel(file), { code: 'truncated-model', exit: 'input', says: /truncated/ });
});

test.serial('a large file that is damaged between two weights', async (t) => {
  const folder = workplace(t);
  const file = join(folder, 'm.onnx');
  writeHollow(file, stack('MatMul', {}), layers);
  // The header of the second weight is somewhere behind the first one's 2^28 bytes.
  writeSync(openSync(file, 'r+'), Buffer.alloc(200, 0xff), 0, 200, 2 ** 28 + 20);
  await refused(t, folder, () => importModel(file), { code: 'not-onnx', exit: 'input', says: /not an ONNX model/ });
});
