import { getHeapStatistics } from 'node:v8';
import test from 'ava';
import { failureJson, failureOf, failureText } from '../../src/cli/failure.js';
import { AutoparError } from '../../src/ir/error.js';

const CIRCUMSTANCES = { version: '1.2.3', line: ['compile', 'x.onnx'], interrupted: false };

test('an error for the user: sentence, place, remedy', (t) => {
  const error = new AutoparError(
    'not-onnx',
    'input',
    'it is cut',
    { file: 'x.onnx', node: 'n', tensor: 't' },
    'copy it again',
  );
  const failure = failureOf(error, CIRCUMSTANCES);
  t.is(failureText(failure), 'error[not-onnx]: it is cut\n  in x.onnx, node n, tensor t\n  hint: copy it again');
  t.deepEqual(failureJson(failure), {
    error: {
      code: 'not-onnx',
      message: 'it is cut',
      where: { file: 'x.onnx', node: 'n', tensor: 't' },
      hint: 'copy it again',
    },
  });
  t.is(failure.exit, 'input');
});

test('a line number joins its file', (t) => {
  const failure = failureOf(new AutoparError('bad-yaml', 'input', 'y', { file: 'a.yaml', line: 3 }), CIRCUMSTANCES);
  t.is(failureText(failure), 'error[bad-yaml]: y\n  in a.yaml:3');
});

test('anything else is our fault, with what to report and no stack trace', (t) => {
  const failure = failureOf(new TypeError('x is not a function'), CIRCUMSTANCES);
  t.is(failure.exit, 'fault');
  t.regex(failureText(failure), /internal error of autopar.*x is not a function/);
  t.regex(failureText(failure), /autopar 1\.2\.3, Node v\d+.*`autopar compile x\.onnx`/);
  t.notRegex(failureText(failure), /\n\s+at /);
});

test('a full disk and a folder that cannot be written are no fault', (t) => {
  const full = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC', syscall: 'write' });
  t.is(failureOf(full, CIRCUMSTANCES).exit, 'cannotWrite');
  const denied = Object.assign(new Error('EACCES: permission denied'), {
    code: 'EACCES',
    syscall: 'mkdir',
    path: '/x',
  });
  const failure = failureOf(denied, CIRCUMSTANCES);
  t.is(failure.exit, 'cannotWrite');
  t.deepEqual(failure.where, { file: '/x' });
  const missing = Object.assign(new Error('ENOENT'), { code: 'ENOENT', syscall: 'open' });
  t.is(failureOf(missing, CIRCUMSTANCES).exit, 'fault');
});

test('an interruption hides whatever it broke', (t) => {
  t.is(failureOf(new Error('half way'), { ...CIRCUMSTANCES, interrupted: true }).exit, 'interrupted');
  t.is(failureOf(new DOMException('aborted', 'AbortError'), CIRCUMSTANCES).exit, 'interrupted');
});

test('memory that runs out is no internal error', (t) => {
  for (const error of [
    new RangeError('Array buffer allocation failed'),
    new Error('std::bad_alloc'),
    new Error('Non-zero status code: Failed to allocate memory for requested buffer of size 4096'),
  ]) {
    const { exit, code, message } = failureOf(error, CIRCUMSTANCES);
    t.is(exit, 'noPlan');
    t.is(code, 'out-of-memory');
    t.regex(message, /autopar holds [\d.]+ [GM]B, and .* of .* are free/);
  }
});

test('a thread whose heap is full gives the limit and how to raise it', (t) => {
  const error = Object.assign(new Error('Worker terminated'), { code: 'ERR_WORKER_OUT_OF_MEMORY' });
  const { exit, code, message, hint } = failureOf(error, CIRCUMSTANCES);
  t.is(exit, 'noPlan');
  t.is(code, 'out-of-memory');
  const [, limit = ''] = /^the JavaScript heap reached its limit of (\d+) MiB; [\d.]+ GB of/.exec(message) ?? [];
  t.is(Number(limit), Math.round(getHeapStatistics().heap_size_limit / 2 ** 20));
  t.regex(hint ?? '', new RegExp(`^NODE_OPTIONS=--max-old-space-size=${2 * Number(limit)} raises`));
});
