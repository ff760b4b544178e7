"""Reductions, running sums and products, and the choice of the largest."""

import torch

from .registry import axis_of, op


def reduction(name, function):
    def apply(node, x, axes=None):
        listed = node.ints("axes", axes)
        if not listed:
            if node.get("noop_with_empty_axes", 0):
                # Nothing is summed, but squares, norms and logarithms are taken: each element is a sum of its own.
                return function(x.unsqueeze(-1), [x.dim()], False)
            listed = range(x.dim())
        places = sorted(axis_of(axis, x.dim()) for axis in listed)
        return function(x, places, bool(node.get("keepdims", 1)))

    op(name)(apply)


def over(function):
    """A function that takes a list of axes; none of them is a scalar's own."""
    return lambda x, axes, keep: function(x, dim=axes, keepdim=keep) if axes else function(x.reshape(1), dim=[0])


def product(x, axes, keep):
    for axis in reversed(axes):
        x = torch.prod(x, dim=axis, keepdim=keep)
    return x


def mean(x, dim, keepdim=False):
    if x.is_floating_point():
        return torch.mean(x, dim=dim, keepdim=keepdim)
    count = 1
    for axis in dim:
        count *= x.shape[axis]
    return torch.div(torch.sum(x, dim=dim, keepdim=keepdim), count, rounding_mode="trunc").to(x.dtype)


def total(x, dim, keepdim=False):
    return torch.sum(x, dim=dim, keepdim=keepdim).to(x.dtype)


reduction("ReduceSum", over(total))
reduction("ReduceMean", over(mean))
reduction("ReduceL1", over(lambda x, **at: total(torch.abs(x), **at)))
reduction("ReduceL2", over(lambda x, **at: torch.linalg.vector_norm(x, **at)))
reduction("ReduceSumSquare", over(lambda x, **at: total(x * x, **at)))
reduction("ReduceLogSum", over(lambda x, **at: torch.log(total(x, **at))))
reduction("ReduceLogSumExp", over(torch.logsumexp))
reduction("ReduceMax", over(torch.amax))
reduction("ReduceMin", over(torch.amin))
reduction("ReduceProd", product)


def chosen(name, function):
    def apply(node, x):
        axis, keep = axis_of(node.get("axis", 0), x.dim()), bool(node.get("keepdims", 1))
        if not node.get("select_last_index", 0):
            # PyTorch does not promise which of equals it finds: the first is the first where the extreme is reached.
            reached = x == function(x, dim=axis, keepdim=True).values
            return torch.argmax(reached.to(torch.uint8), dim=axis, keepdim=keep)
        reached = torch.flip(x == function(x, dim=axis, keepdim=True).values, dims=[axis])
        return x.shape[axis] - 1 - torch.argmax(reached.to(torch.uint8), dim=axis, keepdim=keep)

    op(name)(apply)


chosen("ArgMax", torch.max)
chosen("ArgMin", torch.min)


@op("TopK")
def top(node, x, k=None):
    count = int(node.get("k") if k is None else k)
    axis = axis_of(node.get("axis", -1), x.dim())
    order = torch.argsort(x.detach(), dim=axis, descending=bool(node.get("largest", 1)), stable=True)
    indices = torch.narrow(order, axis, 0, count)
    return torch.gather(x, axis, indices), indices


def running(name, function):
    def apply(node, x, axis):
        place = axis_of(int(axis), x.dim())
        turned = torch.flip(x, dims=[place]) if node.get("reverse", 0) else x
        if node.get("exclusive", 0):
            first = torch.narrow(turned, place, 0, 1)
            start = torch.zeros_like(first) if name == "CumSum" else torch.ones_like(first)
            turned = torch.cat([start, torch.narrow(turned, place, 0, turned.shape[place] - 1)], dim=place)
        result = function(turned, dim=place)
        return (torch.flip(result, dims=[place]) if node.get("reverse", 0) else result).to(x.dtype)

    op(name)(apply)


running("CumSum", torch.cumsum)
running("CumProd", torch.cumprod)
