/**
 * @file ONNX Runtime's normalisations that are fused with the operators before them: the residual sum, or a BERT's three
 * embeddings (domain com.microsoft). Sharded along the normalised dimension or the vocabulary, they are expanded again.
 */
import type { DimensionFactors } from '../factor-rule.js';
import type { TensorType } from '../graph.js';
import type { Expansion, Operator, OperatorEntry } from '../operator.js';
import { entry, perInputElement } from './entry.js';
import { ExpansionWriter } from './expansion.js';
import { gatedGradient, skipGradient } from './fused-normalisation-gradient.js';
import { EMBEDDED, embeddingSum } from './fused-normalisation-tables.js';
import { broadcast, dimensionNames, mismatch, numberOf, ofRank, operand } from './operands.js';
import { differentiable, throughExpansion } from './operator-gradient.js';

const DOMAIN = 'com.microsoft';

export const fusedNormalisationEntries: readonly OperatorEntry[] = [
  skipEntry('SkipLayerNormalization', { scales: [2, 3], bias: 4, plain: 'LayerNormalization' }),
  skipEntry('SkipSimplifiedLayerNormalization', { scales: [2], bias: 3, plain: 'RMSNormalization' }),
  differentiable(
    entry({
      op: 'GatedRMSNorm',
      domain: DOMAIN,
      family: 'normalisation',
      infer: (operator) => {
        const type = operand(operator, 0);
        if ((type.shape.at(-1) ?? 1) % (ofRank(operator, 1, 1).shape[0] ?? 1) !== 0)
          throw mismatch(operator, 'its last dimension is not a multiple of its scale');
        return [type];
      },
      rule: '*a (h c!), c!, *a (h c!) -> *a (h c!)',
      work: perInputElement(12),
      parameterInputs: [1],
      note: 'The normalised features are not sharded.',
    }),
    gatedGradient,
  ),
  throughExpansion({
    ...entry({
      op: 'EmbedLayerNormalization',
      domain: DOMAIN,
      family: 'normalisation',
      infer: (operator) => embedded(operator, 2),
      rule: (operator) => {
        const tables = `v% d%, ${operator.inputs[8] ? 'p%' : 'p!'} d%, z% d%`;
        // Positions that are not given are counted from the first one, and a mask is counted whole.
        const s = operator.inputs[8] && !operator.outputs[1] ? 's' : 's%';
        return `b ${s}, b ${s}, ${tables}, d%, d%, b ${s}, b ${s} -> b ${s} d%, b, b ${s} d%`;
      },
      work: perInputElement(1),
      parameterInputs: [2, 3, 4, 5, 6],
      note: 'Without position_ids the table of positions is not sharded: its first rows are taken.',
    }),
    expansion: embedExpansion,
  }),
  differentiable(
    entry({
      op: 'QEmbedLayerNormalization',
      domain: DOMAIN,
      family: 'normalisation',
      infer: (operator) => embedded(operator, 2, 'float32'),
      rule: (operator) => {
        const scalars = operator.inputs.slice(8).map((type) => (type ? type.shape.map(() => '1').join(' ') : '_'));
        return `b s!, b s!, v! d!, p! d!, z! d!, d!, d!, b s!, ${scalars.join(', ')} -> b s! d!, b`;
      },
      work: perInputElement(1),
      parameterInputs: [2, 3, 4, 5, 6],
      note: 'Only samples are sharded: positions are counted from the first one, and each table has one scale.',
    }),
    'its tables are quantised',
  ),
];

interface SkipResults {
  /** Operands that scale and shift. */
  readonly scales: readonly number[];
  /** Operand that is added before. */
  readonly bias: number;
  /** The normalisation after the sum. */
  readonly plain: 'LayerNormalization' | 'RMSNormalization';
}

/** Results: the normalised sum, its mean and inverse deviation (made in training only), the sum. */
function skipEntry(op: string, { scales, bias, plain }: SkipResults): OperatorEntry {
  const fused = entry({
    op,
    domain: DOMAIN,
    family: 'normalisation',
    region: plain,
    infer: (operator) => {
      const [x, skip] = [ofRank(operator, 0, 2, true), operand(operator, 1)];
      if (broadcast(operator, [x.shape, skip.shape]).join() !== x.shape.join())
        throw mismatch(operator, 'the addend must have the shape of the input');
      for (const index of [...scales, bias])
        if (operator.inputs[index] && ofRank(operator, index, 1).shape[0] !== x.shape.at(-1))
          throw mismatch(operator, `operand ${index} does not fit the normalised dimension`);
      const statistics: TensorType = { dtype: 'float32', shape: [...x.shape.slice(0, -1), 1] };
      return [x, statistics, statistics, x].slice(0, operator.outputCount);
    },
    rule: (operator) => {
      const names = dimensionNames(operand(operator, 0).shape.length - 1);
      const skip = [...names, 'd%'].slice(-operand(operator, 1).shape.length).join(' ');
      const rest = operator.inputs.slice(2).map((type) => (type ? 'd%' : '_'));
      const [whole, reduced] = [[...names, 'd%'].join(' '), [...names, '1'].join(' ')];
      return `${[whole, skip, ...rest].join(', ')} -> ${[whole, reduced, reduced, whole].join(', ')}`;
    },
    expansion: (operator) => {
      const write = new ExpansionWriter();
      const rank = operand(operator, 0).shape.length;
      const dims: readonly DimensionFactors[] = [...dimensionNames(rank - 1), 'd'].map((name) => [name]);
      const added = operator.inputs[bias] ? write.add('Add', ['in0', 'in1'], dims) : null;
      const asked = operator.outputs[3] ? 'out3' : undefined;
      const sum = write.add('Add', added ? [added, `in${bias}`] : ['in0', 'in1'], dims, {}, asked);
      const operands = [sum, ...scales.map((index) => (operator.inputs[index] ? `in${index}` : null))];
      const epsilon = numberOf(operator, 'epsilon', 1e-12);
      write.add(plain, operands, dims, { axis: rank - 1, epsilon }, 'out0');
      return write.finish();
    },
    work: perInputElement(9),
    parameterInputs: [...scales, bias],
  });
  return differentiable(fused, skipGradient({ isCentred: plain === 'LayerNormalization', bias }));
}

/** Results of an embedding: rows, how many positions count, rows before normalisation. */
function embedded(operator: Operator, table: number, dtype?: TensorType['dtype']): readonly TensorType[] {
  const { shape } = ofRank(operator, 0, 2);
  const rows = ofRank(operator, table, 2);
  const result: TensorType = { dtype: dtype ?? rows.dtype, shape: [...shape, rows.shape[1] ?? 1] };
  const count: TensorType = { dtype: 'int32', shape: shape.slice(0, 1) };
  return [result, count, result].slice(0, operator.outputCount);
}

function embedExpansion(operator: Operator): Expansion {
  const write = new ExpansionWriter();
  const sum = embeddingSum(write, operator, operator.outputs[2] ? 'out2' : undefined);
  const attributes = { axis: 2, epsilon: numberOf(operator, 'epsilon', 1e-12) };
  write.add('LayerNormalization', [sum, 'in5', 'in6'], EMBEDDED, attributes, 'out0');
  if (!operator.outputs[1]) return write.finish();
  if (operator.inputs[7]) {
    write.add('ReduceSum', ['in7'], [['b']], { axes: [1], keepdims: 0 }, 'out1');
  } else {
    const zero = write.add('Sub', ['in0', 'in0'], [['b'], ['s']]);
    const counted = write.cast(zero, [['b'], ['s']], 'int32');
    write.add('ReduceSum', [counted], [['b']], { axes: [1], keepdims: 0 }, 'out1');
  }
  return write.finish();
}
