/**
 * @file ONNX Runtime's fused matmuls and convolutions (domain com.microsoft): with transposed operands and a scale, or with
 * bias, residual and activation after the sum. Operators after the sum keep the contraction from leaving partial sums, so with
 * them it is expanded.
 */
import { type Attributes, elementCount } from '../graph.js';
import type { OperatorEntry, OperatorView } from '../operator.js';
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
        infer: (view) => {
          const [left, right] = [matrices(view, 0), matrices(view, 1)];
          if (left.columns !== right.rows) throw mismatch(view, 'the contracted sizes differ');
          const batch = broadcast(view, [left.batch, right.batch]);
          const rows = operand(view, 0).shape.length > 1 ? [left.rows] : [];
          const columns = operand(view, 1).shape.length > 1 ? [right.columns] : [];
          return [{ dtype: operand(view, 0).dtype, shape: [...batch, ...rows, ...columns] }];
        },
        rule: (view) => `${matrixText(view, 0, 'm', 'k+')}, ${matrixText(view, 1, 'k+', 'n')} -> ${resultText(view)}`,
        linear: () => [[0], [1]],
        work: (view) => ({ flops: 2 * elementCount(result(view, 0).shape) * matrices(view, 0).columns }),
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
      infer: (view) => {
        checkActivation(view);
        return [gemmType(view)];
      },
      rule: (view) => gemmText(view, '%'),
      expansion: (view) => {
        const write = new ExpansionWriter();
        const dims = [['m'], ['n']];
        const operands = view.inputs.map((type, index) => (type ? `in${index}` : null));
        const sum = write.add('Gemm', operands, dims, only(view.attributes, ['alpha', 'beta', 'transA', 'transB']));
        addActivation(write, view, sum, dims, activationValues(view));
        return write.finish();
      },
      work: gemmWork,
      parameterInputs: [1, 2],
    }),
    (write) => gemmGradient(write, activationGradient(write, activationValues(write.view))),
  ),
  differentiable(
    entry({
      op: 'FusedConv',
      domain: DOMAIN,
      family: 'convolution',
      infer: (view) => {
        checkActivation(view);
        return convolution.infer({ ...view, inputs: view.inputs.slice(0, 3) });
      },
      rule: (view) => {
        const names = convolutionNames(view);
        const { operands, output } = channelTexts(view, names, (co, ci) => `${co} ${ci}`, '%');
        return bindChannels(`${[...operands, output].join(', ')} -> ${output}`, view, names.windows);
      },
      resize: resizeGroups,
      ...(convolution.bordered ? { bordered: convolution.bordered } : {}),
      expansion: (view) => {
        const write = new ExpansionWriter();
        const names = convolutionNames(view);
        const channels = numberOf(view, 'group', 1) > 1 ? ['g', 'co'] : ['co'];
        const dims = [['n'], channels, ...names.plain];
        const attributes = only(view.attributes, WINDOW);
        const biased = addBiased(write, view, names, { op: 'Conv', attributes });
        const sum = view.inputs[3] ? write.add('Add', [biased, 'in3'], dims) : biased;
        addActivation(write, view, sum, dims, integers(view, 'activation_params') ?? []);
        return write.finish();
      },
      work: (view) => convolution.work(view),
      parameterInputs: [1, 2],
      note: 'Positions inside a window are not sharded. Overlapping windows need a halo exchange with neighbours.',
    }),
    (write) => {
      const sumGradient = activationGradient(write, integers(write.view, 'activation_params') ?? []);
      convolutionGradient(write, sumGradient);
      if (write.wants(3)) write.become(3, sumGradient, operand(write.view, 3).dtype);
    },
  ),
];

const WINDOW = ['auto_pad', 'dilations', 'group', 'kernel_shape', 'pads', 'strides'];

function only(attributes: Attributes, names: readonly string[]): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([name]) => names.includes(name)));
}

function activationValues(view: OperatorView): readonly (number | undefined)[] {
  return ['activation_alpha', 'activation_beta'].map((name) => numberIn(view, name));
}

function numberIn(view: OperatorView, name: string): number | undefined {
  return view.attributes[name] === undefined ? undefined : numberOf(view, name, 0);
}

interface Matrices {
  readonly batch: readonly number[];
  readonly rows: number;
  readonly columns: number;
}

/** An operand's matrices as they are multiplied: transposed, or with their rows before the batch, if the attributes say so. */
function matrices(view: OperatorView, index: number): Matrices {
  const letter = index === 0 ? 'A' : 'B';
  const { shape } = ofRank(view, index, 1, true);
  if (shape.length === 1)
    return { batch: [], rows: index === 0 ? 1 : (shape[0] ?? 1), columns: index === 0 ? (shape[0] ?? 1) : 1 };
  const outside = numberOf(view, `transBatch${letter}`, 0) !== 0;
  const batch = outside ? shape.slice(1, -1) : shape.slice(0, -2);
  const [rows = 1, columns = 1] = [outside ? shape[0] : shape.at(-2), shape.at(-1)];
  const flips = numberOf(view, `trans${letter}`, 0) !== 0;
  return flips ? { batch, rows: columns, columns: rows } : { batch, rows, columns };
}

function matrixText(view: OperatorView, index: number, rows: string, columns: string): string {
  const letter = index === 0 ? 'A' : 'B';
  if (operand(view, index).shape.length === 1) return index === 0 ? columns : rows;
  const [first, second] = numberOf(view, `trans${letter}`, 0) ? [columns, rows] : [rows, columns];
  return numberOf(view, `transBatch${letter}`, 0) ? `${first} *b ${second}` : `*b ${first} ${second}`;
}

/** The gradient of C = α A′ B′, as an einsum. */
function fusedMatmulGradient(write: OperatorGradient): void {
  const { view } = write;
  const ranks = [0, 1].map((index) => operand(view, index).shape.length);
  const batch = dimensionNames(Math.max(...ranks, 2) - 2, 'b');
  const lettersOf = (text: string, rank: number) =>
    text
      .split(' ')
      .flatMap((name) =>
        name === '*b' ? batch.slice(batch.length - Math.max(0, rank - 2)) : name === '' ? [] : [name],
      );
  const [left = 2, right = 2] = ranks;
  const operands = [lettersOf(matrixText(view, 0, 'm', 'k'), left), lettersOf(matrixText(view, 1, 'k', 'n'), right)];
  const alpha = numberOf(view, 'alpha', 1);
  const scaled = () => write.add('Mul', ['grad0', write.scalarLike(0, alpha)]);
  const gradient = alpha === 1 ? 'grad0' : scaled();
  addEinsumGradients(write, operands, lettersOf(resultText(view), batch.length + 2), gradient);
}

function resultText(view: OperatorView): string {
  const side = (index: number, name: string) => (operand(view, index).shape.length === 1 ? '' : name);
  return `*b ${side(0, 'm')} ${side(1, 'n')}`.trim();
}
