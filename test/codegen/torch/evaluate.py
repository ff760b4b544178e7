"""Evaluates expressions: a JSON list of {text, inputs, operators} on stdin; results, or an error each, as JSON on stdout."""

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
        results = eval(job["text"], names)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"results": [plain(value) for value in (results if isinstance(results, tuple) else (results,))]}


torch.set_num_threads(1)
json.dump([evaluate(job) for job in json.load(sys.stdin)], sys.stdout)
