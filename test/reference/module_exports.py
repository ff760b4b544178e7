"""
Modules with every kind of parameter and buffer, exported by both of PyTorch's exporters and trained by PyTorch itself.

    python module_exports.py FOLDER

writes CASE.ts.onnx, CASE.dynamo.onnx and CASE.npz (x, target, losses, and the parameters' elements) for each case, and prints a line
of JSON per case.
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

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
BATCH, LENGTH, WIDTH, CLASSES, STEPS = 4, 8, 16, 11, 20


class Positions(nn.Module):
    """Learned positions, read by arange; the head is the embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(CLASSES, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        hidden = self.wte(x) + self.wpe(torch.arange(LENGTH))
        return self.head(hidden + F.gelu(self.fc(self.norm(hidden))))


class Sines(nn.Module):
    """Sinusoidal positions: a buffer."""

    def __init__(self):
        super().__init__()
        self.wte, self.fc = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        angles = torch.arange(LENGTH)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
        self.register_buffer("table", torch.stack([angles.sin(), angles.cos()], 2).reshape(LENGTH, WIDTH))

    def forward(self, x):
        return self.fc(self.wte(x) * math.sqrt(WIDTH) + self.table)


class Norms(nn.Module):
    """Group and instance normalisation with scale and bias, and without; a transposed convolution."""

    def __init__(self, affine):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.group, self.instance = nn.GroupNorm(4, 8, affine=affine), nn.InstanceNorm2d(8, affine=affine)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x):
        return self.up(self.instance(F.silu(self.group(self.conv(x)))))


class Slopes(nn.Module):
    """Batch normalisation and a slope for each channel."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.slope = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(8)

    def forward(self, x):
        return self.slope(self.norm(self.conv(x)))


class Vectors(nn.Module):
    """Vectors, tables and numbers of any name, where data meets them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.slope = nn.PReLU()
        self.w = nn.Parameter(1 + torch.randn(WIDTH) * 0.1)
        self.raw = nn.Parameter(1 + torch.randn(WIDTH) * 0.1)
        self.alpha, self.heat = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor([1.3]))
        self.shift, self.gate = nn.Parameter(torch.randn(LENGTH, 1)), nn.Parameter(torch.randn(LENGTH, WIDTH))

    def forward(self, x):
        hidden = self.slope(self.first(x * self.raw))
        hidden = hidden + self.alpha * F.softplus(hidden) * self.w
        return self.last((hidden * self.gate + self.shift) / self.heat)


class Images(nn.Module):
    """Standardised images (buffers) and a scale of a layer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]))
        self.conv, self.mix = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.gamma = nn.Parameter(0.01 * torch.ones(8))

    def forward(self, x):
        hidden = self.conv((x - self.mean[:, None, None]) / self.std[:, None, None])
        return hidden + self.gamma.view(1, -1, 1, 1) * self.mix(hidden)


class Recurrent(nn.Module):
    """An LSTM of two layers and directions, and a GRU with a learned state to begin with."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(CLASSES, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.start, self.gru = nn.Parameter(torch.randn(1, 1, 10)), nn.GRU(12, 10, batch_first=True)

    def forward(self, x):
        start = self.start.expand(1, x.shape[0], 10).contiguous()
        return self.gru(self.lstm(self.wte(x))[0], start)[0]


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.fc = nn.EmbeddingBag(CLASSES, WIDTH, mode="mean"), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.fc(self.bag(x))


class Token(nn.Module):
    """A class token that is expanded over the batch, and learned positions."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, LENGTH + 1, WIDTH))
        self.fc, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), self.fc(x)], 1)
        return self.out(F.relu(tokens + self.positions))


class Attention(nn.Module):
    """A mask (buffer) of several forms; position biases that are learned, or follow a formula; rotary angles (buffers)."""

    def __init__(self, mask, bias=None, rotary=False):
        super().__init__()
        self.wte, self.out = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.form, self.bias, self.rotary = mask, bias, rotary
        hidden = torch.ones(LENGTH, LENGTH).triu(1)
        self.register_buffer("mask", hidden if mask == "factor" else torch.zeros(LENGTH, LENGTH).masked_fill(hidden > 0, mask))
        place = torch.arange(LENGTH)
        if bias == "learned":
            self.table = nn.Parameter(torch.randn(2 * LENGTH - 1, 2))
            self.register_buffer("index", place[:, None] - place[None, :] + LENGTH - 1)
        if bias == "distance":
            distance = (place[:, None] - place[None, :]).abs().float()
            self.register_buffer("slopes", -torch.tensor([0.5, 0.25])[:, None, None] * distance)
        if rotary:
            angles = torch.outer(place.float(), 10000 ** -(torch.arange(0, WIDTH // 2, 2).float() / (WIDTH // 2)))
            angles = torch.cat([angles, angles], -1)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

    def heads(self, x):
        return x.view(BATCH, LENGTH, 2, WIDTH // 2).transpose(1, 2)

    def turned(self, x):
        if not self.rotary:
            return x
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat([-right, left], -1) * self.sin

    def forward(self, x):
        x = self.wte(x)
        q, k, v = self.turned(self.heads(self.q(x))), self.turned(self.heads(self.k(x))), self.heads(self.v(x))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // 2)
        if self.bias == "learned":
            scores = scores + self.table[self.index.view(-1)].view(LENGTH, LENGTH, 2).permute(2, 0, 1)[None]
        if self.bias == "distance":
            scores = scores + self.slopes
        scores = scores * (1 - self.mask) - 1e4 * self.mask if self.form == "factor" else scores + self.mask
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = nn.Linear(WIDTH, 12, bias=False), nn.Linear(WIDTH, 12, bias=False)
        self.w2 = nn.Linear(12, WIDTH, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """transformers' Mixtral: each expert's tokens are picked out; `gathered`: the chosen ones of all results."""

    def __init__(self, gathered):
        super().__init__()
        self.gathered, self.wte = gathered, nn.Embedding(CLASSES, WIDTH)
        self.gate, self.head = nn.Linear(WIDTH, 4, bias=False), nn.Linear(WIDTH, CLASSES)
        self.experts = nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x):
        states = self.wte(x)
        return self.head(states + self.mixture(states.view(-1, WIDTH)).view(states.shape))

    def mixture(self, hidden):
        weights, selected = torch.topk(F.softmax(self.gate(hidden), dim=1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        if self.gathered:
            results = torch.stack([expert(hidden) for expert in self.experts], dim=1)
            chosen = torch.gather(results, 1, selected.unsqueeze(-1).expand(-1, -1, WIDTH))
            return (chosen * weights.unsqueeze(-1)).sum(dim=1)
        total = torch.zeros_like(hidden)
        mask = F.one_hot(selected, num_classes=4).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            choice, token = torch.where(mask[index])
            result = expert(hidden[None, token].reshape(-1, WIDTH)) * weights[token, choice, None]
            total.index_add_(0, token, result)
        return total


def tokens():
    return torch.randint(0, CLASSES, (BATCH, LENGTH))


def rows():
    return torch.randn(BATCH, LENGTH, WIDTH)


def images():
    return torch.randn(BATCH, 3, 6, 6)


CASES = {
    "positions": (Positions, tokens),
    "sines": (Sines, tokens),
    "norms": (lambda: Norms(True), images),
    "plain-norms": (lambda: Norms(False), images),
    "slopes": (Slopes, images),
    "vectors": (Vectors, rows),
    "images": (Images, images),
    "recurrent": (Recurrent, tokens),
    "bag": (Bag, tokens),
    "token": (Token, rows),
    "mask": (lambda: Attention(float("-inf")), tokens),
    "mask-factor": (lambda: Attention("factor"), tokens),
    "learned-bias": (lambda: Attention(-1e4, "learned"), tokens),
    "distance-bias": (lambda: Attention(-1e4, "distance"), tokens),
    "experts": (lambda: Experts(False), tokens),
    "gathered-experts": (lambda: Experts(True), tokens),
    "rotary": (lambda: Attention(float("-inf"), None, True), tokens),
}
# In evaluation the dynamo exporter makes batch normalisation part of the convolution before it.
KINDS = {"slopes": ("ts",)}


def export(module, x, path, kind, training):
    options = {"dynamo": True, "external_data": False} if kind == "dynamo" else {"dynamo": False, "opset_version": 17}
    if training:
        options |= {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module, (x,), path, input_names=["x"], output_names=["y"], **options)


def losses(module, x, target):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    values = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(module(x), target)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def main(folder, every):
    for name, (make, given) in list(CASES.items())[::every]:
        torch.manual_seed(0)
        module, x = make(), given()
        kinds = KINDS.get(name, ("ts", "dynamo"))
        for kind in kinds:
            exported = copy.deepcopy(module)
            export(exported if name == "slopes" else exported.eval(), x, f"{folder}/{name}.{kind}.onnx", kind, name == "slopes")
        elements = torch.cat([value.detach().reshape(-1) for value in module.parameters()])
        target = torch.randn(copy.deepcopy(module)(x).shape)
        arrays = {"x": x.numpy(), "target": target.numpy(), "elements": elements.sort().values.numpy()}
        np.savez(f"{folder}/{name}.npz", losses=np.array(losses(module.train(), x, target)), **arrays)
        print(json.dumps({"name": name, "kinds": kinds}), flush=True)


main(sys.argv[1], int(sys.argv[2]))
