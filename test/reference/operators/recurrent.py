"""LSTM, GRU and RNN, step by step as ONNX's equations have them."""

import torch
import torch.nn.functional as F

from .registry import op

ACTIVATIONS = {
    "sigmoid": lambda x, alpha, beta: torch.sigmoid(x),
    "tanh": lambda x, alpha, beta: torch.tanh(x),
    "relu": lambda x, alpha, beta: torch.relu(x),
    "affine": lambda x, alpha, beta: (1.0 if alpha is None else alpha) * x + (0.0 if beta is None else beta),
    "leakyrelu": lambda x, alpha, beta: F.leaky_relu(x, 0.01 if alpha is None else alpha),
    "thresholdedrelu": lambda x, alpha, beta: x * (x > (1.0 if alpha is None else alpha)),
    "scaledtanh": lambda x, alpha, beta: (1.0 if alpha is None else alpha)
    * torch.tanh((1.0 if beta is None else beta) * x),
    "hardsigmoid": lambda x, alpha, beta: torch.clamp(
        (0.2 if alpha is None else alpha) * x + (0.5 if beta is None else beta), 0, 1
    ),
    "elu": lambda x, alpha, beta: F.elu(x, 1.0 if alpha is None else alpha),
    "softsign": lambda x, alpha, beta: F.softsign(x),
    "softplus": lambda x, alpha, beta: F.softplus(x, threshold=40),
}
TAKES_ALPHA = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
TAKES_BETA = {"affine", "scaledtanh", "hardsigmoid"}


def activations_of(node, defaults, directions):
    names = [name.lower() for name in (node.get("activations") or defaults * directions)]
    alphas, betas = list(node.get("activation_alpha") or []), list(node.get("activation_beta") or [])
    made = []
    for name in names:
        alpha = alphas.pop(0) if name in TAKES_ALPHA and alphas else None
        beta = betas.pop(0) if name in TAKES_BETA and betas else None
        made.append(lambda x, name=name, alpha=alpha, beta=beta: ACTIVATIONS[name](x, alpha, beta))
    width = len(defaults)
    return [made[width * at : width * (at + 1)] for at in range(directions)]


def sequence(node, x, w, r, b, lengths, states, gates, defaults, cell):
    """Runs a cell along time in each direction; `states` are the first ones, [directions, batch, hidden] or None."""
    batch_first = bool(node.get("layout", 0))
    x = x.transpose(0, 1) if batch_first else x
    directions, hidden = r.shape[0], r.shape[2]
    functions = activations_of(node, defaults, directions)
    steps, batch = x.shape[0], x.shape[1]
    bound = node.get("clip")
    limit = (lambda value: value) if bound is None else (lambda value: torch.clamp(value, -bound, bound))
    outputs, lasts = [], []
    for at in range(directions):
        backward = at == 1 or node.get("direction", "forward") == "reverse"
        now = [
            torch.zeros(batch, hidden, dtype=x.dtype)
            if state is None
            else (state.transpose(0, 1) if batch_first else state)[at]
            for state in states
        ]
        bias = torch.zeros(2 * gates * hidden, dtype=x.dtype) if b is None else b[at]
        made = [None] * steps
        for step in reversed(range(steps)) if backward else range(steps):
            new = cell(node, x[step], now, w[at], r[at], bias.chunk(2), functions[at], limit, at)
            if lengths is None:
                now, made[step] = new, new[0]
                continue
            # Behind a sequence's end its state stays, and its outputs are zero.
            inside = (step < lengths).reshape(-1, 1)
            now = [torch.where(inside, fresh, old) for fresh, old in zip(new, now)]
            made[step] = torch.where(inside, new[0], torch.zeros_like(new[0]))
        outputs.append(torch.stack(made))
        lasts.append(now)
    result = torch.stack(outputs, dim=1)
    finals = [torch.stack([last[index] for last in lasts]) for index in range(len(states))]
    if batch_first:
        return (result.permute(2, 0, 1, 3), *(final.transpose(0, 1) for final in finals))
    return (result, *finals)


@op("RNN")
def rnn(node, x, w, r, b=None, lengths=None, initial=None):
    def cell(node, x, state, w, r, bias, functions, limit, at):
        return [functions[0](limit(x @ w.T + bias[0] + state[0] @ r.T + bias[1]))]

    return sequence(node, x, w, r, b, lengths, [initial], 1, ["Tanh"], cell)


@op("GRU")
def gru(node, x, w, r, b=None, lengths=None, initial=None):
    def cell(node, x, state, w, r, bias, functions, limit, at):
        gate, hide = functions
        wz, wr, wh = (x @ w.T + bias[0]).chunk(3, dim=-1)
        rz, rr, rh = r.chunk(3)
        bz, br, bh = bias[1].chunk(3)
        update = gate(limit(wz + state[0] @ rz.T + bz))
        reset = gate(limit(wr + state[0] @ rr.T + br))
        if node.get("linear_before_reset", 0):
            fresh = hide(limit(wh + reset * (state[0] @ rh.T + bh)))
        else:
            fresh = hide(limit(wh + (reset * state[0]) @ rh.T + bh))
        return [(1 - update) * fresh + update * state[0]]

    return sequence(node, x, w, r, b, lengths, [initial], 3, ["Sigmoid", "Tanh"], cell)


@op("LSTM")
def lstm(node, x, w, r, b=None, lengths=None, initial=None, initial_cell=None, peepholes=None):
    def cell(node, x, state, w, r, bias, functions, limit, at):
        gate, into, out = functions
        hidden, memory = state
        i, o, f, c = (x @ w.T + bias[0] + hidden @ r.T + bias[1]).chunk(4, dim=-1)
        pi, po, pf = (0.0, 0.0, 0.0) if peepholes is None else peepholes[at].chunk(3)
        entering = gate(limit(i + pi * memory))
        kept = 1 - entering if node.get("input_forget", 0) else gate(limit(f + pf * memory))
        memory = kept * memory + entering * into(limit(c))
        return [gate(limit(o + po * memory)) * out(memory), memory]

    return sequence(node, x, w, r, b, lengths, [initial, initial_cell], 4, ["Sigmoid", "Tanh", "Tanh"], cell)
