"""Emitted programs of a GPT and a Llama against the same models written by hand for PyTorch eager.

Jobs are a JSON list on stdin, {folder, heads, kv_heads, steps, compile, device, precision}. Both take turns from the same weights; a JSON list on
stdout has the seconds of their steps (of the processor, or of a GPU), the kernels of a step, how far their losses are apart, and the
memory of a GPU that each took.
"""

import importlib
import json
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

RATE, DECAY = 0.001, 0.01

# Operators that compute nothing, or that belong to a number on the host.
VIEWS = ["alias", "chunk", "detach", "expand", "is_same_size", "lift_fresh", "permute", "slice", "split", "squeeze", "t"]
VIEWS += ["transpose", "unbind", "unsqueeze", "view", "split_with_sizes", "_local_scalar_dense", "_unsafe_view"]


class Kernels(TorchDispatchMode):
    """Counts the operators that start a kernel, at least one each."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        namespace, name = func.name().split("::")
        self.count += namespace == "aten" and name.split(".")[0] not in VIEWS
        return func(*args, **(kwargs or {}))


def kernels_of(run, *given):
    with Kernels() as counted:
        run(*given)
    return counted.count



class Written:
    """The model as one writes it: functions of torch, autograd and torch.optim.AdamW."""

    def __init__(self, state, tables, heads, kv_heads, dtype):
        self.heads, self.kv_heads, self.dtype = heads, kv_heads, dtype
        self.tables = tables
        self.layers = len({name.split(".")[1] for name in state if name.startswith("layers.")})
        self.parameters = {name: nn.Parameter(value.clone()) for name, value in state.items()}
        plain = [value for name, value in self.parameters.items() if value.dim() < 2]
        matrices = [value for name, value in self.parameters.items() if value.dim() >= 2]
        groups = [{"params": matrices, "weight_decay": DECAY}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, foreach=True)

    def norm(self, name, x):
        weight, bias = self.parameters[f"{name}.weight"], self.parameters.get(f"{name}.bias")
        shape = weight.shape
        return F.rms_norm(x, shape, weight, 1e-5) if bias is None else F.layer_norm(x, shape, weight, bias, 1e-5)

    def project(self, name, x):
        return F.linear(x, self.parameters[f"{name}.weight"].T, self.parameters.get(f"{name}.bias"))

    def attention(self, name, x):
        if f"{name}.qkv.weight" in self.parameters:
            q, k, v = self.project(f"{name}.qkv", x).chunk(3, -1)
        else:
            q, (k, v) = self.project(f"{name}.query", x), self.project(f"{name}.key_value", x).chunk(2, -1)
        counts = (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (y.unflatten(-1, (count, -1)).transpose(1, 2) for y, count in zip((q, k, v), counts, strict=True))
        if self.tables:
            q, k = turned(q, *self.tables), turned(k, *self.tables)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.project(f"{name}.output", y.transpose(1, 2).flatten(2))

    def feed_forward(self, name, x):
        y = self.project(f"{name}.up", x)
        if f"{name}.up.bias" in self.parameters:
            return self.project(f"{name}.down", F.gelu(y, approximate="tanh"))
        gate, up = y.chunk(2, -1)
        return self.project(f"{name}.down", F.silu(gate) * up)

    def loss(self, ids, labels):
        x = F.embedding(ids, self.parameters["embed.weight"])
        x = x + self.parameters.get("position.weight", 0.0)
        for number in range(self.layers):
            layer = f"layers.{number}"
            x = x + self.attention(f"{layer}.attention", self.norm(f"{layer}.attention_norm", x))
            x = x + self.feed_forward(f"{layer}.feed_forward", self.norm(f"{layer}.feed_forward_norm", x))
        head = self.parameters.get("head.weight", self.parameters["embed.weight"].T)
        scores = self.norm("norm", x) @ head
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten())

    def step(self, ids, labels):
        with torch.autocast(ids.device.type, self.dtype, enabled=self.dtype != torch.float32):
            loss = self.loss(ids, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class Program:
    """The emitted program."""

    def __init__(self, folder, device):
        sys.path.insert(0, folder)
        for name in ("mesh", "collectives", "values", "operators", "optimizer", "steps", "model"):
            sys.modules.pop(name, None)
        steps, self.module = importlib.import_module("steps"), importlib.import_module("model")
        sys.path.remove(folder)
        mesh = steps.Mesh(device.type)
        mesh.device = device
        self.model = self.module.Model(mesh)
        steps.load(self.model, mesh)
        self.compile = lambda: steps.compile_layers(self.model)
        arrays = steps.made_up(0, self.module.INPUTS)
        self.fed = steps.feed(mesh, arrays, self.module.INPUTS)

    def step(self, *_):
        with torch.no_grad():
            return self.model.run(self.fed)["loss"][0].item()

    def tables(self):
        state = dict(self.model.named_parameters())
        return [state[name].data for name in ("rotary.cosine", "rotary.sine") if name in state]

    def weights(self):
        state = {name: value.data for name, value in self.model.named_parameters()}
        own = {name for name in state if f"{name}_mean" in state}
        return {name: state[name] for name in own}


def timed(device, run, *given):
    """A step's seconds, and its loss, which is on the host once the step has ended."""
    if device.type == "cpu":
        begin = time.process_time()
        loss = run(*given)
        return time.process_time() - begin, loss
    torch.cuda.synchronize()
    begin = time.perf_counter()
    loss = run(*given)
    torch.cuda.synchronize()
    return time.perf_counter() - begin, loss


def peak_of(device, run, *given):
    """Most bytes of the GPU that tensors take in a step, weights and state included."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    run(*given)
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else 0


def compare(job):
    device = torch.device(job["device"])
    dtype = torch.bfloat16 if job["precision"] == "bf16" else torch.float32
    with device:
        program = Program(job["folder"], device)
        weights = {name: value.to("cpu", copy=True) for name, value in program.weights().items()}
        # The first steps are not timed.
        alone = peak_of(device, program.step)
        state = {name: value.to(device) for name, value in weights.items()}
        written = Written(state, program.tables(), job["heads"], job["kv_heads"], dtype)
        ids, labels = (program.fed[name][0] for name in ("ids", "labels"))
        written.step(ids, labels)
        kernels = {"program": kernels_of(program.step), "written": kernels_of(written.step, ids, labels)}
        seconds, off, first = {"program": [], "written": []}, 0.0, None
        for _ in range(job["steps"]):
            own, loss = timed(device, program.step)
            other, wanted = timed(device, written.step, ids, labels)
            seconds["program"].append(own)
            seconds["written"].append(other)
            first = first or abs(wanted)
            off = max(off, abs(loss - wanted) / first)
        if job["compile"]:
            program.compile()
            program.step()
            seconds["compiled"] = [timed(device, program.step)[0] for _ in range(job["steps"])]
        del program
        by_hand = peak_of(device, written.step, ids, labels)
    peak = {"program": alone, "written": by_hand} if device.type == "cuda" else None
    return {**seconds, "kernels": kernels, "off": off, "peak": peak}


jobs = json.load(sys.stdin)
if jobs[0]["device"] == "cpu":
    torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    backend = "gloo" if jobs[0]["device"] == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    json.dump([compare(job) for job in jobs], sys.stdout)
    dist.destroy_process_group()
