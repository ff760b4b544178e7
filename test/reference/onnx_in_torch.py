"""An ONNX interpreter in plain PyTorch functions: what gradients, losses and optimizers are held against.

Reads jobs from standard input, one JSON object a line, and answers each with one line. A job names files:

    model           an ONNX file
    batches         .npz files with inputs, labels and what else the job names; one per step of training, over and over
    results         the .npz to write: output/NAME, loss, grad/NAME, state/NAME; in training losses, seconds, final/NAME
    dtype           float32 or float64 for all floating-point numbers; left out: as the file has them
    parameters      names of initializers, constants or inputs that have gradients, or "all": floating-point
                    initializers and constants of more than one element. A tensor that the file computes from them
                    (an Identity, stacked gates) may be one too: it keeps its first value, and nothing computes it
    loss            {kind: output | cross_entropy | mse | weighted, output, labels, ignoreIndex, weight,
                    classAxis, weights}
    training        batch statistics in BatchNormalization, whose new running ones are state/NAME
    train           {steps, optimizer: {name, learningRate, …}, learningRates, clipNorm, schedule, autocast, initialScale}

It shares no code with autopar, and needs torch, onnx and numpy.
"""

import json
import sys
import time
import traceback

import numpy as np
import operators  # noqa: F401  fills the table
import torch
from model import Model
from operators.registry import OPERATORS
from training import loss_of, train


def read_arrays(model, file):
    with np.load(file) as arrays:
        # Zero-dimensional arrays must stay arrays, and what was read is not to be written to.
        return {name: model.cast(torch.from_numpy(np.array(arrays[name]))) for name in arrays.files}


def parameters_of(model, wanted, batch):
    # Scalars are exponents, scales and bounds, not what a model learns.
    tensors = [name for name, value in model.constants.items() if value.is_floating_point() and value.numel() > 1]
    names = (tensors if wanted == "all" else wanted) or []
    known = {**model.constants, **batch}
    if any(name not in known for name in names):
        with torch.no_grad():
            known = model.evaluate(batch)
    return {name: known[name].detach().clone().requires_grad_(True) for name in names}


def numpy_of(value):
    value = value.detach()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def run(job):
    dtype = {"float32": torch.float32, "float64": torch.float64}.get(job.get("dtype"))
    torch.set_num_threads(job.get("threads", 1))
    model = Model(job["model"], dtype)
    batches = [read_arrays(model, file) for file in job["batches"]]
    parameters = parameters_of(model, job.get("parameters"), batches[0])
    training = bool(job.get("training"))
    results = {}
    if "train" in job:

        def forward(step):
            batch = batches[step % len(batches)]
            known = model.evaluate({**batch, **parameters}, training)
            # What one step leaves of running statistics, the next one starts from.
            model.constants.update(model.statistics)
            kept.update(model.statistics)
            return loss_of(job["loss"], known, batch)

        kept = {}
        losses, seconds, scales = train(job["train"], parameters, forward)
        results["losses"], results["seconds"], results["scales"] = np.array(losses), np.array(seconds), np.array(scales)
        results.update({f"final/{name}": numpy_of(value) for name, value in parameters.items()})
        results.update({f"state/{name}": numpy_of(value) for name, value in kept.items()})
    else:
        with torch.set_grad_enabled(bool(parameters)):
            known = model.evaluate({**batches[0], **parameters}, training)
            loss = loss_of(job["loss"], known, batches[0]) if "loss" in job else None
        for name in model.outputs:
            if isinstance(known[name], torch.Tensor):
                results[f"output/{name}"] = numpy_of(known[name])
        results.update({f"state/{name}": numpy_of(value) for name, value in model.statistics.items()})
        if loss is not None:
            results["loss"] = numpy_of(loss)
        if loss is not None and parameters:
            values = list(parameters.values())
            found = torch.autograd.grad(loss, values, allow_unused=True) if loss.requires_grad else [None] * len(values)
            for name, value, slope in zip(parameters, values, found):
                results[f"grad/{name}"] = numpy_of(torch.zeros_like(value) if slope is None else slope)
    np.savez(job["results"], **results)


def main():
    torch.use_deterministic_algorithms(True, warn_only=True)
    print(json.dumps({"torch": torch.__version__, "operators": [":".join(key) for key in OPERATORS]}), flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        answer = {}
        try:
            run(json.loads(line))
        except Exception as error:
            if not isinstance(error, NotImplementedError):
                traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}", "missing": isinstance(error, NotImplementedError)}
        print(json.dumps({**answer, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main()
