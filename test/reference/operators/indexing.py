"""Lookups and scatters."""

import torch
import torch.nn.functional as F

from .registry import axis_of, op


def counted(indices, extent):
    wide = indices.to(torch.int64)
    return torch.where(wide < 0, wide + extent, wide)


@op("Gather")
def gather(node, x, indices):
    axis = axis_of(node.get("axis", 0), x.dim())
    places = counted(indices, x.shape[axis])
    found = torch.index_select(x, axis, places.reshape(-1))
    return found.reshape(list(x.shape[:axis]) + list(indices.shape) + list(x.shape[axis + 1 :]))


@op("GatherElements")
def gather_elements(node, x, indices):
    axis = axis_of(node.get("axis", 0), x.dim())
    return torch.gather(x, axis, counted(indices, x.shape[axis]))


def flattened_places(x, indices, batch_dims):
    """Rows of what GatherND and ScatterND address, as positions in x with its first dimensions joined."""
    depth = indices.shape[-1]
    joined = x.shape[batch_dims : batch_dims + depth]
    place = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for at, extent in enumerate(joined):
        place = place * extent + counted(indices[..., at], extent)
    rows = 1
    for extent in joined:
        rows *= extent
    for axis in range(batch_dims):
        shape = [1] * place.dim()
        shape[axis] = x.shape[axis]
        stride = rows
        for later in range(axis + 1, batch_dims):
            stride *= x.shape[later]
        place = place + torch.arange(x.shape[axis]).reshape(shape) * stride
    return place, list(x.shape[batch_dims + depth :])


@op("GatherND")
def gather_nd(node, x, indices):
    place, rest = flattened_places(x, indices, node.get("batch_dims", 0))
    rows = x.reshape([-1] + rest)
    return rows[place.reshape(-1)].reshape(list(place.shape) + rest)


REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("ScatterElements", "Scatter")
def scatter_elements(node, x, indices, updates):
    axis = axis_of(node.get("axis", 0), x.dim())
    places = counted(indices, x.shape[axis])
    kind = node.get("reduction", "none")
    if kind == "none":
        return torch.scatter(x, axis, places, updates)
    if kind == "add":
        return torch.scatter_add(x, axis, places, updates)
    return torch.scatter_reduce(x, axis, places, updates, REDUCED[kind], include_self=True)


@op("ScatterND")
def scatter_nd(node, x, indices, updates):
    place, rest = flattened_places(x, indices, 0)
    rows = x.reshape([-1] + rest)
    values = updates.reshape([-1] + rest)
    kind = node.get("reduction", "none")
    flat = place.reshape(-1)
    if kind == "none":
        return torch.index_put(rows, (flat,), values).reshape(x.shape)
    if kind == "add":
        return torch.index_add(rows, 0, flat, values).reshape(x.shape)
    return torch.index_reduce(rows, 0, flat, values, REDUCED[kind], include_self=True).reshape(x.shape)


@op("TensorScatter")
def tensor_scatter(node, past, update, write=None):
    axis = axis_of(node.get("axis", -2), past.dim())
    starts = torch.zeros(past.shape[0], dtype=torch.int64) if write is None else write.to(torch.int64)
    shape = [1] * past.dim()
    shape[axis] = update.shape[axis]
    places = torch.arange(update.shape[axis]).reshape(shape) + starts.reshape([-1] + [1] * (past.dim() - 1))
    if node.get("mode", "linear") == "circular":
        places = torch.remainder(places, past.shape[axis])
    return torch.scatter(past, axis, places.expand(update.shape), update)


@op("ReverseSequence")
def reverse_sequence(node, x, lengths):
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    shape = [1] * x.dim()
    shape[time] = x.shape[time]
    step = torch.arange(x.shape[time]).reshape(shape)
    shape = [1] * x.dim()
    shape[batch] = x.shape[batch]
    length = lengths.reshape(shape)
    places = torch.where(step < length, length - 1 - step, step)
    return torch.gather(x, time, places.expand(x.shape))


@op("GridSample")
def grid_sample(node, x, grid):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(node.get("mode", "linear"), node.get("mode", "linear"))
    padding, corners = node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0))
    return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)


@op("AffineGrid")
def affine_grid(node, theta, size):
    return F.affine_grid(theta, size.tolist(), align_corners=bool(node.get("align_corners", 0)))
