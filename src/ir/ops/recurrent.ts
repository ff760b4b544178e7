/**
 * @file LSTM, GRU, RNN: the batch passes. Time is a chain of steps, and every step's hidden state needs all of the one
 * before it, so time, features and hidden units stay whole.
 */
import { elementCount, type TensorType } from '../graph.js';
import type { OperatorEntry } from '../operator.js';
import { entry, unsharded } from './entry.js';
import { mismatch, numberOf, ofRank, operand, text } from './operands.js';
import { withGradients } from './operator-gradient.js';
import { RECURRENT_GRADIENTS } from './recurrent-gradient.js';

/** Operators with the number of gates that their weights stack and whether they keep a cell state. */
const ROWS = [
  { op: 'RNN', gates: 1, cell: false },
  { op: 'GRU', gates: 3, cell: false },
  { op: 'LSTM', gates: 4, cell: true },
] as const;

const entries: readonly OperatorEntry[] = [
  ...ROWS.map(({ op, gates, cell }) =>
    entry({
      op,
      family: 'recurrent',
      infer: (operator) => {
        const x = ofRank(operator, 0, 3);
        const [w, r] = [ofRank(operator, 1, 3), ofRank(operator, 2, 3)];
        const batchFirst = numberOf(operator, 'layout', 0) === 1;
        const [first = 1, second = 1, features = 1] = x.shape;
        const [steps, batch] = batchFirst ? [second, first] : [first, second];
        const hidden = r.shape[2] ?? 1;
        const directions = text(operator, 'direction', 'forward') === 'bidirectional' ? 2 : 1;
        if (w.shape.join() !== [directions, gates * hidden, features].join())
          throw mismatch(operator, `its weights must have shape [${directions}, ${gates * hidden}, ${features}]`);
        const last: TensorType = {
          dtype: x.dtype,
          shape: batchFirst ? [batch, directions, hidden] : [directions, batch, hidden],
        };
        const all: TensorType = {
          dtype: x.dtype,
          shape: batchFirst ? [batch, steps, directions, hidden] : [steps, directions, batch, hidden],
        };
        return [all, last, last].slice(0, operator.outputCount);
      },
      rule: (operator) => {
        const batchFirst = numberOf(operator, 'layout', 0) === 1;
        const sequence = batchFirst ? 'n t! x!' : 't! n x!';
        const state = batchFirst ? 'n d! h!' : 'd! n h!';
        const all = batchFirst ? 'n t! d! h!' : 't! d! n h!';
        const operands = [sequence, 'd! w! x!', 'd! w! h!', 'd! v!', 'n', state, ...(cell ? [state, 'd! p!'] : [])];
        return `${operands.join(', ')} -> ${[all, state, ...(cell ? [state] : [])].join(', ')}`;
      },
      work: (operator) => {
        const [first = 1, second = 1] = operand(operator, 0).shape;
        const weights = elementCount(operand(operator, 1).shape) + elementCount(operand(operator, 2).shape);
        return { flops: 2 * first * second * weights };
      },
      parameterInputs: [1, 2, 3, 7],
      note: 'Only the batch is sharded: each step needs the unsharded hidden state of the previous step.',
    }),
  ),
  entry({
    op: 'DynamicQuantizeLSTM',
    domain: 'com.microsoft',
    family: 'recurrent',
    infer: (operator) => {
      const [steps = 1, batch = 1, features = 1] = ofRank(operator, 0, 3).shape;
      const [directions = 1, width = 1, gates = 1] = ofRank(operator, 1, 3).shape;
      const hidden = ofRank(operator, 2, 3).shape[1] ?? 1;
      if (width !== features || gates !== 4 * hidden)
        throw mismatch(operator, `its weights must have shape [${directions}, ${features}, ${4 * hidden}]`);
      const { dtype } = operand(operator, 0);
      const last: TensorType = { dtype, shape: [directions, batch, hidden] };
      return [{ dtype, shape: [steps, directions, batch, hidden] }, last, last].slice(0, operator.outputCount);
    },
    rule: unsharded,
    work: (operator) => {
      const [steps = 1, batch = 1] = operand(operator, 0).shape;
      const weights = elementCount(operand(operator, 1).shape) + elementCount(operand(operator, 2).shape);
      return { flops: 2 * steps * batch * weights };
    },
    parameterInputs: [1, 2, 3],
    note: 'Replicated: every step is quantised by the largest value of the batch.',
  }),
];

export const recurrentEntries = withGradients(entries, RECURRENT_GRADIENTS);
