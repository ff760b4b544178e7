/**
 * @file values.py of an emitted program: the same for every program.
 */

export const VALUES = `"""Weights and their files, and what a step holds."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
from safetensors import safe_open
from torch import nn

FOLDER = Path(__file__).parent

# Whether the micro-batch that runs is the last of its step.
progress = SimpleNamespace(is_last=False)


class Container(nn.Module):
    """Part of a parameter's name: h[0].attn."""

    def __getitem__(self, name):
        return getattr(self, str(name))


def attach(root, path, value):
    """Puts a module or parameter where its dotted name says."""
    *parents, name = path.split(".")
    for parent in parents:
        if not hasattr(root, parent):
            root.add_module(parent, Container())
        root = getattr(root, parent)
    if isinstance(value, nn.Module):
        root.add_module(name, value)
    else:
        root.register_parameter(name, value)


def declare(root, path, shape, dtype, device=None):
    """A parameter or a piece of state, which \`load\` fills. Gradients are the program's operators, not autograd's."""
    attach(root, path, nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False))


def read_schedule(stage):
    """The actions of a stage in order: a list's name and the number of a micro-batch, such as 0F3."""
    row = (FOLDER / "schedule.csv").read_text().splitlines()[stage]
    return [(name, int(number)) for name, number in re.findall(r"([^,]*[^,\\d])(\\d+)", row)]


def read_index():
    """Per stage, by parameter: where its block is."""
    return json.loads((FOLDER / "weights" / "index.json").read_text())


def load(model, mesh):
    """Fills every parameter with this rank's block."""
    index = read_index()[mesh.stage]
    files = {}
    for name, parameter in model.named_parameters():
        entry = index[name]
        on_first = all(mesh.place[axis] == 0 for axis in entry["zeroUnlessFirst"])
        if entry["file"] is None or not on_first:
            parameter.data.zero_()
            continue
        path = FOLDER / entry["file"].replace("{k}", str(mesh.index(entry["axes"])))
        if path not in files:
            files[path] = safe_open(path, framework="pt", device="cpu")
        parameter.data.copy_(files[path].get_tensor(entry["key"]).reshape(parameter.shape))


class Value(NamedTuple):
    """An input or output: its whole shape, its layout, and the dimension along which so many micro-batches are one."""

    dtype: torch.dtype
    shape: tuple
    layout: list
    axis: int | None
    count: int | None
    extents: list | None = None
    order: list | None = None


class Values(SimpleNamespace):
    """Tensors of a step or of a micro-batch: the model's own as attributes, those of a layer by the layer's name."""

    def __getitem__(self, layer):
        return self.__dict__.setdefault(f"layer {layer}", SimpleNamespace())


def accumulate(values, name, part):
    """Adds a micro-batch's part to a sum, which begins anew with the first."""
    if hasattr(values, name):
        getattr(values, name).add_(part)
    else:
        setattr(values, name, part.clone())
`;
