"""Losses and optimizers: PyTorch's own, and LAMB written out."""

import time

import torch
import torch.nn.functional as F


def loss_of(spec, known, batch):
    """A scalar. `known`: tensors of the model by name; `batch`: arrays of the job, labels among them."""
    if spec["kind"] == "weighted":
        pairs = [(known[name], batch[key]) for name, key in spec["weights"].items() if known[name] is not None]
        return sum((value * weight.to(value.dtype)).sum() for value, weight in pairs)
    output = known[spec["output"]]
    if spec["kind"] == "output":
        return output.reshape(())
    labels = batch[spec["labels"]]
    if spec["kind"] == "mse":
        return F.mse_loss(output, labels.to(output.dtype))
    # Language models have their classes last, as the three dimensions of [N, S, C]; PyTorch wants them second.
    axis = spec.get("classAxis", -1 if output.dim() == 3 else 1)
    weight = batch[spec["weight"]].to(output.dtype) if "weight" in spec else None
    ignored = spec.get("ignoreIndex", -100)
    smoothing = spec.get("labelSmoothing", 0.0)
    scores = torch.movedim(output, axis, 1)
    return F.cross_entropy(scores, labels.long(), weight, ignore_index=ignored, label_smoothing=smoothing)


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020) with bias correction: Adam's direction plus decay, scaled to the parameter's length."""

    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
                state["step"] += 1
                state["mean"] = first * state["mean"] + (1 - first) * parameter.grad
                state["square"] = second * state["square"] + (1 - second) * parameter.grad**2
                mean = state["mean"] / (1 - first ** state["step"])
                square = state["square"] / (1 - second ** state["step"])
                update = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * parameter
                own, length = parameter.norm(), update.norm()
                trust = own / length if own > 0 and length > 0 else torch.ones_like(own)
                parameter.sub_(group["lr"] * trust * update)


def optimizer_of(spec, parameters):
    """`parameters` by name; those in `undecayed` take no weight decay."""
    undecayed = set(spec.get("undecayed", []))
    decay = spec.get("weightDecay", 0.0)
    groups = [
        {"params": [value for name, value in parameters.items() if name not in undecayed], "weight_decay": decay},
        {"params": [value for name, value in parameters.items() if name in undecayed], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    rate = spec["learningRate"]
    if spec["name"] == "sgd":
        return torch.optim.SGD(
            groups, lr=rate, momentum=spec.get("momentum", 0.0), nesterov=spec.get("nesterov", False)
        )
    kinds = {"adam": (torch.optim.Adam, 1e-8), "adamw": (torch.optim.AdamW, 1e-8), "lamb": (Lamb, 1e-6)}
    make, epsilon = kinds[spec["name"]]
    betas = tuple(spec.get("betas", (0.9, 0.999)))
    return make(groups, lr=rate, betas=betas, eps=spec.get("epsilon", epsilon))


def scheduler_of(spec, optimizer):
    """PyTorch's own rates: `warmup` steps of growth, then a fall to `floor` times the rate after `total` steps."""
    warmup, total, floor = spec.get("warmup", 0), spec["total"], spec.get("floor", 0.0)
    schedulers = torch.optim.lr_scheduler
    if spec["shape"] == "cosine":
        rate = optimizer.param_groups[0]["lr"]
        falling = schedulers.CosineAnnealingLR(optimizer, total - warmup, eta_min=floor * rate)
    else:
        falling = schedulers.LinearLR(optimizer, 1.0, floor, total - warmup)
    if warmup == 0:
        return falling
    growing = schedulers.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)
    return schedulers.SequentialLR(optimizer, [growing, falling], [warmup])


def train(spec, parameters, forward):
    """
    Steps of an optimizer; `forward(step)` gives the loss. Returns losses before each update, seconds per step, and the scale of
    the loss after each.
    """
    optimizer = optimizer_of(spec["optimizer"], parameters)
    scheduler = scheduler_of(spec["schedule"], optimizer) if "schedule" in spec else None
    scaler = torch.amp.GradScaler("cpu", init_scale=spec["initialScale"]) if "initialScale" in spec else None
    low = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(spec.get("autocast"))
    losses, seconds, scales = [], [], []
    for step in range(spec["steps"]):
        start = time.perf_counter()
        if "learningRates" in spec:
            for group in optimizer.param_groups:
                group["lr"] = spec["learningRates"][step]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", low, enabled=low is not None):
            loss = forward(step)
        (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.unscale_(optimizer)
        if "clipNorm" in spec:
            torch.nn.utils.clip_grad_norm_(list(parameters.values()), spec["clipNorm"])
        if scaler:
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        else:
            optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, seconds, scales
