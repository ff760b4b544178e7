"""Runs lines: a JSON list of {text, inputs, results, operators} on stdin; y0, y1, … or an error each, as JSON on stdout."""

import json
import sys

import torch
import torch.nn.functional as F


def tensor(value):
    if value is None:
        return None
    return torch.tensor(value["data"], dtype=torch.float64).to(getattr(torch, value["dtype"])).reshape(value["shape"])


def plain(value):
    return {
        "dtype": str(value.dtype).removeprefix("torch."),
        "shape": list(value.shape),
        "data": [str(number) for number in value.flatten().tolist()],
    }


def evaluate(job):
    names = {"torch": torch, "F": F}
    exec(job["operators"], names)
    names.update({f"x{index}": tensor(value) for index, value in enumerate(job["inputs"])})
    try:
        exec(job["text"], names)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"results": [plain(names[f"y{index}"]) for index in range(job["results"])]}


torch.set_num_threads(1)
json.dump([evaluate(job) for job in json.load(sys.stdin)], sys.stdout)
