"""
Eleven modules as PyTorch's two exporters write them, settings left as they are, and as PyTorch trains them.

    python exported_models.py FOLDER JOB

JOB is JSON: `models` has by name the exporters (ts, dynamo) and the names of optimizers to train with, `optimizers` their settings.
NAME.EXPORTER.onnx is what an exporter writes, NAME.npz has the batches (x, labels), and NAME.OPTIMIZER.npz the losses, and parameters
and running statistics by their names in the module: `initial/…`, and behind the steps `final/…` in float64, `rounded/…` in float32.
"""

import contextlib
import copy
import io
import json
import logging
import math
import sys
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from training import loss_of, train

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
BATCH, LENGTH, WIDTH, CLASSES, STEPS = 8, 8, 16, 12, 20


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, CLASSES))

    def forward(self, x):
        return self.layers(x)


class Cnn(nn.Module):
    """Batch normalisation stands where exporters do not make it part of a convolution: before one."""

    def __init__(self):
        super().__init__()
        self.first, self.group = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.batch, self.second = nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        hidden = F.relu(self.batch(F.relu(self.group(self.first(x)))))
        return self.head(F.adaptive_avg_pool2d(F.silu(self.second(hidden)), 1).flatten(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Gpt(nn.Module):
    """Learned positions, fused queries, keys and values, the head tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(CLASSES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(5))
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 32) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(32, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        batch, length = x.shape
        hidden = self.wte(x) + self.wpe(torch.arange(length))
        for layer in range(2):
            parts = self.qkv[layer](self.norms[2 * layer](hidden)).chunk(3, -1)
            heads = [part.view(batch, length, 2, WIDTH // 2).transpose(1, 2) for part in parts]
            mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(batch, length, WIDTH)
            hidden = hidden + self.out[layer](mixed)
            hidden = hidden + self.down[layer](F.gelu(self.up[layer](self.norms[2 * layer + 1](hidden))))
        return self.head(self.norms[4](hidden))


class Llama(nn.Module):
    """RMS normalisation, rotary angles from positions, grouped queries, a gated feed-forward."""

    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES, bias=False)
        self.norms = nn.ParameterList(torch.ones(WIDTH) for _ in range(5))
        self.q = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k = nn.ModuleList(nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))
        self.v = nn.ModuleList(nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))
        self.o = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.gate = nn.ModuleList(nn.Linear(WIDTH, 32, bias=False) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 32, bias=False) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(32, WIDTH, bias=False) for _ in range(2))
        self.register_buffer("frequencies", 1e4 ** (-torch.arange(0, 4, 2) / 4), persistent=False)

    def normed(self, x, scale):
        return scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def forward(self, x):
        batch, length = x.shape
        hidden = self.wte(x)
        angles = torch.outer(torch.arange(length).to(self.frequencies.dtype), self.frequencies)
        cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

        def turned(heads):
            left, right = heads.chunk(2, -1)
            return heads * cos + torch.cat([-right, left], -1) * sin

        for layer in range(2):
            normed = self.normed(hidden, self.norms[2 * layer])
            q = turned(self.q[layer](normed).view(batch, length, 4, 4).transpose(1, 2))
            k = turned(self.k[layer](normed).view(batch, length, 2, 4).transpose(1, 2)).repeat_interleave(2, 1)
            v = self.v[layer](normed).view(batch, length, 2, 4).transpose(1, 2).repeat_interleave(2, 1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, WIDTH)
            hidden = hidden + self.o[layer](mixed)
            normed = self.normed(hidden, self.norms[2 * layer + 1])
            hidden = hidden + self.down[layer](F.silu(self.gate[layer](normed)) * self.up[layer](normed))
        return self.head(self.normed(hidden, self.norms[4]))


class Mixture(nn.Module):
    """Two layers of experts as transformers' `batched_mm` computes them: the weights of a token's top two are gathered for it."""

    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.routers = nn.ModuleList(nn.Linear(WIDTH, 4) for _ in range(2))
        self.gate_up = nn.ParameterList(torch.randn(4, 24, WIDTH) / 4 for _ in range(2))
        self.gate_up_bias = nn.ParameterList(torch.randn(4, 24) / 4 for _ in range(2))
        self.down = nn.ParameterList(torch.randn(4, WIDTH, 12) / 4 for _ in range(2))

    def mixture(self, layer, tokens):
        shares, chosen = torch.topk(F.softmax(self.routers[layer](tokens), dim=-1), 2, dim=-1)
        shares = shares / shares.sum(dim=-1, keepdim=True)
        experts, copies = chosen.reshape(-1), tokens.repeat_interleave(2, dim=0)
        wide = torch.bmm(self.gate_up[layer][experts], copies.unsqueeze(-1)).squeeze(-1)
        gate, up = (wide + self.gate_up_bias[layer][experts]).chunk(2, dim=-1)
        results = torch.bmm(self.down[layer][experts], (F.silu(gate) * up).unsqueeze(-1)).squeeze(-1)
        return (results * shares.reshape(-1).unsqueeze(-1)).view(-1, 2, WIDTH).sum(dim=1)

    def forward(self, x):
        hidden = self.wte(x)
        for layer in range(2):
            hidden = hidden + self.mixture(layer, hidden.reshape(-1, WIDTH)).reshape(hidden.shape)
        return self.head(hidden)


class Recurrent(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.wte, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.cells = make(WIDTH, WIDTH, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.head(self.cells(self.wte(x))[0])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(32, WIDTH, mode="mean"), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(self.bag(x))


class Slopes(nn.Module):
    """A slope for each channel, and one for all."""

    def __init__(self):
        super().__init__()
        self.conv, self.each, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.PReLU(8), nn.Linear(8 * 64, 32)
        self.all, self.last = nn.PReLU(), nn.Linear(32, CLASSES)

    def forward(self, x):
        return self.last(self.all(self.head(self.each(self.conv(x)).flatten(1))))


class Up(nn.Module):
    """A class for each pixel."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)
        self.head = nn.ConvTranspose2d(8, CLASSES, 3, padding=1)

    def forward(self, x):
        return self.head(F.gelu(self.up(F.gelu(self.down(x)))))


def tokens(classes=CLASSES):
    return torch.randint(0, classes, (STEPS * BATCH, LENGTH))


def images():
    return torch.randn(STEPS * BATCH, 3, 8, 8)


CASES = {
    "mlp": (Mlp, lambda: torch.randn(STEPS * BATCH, WIDTH)),
    "cnn": (Cnn, images),
    "encoder": (Encoder, lambda: torch.randn(STEPS * BATCH, LENGTH, WIDTH)),
    "gpt": (Gpt, tokens),
    "llama": (Llama, tokens),
    "moe": (Mixture, tokens),
    "lstm": (lambda: Recurrent(nn.LSTM), tokens),
    "gru": (lambda: Recurrent(nn.GRU), tokens),
    "embedding-bag": (Bag, lambda: tokens(32)),
    "prelu": (Slopes, images),
    "conv-transpose": (Up, images),
}


def labels_of(logits):
    classes = -1 if logits.dim() == 3 else 1
    labels = torch.randint(0, CLASSES, logits.movedim(classes, -1).shape[:-1])
    # One in eight counts for nothing, as padding does.
    return labels.masked_fill(torch.arange(labels.numel()).reshape(labels.shape) % 8 == 5, -100)


def trained(module, x, labels, optimizer):
    """Losses and the module behind them: STEPS batches, each read once."""
    parameters = dict(module.train().named_parameters())

    def forward(step):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        return loss_of({"kind": "cross_entropy", "output": "y", "labels": "l"}, {"y": module(x[rows])}, {"l": labels[rows]})

    undecayed = [name for name, value in parameters.items() if value.dim() < 2]
    spec = {"optimizer": {**optimizer, "undecayed": undecayed}, "steps": STEPS}
    losses = train(spec, parameters, forward)[0]
    for norm in [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]:
        # PyTorch keeps the unbiased variance, ONNX that of the batch.
        left, count = (1 - norm.momentum) ** STEPS, BATCH * 8 * 8
        norm.running_var.copy_(left + (norm.running_var - left) * (count - 1) / count)
    return losses, module


def named(prefix, module):
    """Its tensors by name, each parameter once; of recurrences what ONNX stacks, its gates in ONNX's order."""
    order = {4 * WIDTH: (0, 3, 1, 2), 3 * WIDTH: (1, 0, 2)}
    parameters = dict(module.named_parameters())
    tensors = {}
    for name, value in module.state_dict().items():
        if name.endswith("num_batches_tracked") or (name not in parameters and name == "head.weight"):
            continue
        if name.startswith("cells."):
            gates = value.chunk(value.shape[0] // WIDTH)
            value = torch.cat([gates[gate] for gate in order[value.shape[0]]])
        key = name.replace("bias_ih", "bias").replace("bias_hh", "bias")
        tensors[key] = torch.cat([tensors[key], value]) if key in tensors else value
    return {f"{prefix}/{name}": value.numpy() for name, value in tensors.items()}


def main(folder, job):
    torch.set_num_threads(1)
    for name, asked in job["models"].items():
        make, given = CASES[name]
        torch.manual_seed(0)
        module, x = make().eval(), given()
        for kind in asked["exporters"]:
            with contextlib.redirect_stdout(io.StringIO()):
                torch.onnx.export(copy.deepcopy(module), (x[:BATCH],), f"{folder}/{name}.{kind}.onnx", dynamo=kind == "dynamo")
        with torch.no_grad():
            labels = labels_of(module(x))
        np.savez(f"{folder}/{name}.npz", x=x.numpy(), labels=labels.numpy())
        initial = named("initial", module)
        for optimizer in asked["optimizers"]:
            settings = job["optimizers"][optimizer]
            fine, double = trained(copy.deepcopy(module).double(), x.double() if x.is_floating_point() else x, labels, settings)
            coarse, single = trained(copy.deepcopy(module), x, labels, settings)
            arrays = {**initial, **named("final", double), **named("rounded", single)}
            np.savez(f"{folder}/{name}.{optimizer}.npz", losses=np.array(fine), roundedLosses=np.array(coarse), **arrays)


main(sys.argv[1], json.loads(sys.argv[2]))
