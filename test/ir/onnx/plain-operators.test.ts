/**
 * @file Every sample operator that has an expansion, in the plainest operators, against itself in ONNX Runtime.
 */
import test from 'ava';
import { writeOnnx } from '../../../src/ir/onnx/writer.js';
import { graphInPlainOperators } from '../../../src/ir/onnx/written-out.js';
import { constant, numbersOf } from '../../../src/ir/ops/constants.js';
import type { ConstantTensor } from '../../../src/program/values.js';
import { runOnnx } from '../../../src/runtime/reference.js';
import { operatorGraph } from '../../reference/one-operator.js';
import { CASES, operatorOfCase } from '../ops/cases.js';
import { difference, randomValues } from '../ops/values.js';

/** The newest operators, for which devices have no kernels. */
const UNKNOWN_TO_GPUS = ['Attention', 'RotaryEmbedding', 'Swish'];

test('operators in plainer ones compute the same', async (t) => {
  const tried = new Set<string>();
  for (const [number, sample] of CASES.entries()) {
    const graph = operatorGraph(operatorOfCase(sample));
    const plain = graphInPlainOperators(graph);
    if (!plain) continue;
    tried.add(sample.op);
    const given = Object.fromEntries(
      sample.inputs.flatMap((input, index) => {
        if (!input) return [];
        const { dtype, data, shape } = randomValues(input, number * 16 + index);
        return [[`x${index}`, constant(dtype, data, shape)] as const];
      }),
    );
    const [wanted, got] = [await runOnnx(writeOnnx(graph), given), await runOnnx(writeOnnx(plain), given)];
    for (const [name, value] of Object.entries(wanted)) {
      const other = got[name];
      const differs = other ? difference(numbers(other), numbers(value), sample.tolerance ?? 1e-4) : 'absent';
      t.is(differs, null, `${sample.op} ${name}`);
    }
  }
  for (const op of ['RMSNormalization', 'LogSoftmax', 'GroupNormalization', 'Softmax', ...UNKNOWN_TO_GPUS])
    t.true(tried.has(op), op);
});

function numbers(value: ConstantTensor) {
  return { ...value, data: numbersOf(value).map(Number) };
}
