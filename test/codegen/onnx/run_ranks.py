"""Reads folders of the ONNX target with onnx, onnx-ir and ONNX's reference evaluator, and runs their ranks as threads.

Standard input: a JSON list of {"folder", "inputs", "outputs", "steps"}: the target's folder, an npz file of whole inputs, the npz
file to write with whole outputs, stacked over the steps. Nothing of autopar takes part: operators of the domain autopar are here.
"""

import json
import queue
import sys
import threading
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

HERE = threading.local()
DOMAINS = ("autopar", "com.microsoft")
REDUCTIONS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Meeting:
    """Where the members of a group leave what they have, and take what the others left."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=120)
        self.given = [None] * size

    def exchange(self, member, value):
        self.given[member] = value
        self.barrier.wait()
        taken = list(self.given)
        self.barrier.wait()
        return taken


def meet(value, groups, group_size):
    ranks = [int(rank) for rank in groups] if groups is not None else list(range(HERE.world))
    size = int(group_size or HERE.world)
    for start in range(0, len(ranks), size):
        group = tuple(ranks[start : start + size])
        if HERE.rank in group:
            with HERE.lock:
                meeting = HERE.meetings.setdefault(group, Meeting(size))
            member = group.index(HERE.rank)
            return meeting.exchange(member, value), member
    raise ValueError(f"rank {HERE.rank} is in no group of {ranks}")


def operators(domain):
    class AllReduce(OpRun):
        op_domain = domain

        def _run(self, x, groups=None, group_size=None, reduction=None):
            values, _ = meet(x, groups, group_size)
            result = values[0]
            for value in values[1:]:
                result = REDUCTIONS[reduction or "sum"](result, value)
            return (result,)

    class AllGather(OpRun):
        op_domain = domain

        def _run(self, x, groups=None, group_size=None, axis=None):
            values, _ = meet(x, groups, group_size)
            return (np.concatenate(values, axis=int(axis or 0)),)

    class ReduceScatter(OpRun):
        op_domain = domain

        def _run(self, x, groups=None, group_size=None, reduction=None):
            values, member = meet(x, groups, group_size)
            result = values[0]
            for value in values[1:]:
                result = REDUCTIONS[reduction](result, value)
            return (np.split(result, len(values))[member],)

    class AllToAll(OpRun):
        op_domain = domain

        def _run(self, x, groups=None, group_size=None):
            values, member = meet(x, groups, group_size)
            return (np.concatenate([np.split(value, len(values))[member] for value in values]),)

    class Permute(OpRun):
        op_domain = domain

        def _run(self, x, groups=None, group_size=None, to=None):
            values, member = meet(x, groups, group_size)
            return (values[[int(rank) for rank in to].index(member)],)

    return [AllReduce, AllGather, ReduceScatter, AllToAll, Permute]


NEW_OPERATORS = [operator for domain in DOMAINS for operator in operators(domain)]


def check(path):
    """The file as its readers see it; names of its collectives."""
    onnx.checker.check_model(str(path))
    model = ir.load(path)
    for value in model.graph.initializers.values():
        assert tuple(value.const_value.numpy().shape) == tuple(value.const_value.shape), value.name
    onnx.shape_inference.infer_shapes(onnx.load(str(path), load_external_data=False), strict_mode=True)
    return {f"{node.domain}.{node.op_type}" for node in model.graph if node.domain in DOMAINS}


def runner(path, collectives):
    """A model without collectives runs in ONNX Runtime."""
    if collectives:
        evaluator = ReferenceEvaluator(str(path), new_ops=NEW_OPERATORS)
        return lambda feeds: dict(zip(evaluator.output_names, evaluator.run(None, feeds)))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds)))


def slices(offset, size):
    return tuple(slice(start, start + length) for start, length in zip(offset, size))


def cut(value, whole):
    shard = np.zeros(value["block"], whole.dtype)
    for box in value["boxes"]:
        shard[slices(box["inBlock"], box["size"])] = whole[slices(box["offset"], box["size"])]
    return shard


def run(job):
    folder = Path(job["folder"])
    index = json.loads((folder / "index.json").read_text())
    files = {rank["file"] for rank in index["ranks"]}
    found = {file: check(folder / file) for file in files}
    inputs = dict(np.load(job["inputs"]))
    steps = [{} for _ in range(job["steps"])]
    meetings, lock, mail, failures = {}, threading.Lock(), defaultdict(queue.Queue), []

    def work(rank):
        try:
            HERE.rank, HERE.world = rank["rank"], len(index["ranks"])
            HERE.meetings, HERE.lock = meetings, lock
            call = runner(folder / rank["file"], found[rank["file"]])
            initial = {value.name: value for value in ir.load(folder / rank["file"]).graph.inputs}
            kept = {
                state["input"]: np.zeros([int(size) for size in initial[state["input"]].shape], np.float32)
                for state in rank["state"]
                if state["zeros"]
            }
            for outputs in steps:
                feeds = {value["tensor"]: cut(value, inputs[value["name"]]) for value in rank["inputs"]}
                for value in rank["receives"]:
                    feeds[value["tensor"]] = mail[(value["rank"], rank["rank"], value["label"])].get(timeout=120)
                made = call({**feeds, **kept})
                for value in rank["sends"]:
                    mail[(rank["rank"], value["rank"], value["label"])].put(made[value["tensor"]])
                for value in rank["outputs"]:
                    shard = made[value["tensor"]]
                    assert list(shard.shape) == value["block"], value["name"]
                    with lock:
                        whole = outputs.setdefault(value["name"], np.full(value["whole"], np.nan, np.float32))
                    for box in value["boxes"]:
                        whole[slices(box["offset"], box["size"])] = shard[slices(box["inBlock"], box["size"])]
                kept = {state["input"]: made[state["output"]] for state in rank["state"]}
        except Exception as error:
            failures.append(error)
            for meeting in list(meetings.values()):
                meeting.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in index["ranks"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    np.savez(job["outputs"], **{name: np.stack([step[name] for step in steps]) for name in steps[0]})
    collectives = sorted(set().union(*found.values()))
    return {"files": len(files), "collectives": collectives, **annotations(folder / "model.onnx", index)}


def annotations(path, index):
    """What onnx-ir reads of the whole model's annotations, held against how index.json cuts inputs and outputs."""
    model = ir.load(path)
    assert model.ir_version >= 11
    (configuration,) = model.device_configurations
    assert configuration.num_devices == len(index["ranks"])
    stages, compared, specs = set(), 0, 0
    # A spec cannot say that a rank has several parts, as of a sequence in zig-zag order.
    values = [value for rank in index["ranks"] for value in rank["inputs"] + rank["outputs"]]
    index = {**index, "parted": {value["name"] for value in values if len(value["boxes"]) > 1}}
    for node in model.graph:
        for own in node.device_configurations:
            assert own.configuration.name == "autopar"
            stages.add(own.pipeline_stage)
            for spec in own.sharding_specs:
                specs += 1
                compared += compare(spec, index)
    return {"stages": sorted(stages), "specs": specs, "compared": compared}


def compare(spec, index):
    """How many ranks' shards of an input or output the spec and index.json both say: the same."""
    groups = {entry.key: entry.value for entry in spec.index_to_device_group_map}
    cuts = [(int(dim.axis), part) for dim in spec.sharded_dims for part in dim.simple_shardings]
    if len({axis for axis, _ in cuts}) < len(cuts) or spec.value.name in index["parted"]:
        return 0
    counts = [int(part.num_shards) for _, part in cuts]
    compared = 0
    for shard, device in enumerate(spec.device):
        place = np.unravel_index(shard, counts)
        for rank in groups.get(device, (device,)):
            for value in index["ranks"][rank]["inputs"] + index["ranks"][rank]["outputs"]:
                if value["name"] != spec.value.name:
                    continue
                (box,) = value["boxes"]
                for (axis, part), number in zip(cuts, place):
                    length = value["whole"][axis] // int(part.num_shards)
                    assert (box["offset"][axis], box["size"][axis]) == (number * length, length), value["name"]
                compared += 1
    return compared


print(json.dumps([run(job) for job in json.load(sys.stdin)]))
