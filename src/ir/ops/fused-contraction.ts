/**
 * @file ONNX Runtime's fused matmuls and convolutions (domain com.microsoft): with transposed operands and a scale, or with
 * bias, residual and activation after the sum. Operators after the sum keep the contraction from leaving partial sums, so with
 * them it is expanded.
 */
import { type Attributes, elementCount } from '../graph.js';
import type { Operator, OperatorEntry } from '../operator.js';
import { activationGradient, addActivation, checkActivation } from './activation.js';
import { gemmText, gemmType, gemmWork } from './contraction.js';
import { gemmGradient } from './contraction-gradient.js';
import {
  addBiased,
  bindChannels,
  channelTexts,
  convolution,
  convolutionGradient,
  convolutionNames,
  resizeGroups,
} from './convolution.js';
import { addEinsumGradients } from './einsum-gradient.js';
import { entry } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { broadcast, dimensionNames, integers, mismatch, numberOf, ofRank, operand, result } from './operands.js';
import { differentiable, type OperatorGradient } from './operator-gradient.js';

const DOMAIN = 'com.microsoft';

export const fusedContractionEntries: readonly OperatorEntry[] = [
  ...['FusedMatMul', 'TransposeMatMul'].map((op) =>
    differentiable(
      entry({
        op,
        domain: DOMAIN,
        family: 'contraction',
        infer: (operator) => {
          const [left, right] = [matrices(operator, 0), matrices(operator, 1)];
          if (left.columns !== right.rows) throw mismatch(operator, 'the contracted sizes differ');
          const batch = broadcast(operator, [left.batch, right.batch]);
          const rows = operand(operator, 0).shape.length > 1 ? [left.rows] : [];
          const columns = operand(operator, 1).shape.length > 1 ? [right.columns] : [];
          return [{ dtype: operand(operator, 0).dtype, shape: [...batch, ...rows, ...columns] }];
        },
        rule: (operator) =>
          `${matrixText(operator, 0, 'm', 'k+')}, ${matrixText(operator, 1, 'k+', 'n')} -> ${resultText(operator)}`,
        linear: () => [[0], [1]],
        work: (operator) => ({ flops: 2 * elementCount(result(operator, 0).shape) * matrices(operator, 0).columns }),
      }),
      fusedMatmulGradient,
    ),
  ),
  differentiable(
    entry({
      op: 'FusedGemm',
      domain: DOMAIN,
      family: 'contraction',
      attributes: { activation_alpha: 'float', activation_beta: 'float' },
      infer: (operator) => {
        checkActivation(operator);
        return [gemmType(operator)];
      },
      rule: (operator) => gemmText(operator, '%'),
      expansion: (operator) => {
        const write = new ExpansionWriter();
        const dims = [['m'], ['n']];
        const operands = operator.inputs.map((type, index) => (type ? `in${index}` : null));
        const sum = write.add('Gemm', operands, dims, only(operator.attributes, ['alpha', 'beta', 'transA', 'transB']));
        addActivation(write, operator, sum, dims, activationValues(operator));
        return write.finish();
      },
      work: gemmWork,
      parameterInputs: [1, 2],
    }),
    (write) => gemmGradient(write, activationGradient(write, activationValues(write.operator))),
  ),
  differentiable(
    entry({
      op: 'FusedConv',
      domain: DOMAIN,
      family: 'convolution',
      infer: (operator) => {
        checkActivation(operator);
        return convolution.infer({ ...operator, inputs: operator.inputs.slice(0, 3) });
      },
      rule: (operator) => {
        const names = convolutionNames(operator);
        const { operands, output } = channelTexts(operator, names, (co, ci) => `${co} ${ci}`, '%');
        return bindChannels(`${[...operands, output].join(', ')} -> ${output}`, operator, names.windows);
      },
      resize: resizeGroups,
      ...(convolution.bordered ? { bordered: convolution.bordered } : {}),
      expansion: (operator) => {
        const write = new ExpansionWriter();
        const names = convolutionNames(operator);
        const channels = numberOf(operator, 'group', 1) > 1 ? ['g', 'co'] : ['co'];
        const dims = [['n'], channels, ...names.plain];
        const attributes = only(operator.attributes, WINDOW);
        const biased = addBiased(write, operator, names, { op: 'Conv', attributes });
        const sum = operator.inputs[3] ? write.add('Add', [biased, 'in3'], dims) : biased;
        addActivation(write, operator, sum, dims, integers(operator, 'activation_params') ?? []);
        return write.finish();
      },
      work: (operator) => convolution.work(operator),
      parameterInputs: [1, 2],
      note: 'Positions inside a window are not sharded. Overlapping windows need a halo exchange with neighbours.',
    }),
    (write) => {
      const sumGradient = activationGradient(write, integers(write.operator, 'activation_params') ?? []);
      convolutionGradient(write, sumGradient);
      if (write.wants(3)) write.become(3, sumGradient, operand(write.operator, 3).dtype);
    },
  ),
];

const WINDOW = ['auto_pad', 'dilations', 'group', 'kernel_shape', 'pads', 'strides'];

function only(attributes: Attributes, names: readonly string[]): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => names.includes(name)));
}

function activationValues(operator: Operator): readonly (number | undefined)[] {
  return ['activation_alpha', 'activation_beta'].map((name) => numberIn(operator, name));
}

function numberIn(operator: Operator, name: string): number | undefined {
  return operator.attributes[name] === undefined ? undefined : numberOf(operator, name, 0);
}

interface Matrices {
  readonly batch: readonly number[];
  readonly rows: number;
  readonly columns: number;
}

/** An operand's matrices as they are multiplied: transposed, or with their rows before the batch, if the attributes say so. */
function matrices(operator: Operator, index: number): Matrices {
  const letter = index === 0 ? 'A' : 'B';
  const { shape } = ofRank(operator, index, 1, true);
  if (shape.length === 1)
    return { batch: [], rows: index === 0 ? 1 : (shape[0] ?? 1), columns: index === 0 ? (shape[0] ?? 1) : 1 };
  const outside = numberOf(operator, `transBatch${letter}`, 0) !== 0;
  const batch = outside ? shape.slice(1, -1) : shape.slice(0, -2);
  const [rows = 1, columns = 1] = [outside ? shape[0] : shape.at(-2), shape.at(-1)];
  const flips = numberOf(operator, `trans${letter}`, 0) !== 0;
  return flips ? { batch, rows: columns, columns: rows } : { batch, rows, columns };
}

function matrixText(operator: Operator, index: number, rows: string, columns: string): string {
  const letter = index === 0 ? 'A' : 'B';
  if (operand(operator, index).shape.length === 1) return index === 0 ? columns : rows;
  const [first, second] = numberOf(operator, `trans${letter}`, 0) ? [columns, rows] : [rows, columns];
  return numberOf(operator, `transBatch${letter}`, 0) ? `${first} *b ${second}` : `*b ${first} ${second}`;
}

/** The gradient of C = α A′ B′, as an einsum. */
function fusedMatmulGradient(write: OperatorGradient): void {
  const { operator } = write;
  const ranks = [0, 1].map((index) => operand(operator, index).shape.length);
  const batch = dimensionNames(Math.max(...ranks, 2) - 2, 'b');
  const lettersOf = (text: string, rank: number) =>
    text
      .split(' ')
      .flatMap((name) =>
        name === '*b' ? batch.slice(batch.length - Math.max(0, rank - 2)) : name === '' ? [] : [name],
      );
  const [left = 2, right = 2] = ranks;
  const operands = [
    lettersOf(matrixText(operator, 0, 'm', 'k'), left),
    lettersOf(matrixText(operator, 1, 'k', 'n'), right),
  ];
  const alpha = numberOf(operator, 'alpha', 1);
  const scaled = () => write.add('Mul', ['grad0', write.scalarLike(0, alpha)]);
  const gradient = alpha === 1 ? 'grad0' : scaled();
  addEinsumGradients(write, operands, lettersOf(resultText(operator), batch.length + 2), gradient);
}

function resultText(operator: Operator): string {
  const side = (index: number, name: string) => (operand(operator, index).shape.length === 1 ? '' : name);
  return `*b ${side(0, 'm')} ${side(1, 'n')}`.trim();
}
