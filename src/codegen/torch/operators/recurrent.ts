/**
 * @file LSTM, GRU and RNN in torch functions.
 */
import { has, numberIn, type TorchNode, type TorchOperator, textIn, torch, x } from './operator.js';

/** Without lengths of sequences, peepholes and activations other than the usual ones. */
function recurrent(node: TorchNode): string | null {
  const { attributes, op } = node;
  const isUsual = !['activation_alpha', 'activation_beta', 'clip'].some((name) => name in attributes);
  const activation = activationOf(node);
  const coupled = numberIn(node, 'input_forget', 0) !== 0;
  if (!isUsual || activation === null || coupled || has(node, 4) || has(node, 7)) return null;
  const given = [
    ...[x(node), x(node, 1), x(node, 2), has(node, 3) ? x(node, 3) : 'None'],
    ...(has(node, 5) ? [`h=${x(node, 5)}`] : []),
    ...(op === 'LSTM' && has(node, 6) ? [`c=${x(node, 6)}`] : []),
    ...(op === 'RNN' ? [`activation="${activation}"`] : []),
    ...(op === 'GRU' && numberIn(node, 'linear_before_reset', 0) ? ['late=True'] : []),
    ...(textIn(node, 'direction', 'forward') === 'reverse' ? ['reverse=True'] : []),
    ...(numberIn(node, 'layout', 0) ? ['batch_first=True'] : []),
  ];
  const text = `${op.toLowerCase()}(${given.join(', ')})`;
  const results = op === 'LSTM' ? 3 : 2;
  if (node.outputs.length === results) return text;
  return node.outputs.length === 1 ? `${text}[0]` : `${text}[:${node.outputs.length}]`;
}

const USUAL: Readonly<Record<string, readonly string[]>> = {
  LSTM: ['sigmoid', 'tanh', 'tanh'],
  GRU: ['sigmoid', 'tanh'],
  RNN: ['tanh'],
};

/** The first activation; null where torch's cells have other ones. */
function activationOf({ op, attributes }: TorchNode): string | null {
  const usual = USUAL[op] ?? [];
  const listed = attributes['activations'];
  const names = Array.isArray(listed) && listed.length > 0 ? listed.map((name) => String(name).toLowerCase()) : usual;
  const [first = 'tanh'] = names;
  const isOther = op === 'RNN' && first === 'relu' && names.every((name) => name === first);
  return isOther || names.every((name, index) => name === usual[index % usual.length]) ? first : null;
}

export const recurrentOperators: readonly TorchOperator[] = ['LSTM', 'GRU', 'RNN'].map((op) => torch(op, recurrent));

export const RECURRENT_HELPERS = {
  recurrent: `def recurrent(cell, x, parameters, states, reverse, batch_first):
    """One layer of ONNX's recurrent operators: its directions are a dimension of their own."""
    x = x.transpose(0, 1) if batch_first else x
    x = x.flip(0) if reverse else x
    count, size = states[0].shape[0], states[0].shape[2]
    hidden = states[0] if len(states) == 1 else states
    y, *last = cell(x, hidden, parameters, len(parameters) == 4 * count, 1, 0.0, False, count == 2, False)
    y = y.reshape(x.shape[0], x.shape[1], count, size)
    y = y.flip(0) if reverse else y
    if batch_first:
        return y.transpose(0, 1), *(state.transpose(0, 1) for state in last)
    return y.transpose(1, 2), *last
`,
  recurrent_states: `def recurrent_states(x, r, states, batch_first):
    """States to begin with, zeros where there are none."""
    zeros = x.new_zeros(r.shape[0], x.shape[0 if batch_first else 1], r.shape[2])
    given = [zeros if state is None else state.transpose(0, 1) if batch_first else state for state in states]
    return [state.contiguous() for state in given]
`,
  recurrent_parameters: `def recurrent_parameters(w, r, b, order):
    """Weights and biases of each direction, their gates in the order of torch."""

    def gates(rows):
        chunks = rows.chunk(len(order))
        return torch.cat([chunks[gate] for gate in order])

    parameters = []
    for number in range(w.shape[0]):
        parameters += [gates(w[number]), gates(r[number])]
        if b is not None:
            parameters += [gates(half) for half in b[number].chunk(2)]
    return parameters
`,
  lstm: `def lstm(x, w, r, b, h=None, c=None, reverse=False, batch_first=False):
    """ONNX's LSTM, whose gates are input, output, forget, cell; torch's are input, forget, cell, output."""
    states = recurrent_states(x, r, (h, c), batch_first)
    return recurrent(torch.lstm, x, recurrent_parameters(w, r, b, (0, 2, 3, 1)), states, reverse, batch_first)
`,
  rnn: `def rnn(x, w, r, b, h=None, activation="tanh", reverse=False, batch_first=False):
    """ONNX's RNN."""
    cell = torch.rnn_tanh if activation == "tanh" else torch.rnn_relu
    states = recurrent_states(x, r, (h,), batch_first)
    return recurrent(cell, x, recurrent_parameters(w, r, b, (0,)), states, reverse, batch_first)
`,
  gru_cell: `def gru_cell(x, hidden, parameters, has_biases, *_):
    """As torch.gru, but the reset gate is applied to the state and not to its product."""
    ys, last, each = [], [], len(parameters) // hidden.shape[0]
    for number, state in enumerate(hidden):
        w, r, *biases = parameters[number * each : (number + 1) * each]
        inputs, size = F.linear(x, w, sum(biases) if has_biases else None), state.shape[1]
        made = [None] * x.shape[0]
        for step in range(x.shape[0]) if number == 0 else reversed(range(x.shape[0])):
            gates = torch.sigmoid(inputs[step, :, : 2 * size] + F.linear(state, r[: 2 * size]))
            update, reset = gates.chunk(2, -1)
            new = torch.tanh(inputs[step, :, 2 * size :] + F.linear(reset * state, r[2 * size :]))
            made[step] = state = (1 - update) * new + update * state
        ys.append(torch.stack(made))
        last.append(state)
    return torch.cat(ys, -1), torch.stack(last)
`,
  gru: `def gru(x, w, r, b, h=None, late=False, reverse=False, batch_first=False):
    """ONNX's GRU, whose gates are update, reset, new; torch's are reset, update, new."""
    states = recurrent_states(x, r, (h,), batch_first)
    cell, order = (torch.gru, (1, 0, 2)) if late else (gru_cell, (0, 1, 2))
    return recurrent(cell, x, recurrent_parameters(w, r, b, order), states, reverse, batch_first)
`,
} as const;
