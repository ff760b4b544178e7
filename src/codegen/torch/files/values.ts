/**
 * @file values.py of an emitted program: the same for every program.
 */

export const VALUES = `"""Weights and their files, and values of a step."""

import json
import math
import mmap
import os
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

FOLDER = Path(__file__).parent

DONE = object()

# Whether the micro-batch that runs is the last of its step.
progress = SimpleNamespace(is_last=False)


class Container(nn.Module):
    """Part of a parameter's name: h[0].attn."""

    def __getitem__(self, name):
        return getattr(self, str(name))


def attach(root, path, value):
    """Attaches a module or parameter under its dotted name."""
    *parents, name = path.split(".")
    for parent in parents:
        if not hasattr(root, parent):
            root.add_module(parent, Container())
        root = getattr(root, parent)
    if isinstance(value, nn.Module):
        root.add_module(name, value)
    else:
        root.register_parameter(name, value)


def declare(root, path, shape, dtype, place=None, held=True):
    """A parameter or a piece of state, which \`load\` fills. Gradients are the program's operators, not autograd's."""
    if not held:
        data = torch.empty(0, dtype=dtype)
    elif place == "disk":
        data = on_disk(shape, dtype)
    else:
        data = torch.empty(shape, dtype=dtype, device=place)
    attach(root, path, nn.Parameter(data, requires_grad=False))


def on_disk(shape, dtype):
    """Memory that is a file without a name, in the folder for temporary files (TMPDIR)."""
    size = math.prod(shape) * dtype.itemsize
    with tempfile.TemporaryFile() as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            sys.exit(f"{tempfile.gettempdir()} has no room for {size} bytes ({error.strerror}): set TMPDIR")
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=dtype).reshape(shape)


def to_disk(x):
    return on_disk(x.shape, x.dtype).copy_(x)


def read_schedule(stage):
    """The actions of a stage in order: a list's name and the number of a micro-batch, such as 0F3."""
    try:
        row = (FOLDER / "schedule.csv").read_text().splitlines()[stage]
    except (OSError, IndexError):
        sys.exit(f"{FOLDER / 'schedule.csv'} lacks the row of stage {stage}: compile the program again")
    return [(name, int(number)) for name, number in re.findall(r"([^,]*[^,\\d])(\\d+)", row)]


def read_index():
    """Per stage, by parameter: the place of its shard."""
    return json.loads((FOLDER / "weights" / "index.json").read_text())


def opened(path):
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        sys.exit(f"{path} cannot be read ({error}): compile the program again")


def load(model, mesh):
    """Fills every parameter with this rank's shard."""
    index = read_index()[mesh.stage]
    files = {}
    for name, parameter in model.named_parameters():
        entry = index[name]
        if not mesh.is_first(*entry["first"]):
            continue
        on_first = all(mesh.place[axis] == 0 for axis in entry["zeroUnlessFirst"])
        if entry["file"] is None or not on_first:
            parameter.data.zero_()
            continue
        path = FOLDER / entry["file"].replace("{k}", str(mesh.index(entry["axes"])))
        if path not in files:
            files[path] = opened(path)
        parameter.data.copy_(files[path].get_tensor(entry["key"]).reshape(parameter.shape))


class Value(NamedTuple):
    """An input or output: its unsharded shape, its layout, and the dimension that micro-batches split.

    within: the lowest whole number of an input, the one past its highest, and one besides or None.
    """

    dtype: torch.dtype
    shape: tuple
    layout: list
    axis: int | None
    count: int | None
    extents: list | None = None
    order: list | None = None
    within: tuple | None = None


class Values(SimpleNamespace):
    """Tensors of a step or of a micro-batch: the model's own as attributes, those of a layer by the layer's name."""

    def __getitem__(self, layer):
        return self.__dict__.setdefault(f"layer {layer}", SimpleNamespace())


def accumulate(values, name, part, place=None):
    """Adds a micro-batch's part to a sum, which restarts with the first, and may be on the host or on disk."""
    if hasattr(values, name):
        total = getattr(values, name)
        total.add_(part.to(total.device))
    else:
        setattr(values, name, to_disk(part) if place == "disk" else part.to(place or part.device, copy=True))


def run_halves(method, micros, number, step, count):
    """Two micro-batches: while one waits for a collective, the other runs."""
    halves = {}
    for half in (number, number + 1):
        progress.is_last = half == count - 1
        # A method without waits has run, and is not a generator.
        halves[half] = method(micros[half], step) or iter(())
    while halves:
        for half, turns in list(halves.items()):
            progress.is_last = half == count - 1
            if next(turns, DONE) is DONE:
                del halves[half]
`;
