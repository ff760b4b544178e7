/**
 * @file values.py and main.py of an emitted program: the same for every program.
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


def declare(root, path, shape, dtype):
    """A parameter or a piece of state, which \`load\` fills. Gradients are the program's operators, not autograd's."""
    attach(root, path, nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False))


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

export const MAIN = `"""Runs the program: torchrun --nproc-per-node WORLD_SIZE main.py --help"""

import argparse
import importlib
import os
import sys

import numpy as np
import torch
import torch.distributed as dist

from mesh import MODULES, WORLD_SIZE, Mesh, cut, join
from values import load, read_index


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", nargs="+", metavar="FILE", help="npz files of whole inputs, one per step, in turn")
    parser.add_argument("--outputs", metavar="FILE", help="npz file of the last step's whole outputs to write")
    parser.add_argument("--state", metavar="FILE", help="npz file of whole weights and state to write at the end")
    parser.add_argument("--steps", type=int, default=1, help="steps to run (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of inputs made up where none are given (default: 0)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def check_world_size():
    found = int(os.environ.get("WORLD_SIZE", "1"))
    if found != WORLD_SIZE:
        command = f"torchrun --nproc-per-node {WORLD_SIZE} main.py"
        sys.exit(f"the program is for {WORLD_SIZE} ranks, and {found} run: start it with {command}")


def made_up(seed, inputs):
    """Inputs that are the same on every rank."""
    generator = np.random.default_rng(seed)
    made = {}
    for name, value in inputs.items():
        if value.dtype.is_floating_point:
            made[name] = generator.standard_normal(value.shape, dtype=np.float32)
        else:
            made[name] = generator.integers(0, 2, value.shape)
    return made


def read_inputs(file, inputs):
    with np.load(file) as arrays:
        missing = [name for name in inputs if name not in arrays]
        if missing:
            sys.exit(f"{file} lacks {', '.join(missing)}; the inputs are {', '.join(inputs)}")
        for name, value in inputs.items():
            if arrays[name].shape != value.shape:
                sys.exit(f"{file}: {name} has shape {arrays[name].shape}, and {value.shape} is expected")
        return {name: arrays[name] for name in inputs}


def feed(mesh, arrays, inputs):
    """By input: this rank's block of it, or that of each micro-batch."""
    fed = {}
    for name, value in inputs.items():
        whole = torch.as_tensor(arrays[name]).to(value.dtype)
        parts = [whole] if value.count is None else whole.chunk(value.count, value.axis)
        fed[name] = [cut(mesh, part, value.layout).to(mesh.device) for part in parts]
    return fed


def whole_outputs(mesh, results, modules):
    wholes = {}
    for stage, module in enumerate(modules):
        for name, value in module.OUTPUTS.items():
            blocks = results[name] if stage == mesh.stage else [None] * (value.count or 1)
            parts = [join(mesh, block, value.layout, value.dtype, stage) for block in blocks]
            wholes[name] = parts[0] if value.count is None else torch.cat(parts, value.axis)
    return wholes


def whole_state(mesh, model):
    """Weights and state of which ranks have blocks."""
    wholes, own = {}, dict(model.named_parameters())
    for stage, entries in enumerate(read_index()):
        for name, entry in entries.items():
            if entry["layout"] is not None:
                block = own[name].data if stage == mesh.stage else None
                whole = join(mesh, block, entry["layout"], getattr(torch, entry["dtype"]), stage)
                wholes.setdefault(name, whole)
    return wholes


def to_numpy(tensors):
    return {
        name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
        for name, tensor in tensors.items()
    }


@torch.no_grad()
def run(options):
    mesh = Mesh(options.device)
    mesh.device = torch.device("cuda", torch.cuda.current_device()) if options.device == "cuda" else torch.device("cpu")
    modules = [importlib.import_module(name) for name in MODULES]
    module, inputs = modules[mesh.stage], {}
    for other in modules:
        inputs.update(other.INPUTS)
    with mesh.device:
        model = module.Model(mesh)
        load(model, mesh)
        files = options.inputs or [None]
        wholes = {}
        for step in range(options.steps):
            file = files[step % len(files)]
            arrays = made_up(options.seed, inputs) if file is None else read_inputs(file, inputs)
            results = model.run(feed(mesh, arrays, module.INPUTS))
            wholes = whole_outputs(mesh, results, modules)
            if mesh.rank == 0:
                scalars = [f"{name} {whole.item():.9g}" for name, whole in wholes.items() if whole.numel() == 1]
                print(f"step {step + 1}", *scalars, flush=True)
        state = whole_state(mesh, model) if options.state else {}
    if mesh.rank == 0 and options.outputs:
        np.savez(options.outputs, **to_numpy(wholes))
    if mesh.rank == 0 and options.state:
        np.savez(options.state, **to_numpy(state))


def main():
    options = arguments()
    check_world_size()
    if options.device == "cuda":
        local = int(os.environ["LOCAL_RANK"])
        if local >= torch.cuda.device_count():
            sys.exit(f"rank {os.environ['RANK']} has no GPU: this machine has {torch.cuda.device_count()}")
        torch.cuda.set_device(local)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    try:
        run(options)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
`;
