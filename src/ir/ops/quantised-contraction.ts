/**
 * @file ONNX Runtime's matmuls of quantised numbers (domain com.microsoft). Those with floating-point results are expanded if
 * the contracted dimension is sharded: integers are summed exactly, then scaled.
 */
import type { DimensionFactors } from '../factor-rule.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { gemmWork, matmulWork, productType } from './contraction.js';
import { entry } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { dimensionNames, mismatch, numberOf, ofRank, operand, result } from './operands.js';
import { differentiable } from './operator-gradient.js';
import { scaleText } from './quantisation.js';

const DOMAIN = 'com.microsoft';
const NOTE = 'The contracted dimension is not sharded: sums are rounded to the quantised type immediately.';

const ENTRIES: readonly OperatorEntry[] = [
  entry({
    op: 'MatMulInteger16',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    infer: (operator) => [productType(operator, 1, 'int32')],
    rule: '*b m k+, *b k+ n -> *b m n',
    linear: () => [[0], [1]],
    work: matmulWork,
    parameterInputs: [1],
  }),
  entry({
    op: 'MatMulIntegerToFloat',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    infer: (operator) => [productType(operator, 1, operand(operator, 2).dtype)],
    rule: (operator) => {
      const scales = `${scaleText(operator, 2, '1')}, ${scaleText(operator, 3, 'n')}`;
      const zeros = `${scaleText(operator, 4, '1')}, ${scaleText(operator, 5, 'n')}`;
      return `*b m k%, *b k% n, ${scales}, ${zeros}, n -> *b m n`;
    },
    expansion: (operator) => {
      const write = new ExpansionWriter();
      const dims = resultDimensions(operator);
      const given = (index: number) => (operator.inputs[index] ? `in${index}` : null);
      const sum = write.add('MatMulInteger', ['in0', 'in1', given(4), given(5)], dims);
      const scale = write.add('Mul', ['in2', 'in3'], scaleDimensions(operator, 3));
      scaled(write, operator, sum, scale, given(6));
      return write.finish();
    },
    work: matmulWork,
    parameterInputs: [1, 3, 5, 6],
  }),
  entry({
    op: 'DynamicQuantizeMatMul',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    infer: (operator) => [productType(operator, 1, 'float32')],
    rule: (operator) => {
      const column = `${scaleText(operator, 2, 'n')}, ${scaleText(operator, 3, 'n')}`;
      // The scale of the left operand is that of its largest value: finding it reads all of its dimensions.
      return `*b% m% k%, *b% k% n, ${column}, n -> *b% m% n`;
    },
    expansion: (operator) => {
      const write = new ExpansionWriter();
      const dims = resultDimensions(operator);
      const given = (index: number) => (operator.inputs[index] ? `in${index}` : null);
      const bytes = [...dims.slice(0, -1), ['k']];
      const [values, scale, zero] = ['quantised', 'scale', 'zero'];
      write.addAll('DynamicQuantizeLinear', ['in0'], [values, scale, zero], [bytes, [], []]);
      const sum = write.add('MatMulInteger', [values, 'in1', zero, given(3)], dims);
      scaled(write, operator, sum, write.add('Mul', [scale, 'in2'], scaleDimensions(operator, 2)), given(4));
      return write.finish();
    },
    work: matmulWork,
    parameterInputs: [1, 2, 3, 4],
  }),
  entry({
    op: 'QGemm',
    domain: DOMAIN,
    family: 'contraction',
    precision: 'full',
    infer: (operator) => {
      const [a, b] = [ofRank(operator, 0, 2), ofRank(operator, 3, 2)];
      const [m = 1, k] = numberOf(operator, 'transA', 0) ? [...a.shape].reverse() : a.shape;
      const [l, n = 1] = numberOf(operator, 'transB', 0) ? [...b.shape].reverse() : b.shape;
      if (k !== l) throw mismatch(operator, 'the contracted sizes differ');
      return [{ dtype: operator.inputs[8]?.dtype ?? 'float32', shape: [m, n] }];
    },
    rule: (operator) => {
      const a = numberOf(operator, 'transA', 0) ? 'k! m' : 'm k!';
      const b = numberOf(operator, 'transB', 0) ? 'n k!' : 'k! n';
      const bias = ['', 'n', 'm n'][operator.inputs[6]?.shape.length ?? 0] ?? '';
      const scales = (index: number, name: string) =>
        `${scaleText(operator, index, name)}, ${scaleText(operator, index + 1, name)}`;
      return `${a}, ${scales(1, '1')}, ${b}, ${scales(4, 'n')}, ${bias}, ${scales(7, '1')} -> m n`;
    },
    work: gemmWork,
    parameterInputs: [3, 4, 5, 6],
    note: NOTE,
  }),
];

const QUANTISED = 'its operands are whole numbers, or are made so: a step function';

export const quantisedContractionEntries: readonly OperatorEntry[] = ENTRIES.map((item) =>
  differentiable(item, QUANTISED),
);

function resultDimensions(operator: Operator): readonly DimensionFactors[] {
  return [...dimensionNames(result(operator, 0).shape.length - 2, 'b'), 'm', 'n'].map((name) => [name]);
}

/** Dimensions of a scale that is one, or one per column. */
function scaleDimensions(operator: Operator, index: number): readonly DimensionFactors[] {
  const { shape } = operand(operator, index);
  return shape.map((size) => (size === 1 && result(operator, 0).shape.at(-1) !== 1 ? [] : ['n']));
}

/** The sum as floating-point numbers, times its scale, plus the bias. */
function scaled(write: ExpansionWriter, operator: Operator, sum: string, scale: string, bias: string | null): void {
  const dims = resultDimensions(operator);
  const floating = write.cast(sum, dims, result(operator, 0).dtype);
  const grown = write.add('Mul', [floating, scale], dims, {}, bias ? undefined : 'out0');
  if (bias) write.add('Add', [grown, bias], dims, {}, 'out0');
}
