/**
 * @file main.py and steps.py of an emitted program: the same for every program.
 */

/** The oldest version of torch that programs run on. */
const OLDEST = [2, 9] as const;

export const REQUIREMENTS = `torch>=${OLDEST.join('.')}\nsafetensors\nnumpy\n`;

export const MAIN = `"""Runs the program: torchrun --nproc-per-node WORLD_SIZE main.py --help"""

import argparse
import os
import sys
from importlib.metadata import PackageNotFoundError, version

MODULES = ("torch", "safetensors", "numpy")
OLDEST_TORCH = (${OLDEST.join(', ')})


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", nargs="+", metavar="FILE", help="npz files of unsharded inputs, used in turn")
    parser.add_argument("--outputs", metavar="FILE", help="npz file to write the last step's unsharded outputs")
    parser.add_argument("--state", metavar="FILE", help="npz file to write unsharded weights and state at the end")
    parser.add_argument("--metrics", metavar="FILE", help="CSV file of each step's loss and other scalars")
    parser.add_argument("--steps", type=int, default=1, help="steps to run, after those of --resume (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random inputs (default: 0)")
    parser.add_argument("--save", metavar="FOLDER", help="folder of checkpoints to write, each in step-N")
    parser.add_argument("--save-every", type=int, metavar="N", help="steps between checkpoints (default: --steps)")
    parser.add_argument("--resume", metavar="FOLDER", help="continue from the last checkpoint in this folder")
    parser.add_argument("--compile", action="store_true", help="run each layer's segments through torch.compile")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="device (default: cuda if there is a GPU)")
    options = parser.parse_args()
    for name in ("steps", "save_every"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}: give a number of at least 1")
    return options


def check_modules():
    """Prints the command that installs missing or too old modules."""
    remedy = f"run {os.path.basename(sys.executable)} -m pip install -r requirements.txt"
    missing = []
    for name in MODULES:
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        sys.exit(f"main.py needs {', '.join(missing)}, which this Python lacks: {remedy}")
    numbers = tuple(int(part) for part in version("torch").split("+")[0].split(".")[:2])
    if numbers < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        sys.exit(f"main.py needs torch {oldest} or newer, and this Python has {version('torch')}: {remedy}")


def check_files(options):
    """Ends with one line where a file to read is absent, or a folder to write to."""
    for path in [*(options.inputs or []), *([options.resume] if options.resume else [])]:
        if not os.path.exists(path):
            sys.exit(f"{path} does not exist: check the path")
    if os.environ.get("RANK", "0") != "0":
        return
    # The first rank alone writes files.
    for path in filter(None, (options.outputs, options.state, options.metrics)):
        folder = os.path.dirname(os.path.abspath(path))
        if not os.access(folder, os.W_OK):
            sys.exit(f"{path} cannot be written: {folder} is no folder that may be written to")
    if options.save:
        try:
            os.makedirs(options.save, exist_ok=True)
        except OSError as error:
            sys.exit(f"--save {options.save} cannot be made ({error.strerror}): give another folder")


def check_world_size(wanted):
    found = int(os.environ.get("WORLD_SIZE", "1"))
    if found != wanted:
        command = f"torchrun --nproc-per-node {wanted} main.py"
        sys.exit(f"the program needs {wanted} ranks, and {found} run: start it with {command}")


def main():
    options = arguments()
    check_modules()
    check_files(options)
    import torch
    import torch.distributed as dist

    from mesh import WORLD_SIZE
    from steps import run

    check_world_size(WORLD_SIZE)
    if options.device is None:
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            sys.exit(f"rank {os.environ.get('RANK', '0')} has no GPU: this machine has {torch.cuda.device_count()}")
        torch.cuda.set_device(local)
    backend = "cpu:gloo,cuda:nccl" if options.device == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        # Without torchrun it is alone, and needs no port, which another program may have.
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        run(options)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
`;

export const STEPS = `"""Inputs, steps, outputs."""

import csv
import importlib
import inspect
import sys
import zipfile
from contextlib import nullcontext

import numpy as np
import torch

import collectives
from mesh import MODULES, Mesh, cut, join, whole_of
from values import Container, load, read_index


def made_up(seed, inputs):
    """Inputs that are the same on every rank."""
    generator = np.random.default_rng(seed)
    made = {}
    for name, value in inputs.items():
        if value.dtype.is_floating_point:
            made[name] = generator.standard_normal(value.shape, dtype=np.float32)
        else:
            lowest, end, _ = value.within or (0, 2, None)
            made[name] = generator.integers(lowest, end, value.shape)
    return made


def check_values(name, array, lowest, end, besides):
    """Ends where a whole number is no row of the table that it indexes, or no class."""
    wrong = ((array < lowest) | (array >= end)) & (array != besides)
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        more = "" if besides is None else f", or {besides}"
        sys.exit(f"{name}{list(place)} is {array[place]}, and its values are {lowest} to {end - 1}{more}")


def read_inputs(file, inputs):
    with np.load(file) as arrays:
        missing = [name for name in inputs if name not in arrays]
        if missing:
            sys.exit(f"{file} lacks {', '.join(missing)}; the inputs are {', '.join(inputs)}")
        for name, value in inputs.items():
            if arrays[name].shape != value.shape:
                sys.exit(f"{file}: {name} has shape {arrays[name].shape}, and {value.shape} is expected")
            if value.within:
                check_values(f"{file}: {name}", arrays[name], *value.within)
        return {name: arrays[name] for name in inputs}


def feed(mesh, arrays, inputs):
    """By input: this rank's shard, or the shard of each micro-batch."""
    fed = {}
    for name, value in inputs.items():
        whole = torch.as_tensor(arrays[name]).to(value.dtype)
        parts = [whole] if value.count is None else whole.chunk(value.count, value.axis)
        fed[name] = [cut(mesh, part, value.layout, value.extents, value.order).to(mesh.device) for part in parts]
    return fed


def whole_outputs(mesh, results, modules):
    wholes = {}
    for stage, module in enumerate(modules):
        for name, value in module.OUTPUTS.items():
            shards = results[name] if stage == mesh.stage else [None] * (value.count or 1)
            parts = [
                join(mesh, shard, value.layout, value.dtype, stage, value.extents, order=value.order)
                for shard in shards
            ]
            wholes[name] = parts[0] if value.count is None else torch.cat(parts, value.axis)
    return wholes


def whole_state(mesh, model):
    """Weights and state that are sharded, by the model's names: stages may have the same path for different ones."""
    wholes = {}
    for stage, entries in enumerate(read_index()):
        for name, entry in entries.items():
            if entry["layout"] is not None:
                wholes.setdefault(entry["key"], whole_of(mesh, model, name, entry, stage))
    return wholes


def to_numpy(tensor):
    if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float16, torch.float64):
        tensor = tensor.float()
    return tensor.cpu().numpy()


def write_npz(path, tensors):
    """As numpy.savez does, which takes no array of a name that a parameter of its own has."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, tensor in tensors.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, to_numpy(tensor), allow_pickle=False)


def compile_layers(model):
    """Each method of a layer's class once, but those that yield; collectives and autograd stay between the graphs."""
    for module in {sys.modules[type(part).__module__] for part in model.modules()}:
        for name, value in list(vars(module).items()):
            if getattr(value, "__module__", None) == collectives.__name__ or name in ("recorded", "gradients"):
                setattr(module, name, torch.compiler.disable(value))
    for kind in {type(module) for module in model.modules()} - {Container, type(model)}:
        for name, method in list(vars(kind).items()):
            if not name.startswith("__") and not inspect.isgeneratorfunction(method):
                setattr(kind, name, torch.compile(method))


class Log:
    """Scalar outputs of each step: printed, and written to a CSV file on request."""

    def __init__(self, file):
        self.file, self.writer = file and open(file, "w", newline=""), None

    def write(self, step, wholes):
        scalars = {name: whole.item() for name, whole in wholes.items() if whole.numel() == 1}
        print(f"step {step}", *(f"{name} {value:.9g}" for name, value in scalars.items()), flush=True)
        if self.file:
            if self.writer is None:
                self.writer = csv.writer(self.file)
                self.writer.writerow(["step", *scalars])
            self.writer.writerow([step, *scalars.values()])
            self.file.flush()


@torch.no_grad()
def run(options):
    mesh = Mesh(options.device)
    mesh.device = torch.device("cuda", torch.cuda.current_device()) if options.device == "cuda" else torch.device("cpu")
    modules = [importlib.import_module(name) for name in MODULES]
    module, inputs = modules[mesh.stage], {}
    for other in modules:
        inputs.update(other.INPUTS)
    with nullcontext() if options.device == "cpu" else mesh.device:
        model = module.Model(mesh)
        load(model, mesh)
        if options.save or options.resume:
            import checkpoint
        done = checkpoint.load(options.resume, mesh, model) if options.resume else 0
        if options.compile:
            compile_layers(model)
        files, wholes = options.inputs or [None], {}
        log = Log(options.metrics) if mesh.rank == 0 else None
        for step in range(done + 1, done + options.steps + 1):
            file = files[(step - 1) % len(files)]
            arrays = made_up(options.seed, inputs) if file is None else read_inputs(file, inputs)
            results = model.run(feed(mesh, arrays, module.INPUTS))
            mesh.wait_for_transfers()
            wholes = whole_outputs(mesh, results, modules)
            if log:
                log.write(step, wholes)
            is_last = step == done + options.steps
            if options.save and (is_last or (options.save_every and step % options.save_every == 0)):
                checkpoint.save(options.save, mesh, model, step)
        state = whole_state(mesh, model) if options.state else {}
    if mesh.rank == 0 and options.outputs:
        write_npz(options.outputs, wholes)
    if mesh.rank == 0 and options.state:
        write_npz(options.state, state)
`;

export const CHECKPOINT = `"""Checkpoints in torch's distributed format: a program of another plan resumes them.

They use the model's names. A shard that is one box of its tensor is saved as a DTensor. Other shards, such as this
rank's heads of a fused projection of queries, keys and values, have no placement there; their tensor is saved
unsharded.
"""

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Replicate, Shard

from mesh import STAGE_AXIS, cut, whole_of
from values import read_index

DONE = ".metadata"


def save(folder, mesh, model, step):
    state = {name: value for name, (value, _) in state_of(mesh, model).items()}
    dcp.save({"step": torch.tensor(step), **state}, checkpoint_id=Path(folder) / f"step-{step}")


def load(folder, mesh, model):
    """Fills every parameter; returns the number of completed steps."""
    found = [path.parent for path in Path(folder).glob(f"step-*/{DONE}")]
    if not found:
        sys.exit(f"{folder} holds no checkpoint, a folder step-N with a file {DONE}")
    state = state_of(mesh, model)
    held = {name: value for name, (value, _) in state.items()}
    # The folder says the step: a tensor of the model may be named step.
    step, last = max((int(path.name.removeprefix("step-")), path) for path in found)
    dcp.load(held, checkpoint_id=last)
    for value, fill in state.values():
        fill(value)
    return step


def state_of(mesh, model):
    """By the model's name: a tensor to save or to load into, and a function that fills the parameter with it."""
    state = {}
    for stage, entries in enumerate(read_index()):
        for name, entry in entries.items():
            if not entry["kept"]:
                continue
            if entry["layout"] is None:
                sys.exit(f"{name} is a partial sum on each rank, which checkpoints do not support")
            placements = None if entry["onHost"] or entry["first"] else placements_of(mesh, entry)
            if placements is None:
                whole = whole_of(mesh, model, name, entry, stage).cpu()
                value = whole, lambda whole, name=name, entry=entry: fill(mesh, model, name, entry, whole)
            elif stage == mesh.stage:
                shard = model.get_parameter(name).data
                value = DTensor.from_local(shard, stage_mesh(mesh), placements, run_check=False), lambda _: None
            if stage == mesh.stage:
                state[entry["key"]] = value
    return state


def fill(mesh, model, name, entry, whole):
    if mesh.is_first(*entry["first"]):
        model.get_parameter(name).data.copy_(cut(mesh, whole, entry["layout"], entry["extents"]))


def stage_mesh(mesh):
    names = tuple(name for name in mesh.device_mesh.mesh_dim_names if name != STAGE_AXIS)
    return mesh.device_mesh[names] if names else mesh.device_mesh


def placements_of(mesh, entry):
    """A placement per axis of the mesh; None if the shard is not a box of its tensor."""
    names = [name for name in mesh.device_mesh.mesh_dim_names if name != STAGE_AXIS]
    placements = {name: Replicate() for name in names or [STAGE_AXIS]}
    for dim, pieces in enumerate(entry["layout"]):
        axes = [axis for _, axes in pieces for axis in axes]
        is_box = len(pieces) == 1 and axes == sorted(axes, key=names.index)
        if entry["extents"] or (axes and not is_box):
            return None
        placements.update({axis: Shard(dim) for axis in axes})
    return list(placements.values())
`;
