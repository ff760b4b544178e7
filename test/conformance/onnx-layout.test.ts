import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test, { type ExecutionContext } from 'ava';
import { onnxOfDtype } from '../../src/ir/dtype.js';
import type { ConstantTensor } from '../../src/ir/graph.js';
import { encodeModel, type ModelProto } from '../../src/ir/onnx/schema.js';
import { constant } from '../../src/ir/ops/constants.js';
import { model, node, value } from '../ir/model-maker.js';
import { slowTests } from '../selection.js';
import { findCases } from './find-cases.js';
import { runCases } from './pool.js';
import { caseLines, isSharded, modeTable, refusedLines, totalLine, verdictOf } from './report.js';

const slow = slowTests(test);

const LYING = fileURLToPath(new URL('./lie.js', import.meta.url));
const CRASHING = fileURLToPath(new URL('./crash.js', import.meta.url));

type Arrays = readonly ConstantTensor[];

/** Writes a case as ONNX's backend tests are: test_data_set_N/{input,output}_N.pb beside the model. */
function writeCase(folder: string, content: ModelProto, ...sets: readonly { inputs: Arrays; outputs: Arrays }[]): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'model.onnx'), encodeModel(content));
  for (const [index, { inputs, outputs }] of sets.entries()) {
    const set = join(folder, `test_data_set_${index}`);
    mkdirSync(set);
    inputs.forEach((array, input) => {
      writeFileSync(join(set, `input_${input}.pb`), bytesOf(array));
    });
    outputs.forEach((array, output) => {
      writeFileSync(join(set, `output_${output}.pb`), bytesOf(array));
    });
  }
}

/** A TensorProto of sizes below 128: dims = 1, data_type = 2, raw_data = 9. */
function bytesOf({ dtype, shape, data }: ConstantTensor): Uint8Array {
  return Uint8Array.from([
    ...shape.flatMap((size) => [0x08, size]),
    0x10,
    onnxOfDtype(dtype),
    0x4a,
    data.length,
    ...data,
  ]);
}

/** A SequenceProto of tensors, and an OptionalProto of at most one: elem_type = 2, elements in field 3. */
function bytesOfElements(elements: Arrays): Uint8Array {
  const parts = elements.map(bytesOf).flatMap((bytes) => [0x1a, bytes.length, ...bytes]);
  return Uint8Array.from([0x10, elements.length > 0 ? 1 : 0, ...parts]);
}

function temporary(t: ExecutionContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'autopar-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const floats = (values: readonly number[], shape: readonly number[] = [values.length]) =>
  constant('float32', values, shape);
const ints = (values: readonly number[], shape: readonly number[] = [values.length]) =>
  constant('int64', values, shape);

const negation = model({
  node: [node('Neg', ['x'], ['y'])],
  input: [value('x', ['n', 2])],
  output: [value('y', ['n', 2])],
});

const compressed = model({
  node: [node('NonZero', ['x'], ['y'])],
  input: [value('x', [2, 2])],
  output: [value('y', [2, 'k'], 'int64')],
});

const reduced = model({
  node: [node('ReduceSum', ['x', 'axes'], ['y'], { keepdims: 0 })],
  input: [value('x', [2, 4]), value('axes', [1], 'int64')],
  output: [value('y', ['n'])],
});

slow('every data set of a case is run, at its own sizes', async (t) => {
  const folder = temporary(t);
  writeCase(
    join(folder, 'sets'),
    negation,
    { inputs: [floats([1, -2], [1, 2])], outputs: [floats([-1, 2], [1, 2])] },
    { inputs: [floats([1, -2, 3, 0], [2, 2])], outputs: [floats([-1, 2, -3, 0], [2, 2])] },
  );
  const [result] = await runCases(findCases([folder]), { jobs: 1, modes: ['tp 2 free'] });
  t.is(result && verdictOf(result), 'passed', JSON.stringify(result));
  t.true(result && isSharded(result));
});

test('an input that decides a shape is bound and said; one that is all data is refused', async (t) => {
  const folder = temporary(t);
  writeCase(join(folder, 'bound'), reduced, {
    inputs: [floats([1, 2, 3, 4, 5, 6, 7, 8], [2, 4]), ints([1])],
    outputs: [floats([10, 26])],
  });
  writeCase(join(folder, 'data'), compressed, {
    inputs: [floats([0, 2, 3, 0], [2, 2])],
    outputs: [ints([0, 1, 1, 0], [2, 2])],
  });
  const results = await runCases(findCases([folder]), { jobs: 1, modes: ['dp 2'] });
  t.deepEqual(results.map(verdictOf), ['passed', 'refused']);
  t.regex(caseLines(results[0] ?? fail(t))[0] ?? '', /^passed {3}bound .* bound: axes$/);
  t.deepEqual(refusedLines(results), ['    1  data-dependent shape: data']);
});

slow('a wrong result of the program fails the case, one of ONNX Runtime refuses it', async (t) => {
  const folder = temporary(t);
  const set = { inputs: [floats([1, -2], [1, 2])], outputs: [floats([-1, 2.1], [1, 2])] };
  writeCase(join(folder, 'wrong'), negation, set);
  const [refused] = await runCases(findCases([folder]), { jobs: 1 });
  t.deepEqual(
    refused?.modes.map(({ mode, outcome, reason }) => [mode, outcome, reason]),
    [['onnxruntime', 'refused', 'onnxruntime gives another result']],
  );
  t.regex(refused?.modes[0]?.detail ?? '', /y differs by 1.0e-1 at element 1: 2 instead of 2.0/);
  rmSync(join(folder, 'wrong'), { recursive: true });
  writeCase(join(folder, 'lied to'), negation, { ...set, outputs: [floats([-1, 2], [1, 2])] });
  const [failed] = await runCases(findCases([folder]), { jobs: 1, modes: ['dp 2'], script: LYING });
  t.regex(failed?.modes.at(-1)?.detail ?? '', /y differs/);
  t.is(failed && verdictOf(failed), 'failed');
  t.is(totalLine(failed ? [failed] : []), '0 passed (0 sharded), 0 refused, 1 failed of 1');
});

const FLOATS = { tensor_type: { elem_type: 1, shape: { dim: [{ dim_param: 'n' }] } } };

slow('sequences and optionals are read by the model’s type and run as their elements', async (t) => {
  const folder = temporary(t);
  const sequence = { sequence_type: { elem_type: FLOATS } };
  const longer = model({
    node: [node('SequenceInsert', ['s', 'x'], ['r'])],
    input: [{ name: 's', type: sequence }, value('x', [2])],
    output: [{ name: 'r', type: sequence }],
  });
  const [a, b, x] = [floats([1]), floats([2, 3, 4]), floats([5, 6])];
  writeCase(join(folder, 'sequence'), longer, { inputs: [a, x], outputs: [a] });
  writeCase(join(folder, 'wrong'), longer, { inputs: [a, x], outputs: [a] });
  for (const name of ['sequence', 'wrong']) {
    const set = join(folder, name, 'test_data_set_0');
    writeFileSync(join(set, 'input_0.pb'), bytesOfElements([a, b]));
    writeFileSync(join(set, 'output_0.pb'), bytesOfElements(name === 'wrong' ? [a, b] : [a, b, x]));
  }
  const has = model({
    node: [node('OptionalHasElement', ['o'], ['y'])],
    input: [{ name: 'o', type: { optional_type: { elem_type: FLOATS } } }],
    output: [value('y', [], 'bool')],
  });
  for (const [name, elements] of [
    ['empty', []],
    ['present', [a]],
  ] as const) {
    const there = constant('bool', [elements.length], []);
    writeCase(join(folder, name), has, { inputs: [a], outputs: [there] });
    writeFileSync(join(folder, name, 'test_data_set_0', 'input_0.pb'), bytesOfElements(elements));
  }
  const results = await runCases(findCases([folder]), { jobs: 1, modes: ['tp 2 free'] });
  t.deepEqual(
    results.map((result) => [result.name, verdictOf(result)]),
    [
      ['empty', 'passed'],
      ['present', 'passed'],
      ['sequence', 'passed'],
      ['wrong', 'refused'],
    ],
    JSON.stringify(results),
  );
  t.regex(caseLines(results[2] ?? fail(t))[0] ?? '', /elements of: s, r$/);
  t.regex(results[3]?.modes[0]?.detail ?? '', /r\/length/);
});

test('values whose elements are no tensors are refused while the case is read, not as ONNX Runtime’s', async (t) => {
  const folder = temporary(t);
  const nested = { sequence_type: { elem_type: { sequence_type: { elem_type: FLOATS } } } };
  const optional = { optional_type: { elem_type: FLOATS } };
  for (const [name, type] of [
    ['nested', nested],
    ['optional', optional],
  ] as const) {
    const content = model({
      node: [node('Identity', ['s'], ['r'])],
      input: [{ name: 's', type }],
      output: [{ name: 'r', type }],
    });
    writeCase(join(folder, name), content, { inputs: [floats([1])], outputs: [floats([1])] });
    for (const file of ['input_0.pb', 'output_0.pb'])
      writeFileSync(join(folder, name, 'test_data_set_0', file), bytesOfElements([floats([1])]));
  }
  const results = await runCases(findCases([folder]), { jobs: 1 });
  t.deepEqual(refusedLines(results), ['    2  sequence or optional: nested, optional']);
  t.deepEqual(
    results.flatMap(({ modes }) => modes.map(({ mode, outcome }) => [mode, outcome])),
    [
      ['reading the case', 'refused'],
      ['reading the case', 'refused'],
    ],
  );
});

test('strings and sequences are refused by class', async (t) => {
  const folder = temporary(t);
  writeCase(join(folder, 'sequence'), negation);
  const set = join(folder, 'sequence', 'test_data_set_0');
  mkdirSync(set);
  // SequenceProto: elem_type = TENSOR, then an element in field 3.
  const element = bytesOf(floats([1, 2], [1, 2]));
  writeFileSync(join(set, 'input_0.pb'), Uint8Array.from([0x10, 1, 0x1a, element.length, ...element]));
  writeCase(join(folder, 'string'), negation);
  mkdirSync(join(folder, 'string', 'test_data_set_0'));
  // One string, 'a', in field 6.
  const text = Uint8Array.from([0x08, 1, 0x10, 8, 0x32, 1, 0x61]);
  writeFileSync(join(folder, 'string', 'test_data_set_0', 'input_0.pb'), text);
  const results = await runCases(findCases([folder]), { jobs: 1 });
  t.deepEqual(refusedLines(results), ['    1  sequence or optional: sequence', '    1  string: string']);
});

slow('a crash fails the mode it was in and nothing else; the results keep their order', async (t) => {
  const folder = temporary(t);
  const set = { inputs: [floats([1, -2], [1, 2])], outputs: [floats([-1, 2], [1, 2])] };
  for (const name of ['a', 'crash', 'native', 'slow', 'z']) writeCase(join(folder, name), negation, set);
  const told: string[] = [];
  const results = await runCases(findCases([folder]), {
    jobs: 2,
    script: CRASHING,
    limitMilliseconds: 6000,
    onResult: ({ name }) => told.push(name),
  });
  t.deepEqual(told, ['a', 'crash', 'native', 'slow', 'z']);
  t.deepEqual(results.map(verdictOf), ['passed', 'failed', 'refused', 'failed', 'passed']);
  const [, crash, native, slow] = results;
  t.is(crash?.modes.at(-1)?.mode, 'dp 2');
  t.regex(crash?.modes.at(-1)?.detail ?? '', /ended by SIGABRT|exit code/);
  t.is(native?.modes.at(-1)?.reason, 'onnxruntime crashes');
  t.regex(slow?.modes.at(-1)?.detail ?? '', /no answer for 6 s/);
  t.is(totalLine(results), '2 passed (0 sharded), 1 refused, 2 failed of 5');
  t.regex(modeTable(results).join('\n'), /dp 2 +0 +2 +0 +2/);
});

slow('ONNX’s light models: inputs are not stored, outputs lie beside the model', async (t) => {
  const folder = temporary(t);
  const small = model({ node: [node('Neg', ['x'], ['y'])], input: [value('x', [1, 4])], output: [value('y', [1, 4])] });
  writeFileSync(join(folder, 'light_small.onnx'), encodeModel(small));
  writeFileSync(join(folder, 'light_small_output_0.pb'), bytesOf(floats([-0, -0.25, -0.5, -0.75], [1, 4])));
  const results = await runCases(findCases([folder]), { jobs: 1, modes: ['dp 2'] });
  t.deepEqual(
    results.map((result) => [result.name, verdictOf(result)]),
    [['light_small', 'passed']],
  );
});

function fail(t: ExecutionContext): never {
  t.fail();
  throw new Error('there is no result');
}
