"""Operators that move elements or make them from sizes."""

import numpy as np
import torch

from .registry import axis_of, op, take


@op("Constant")
def constant(node):
    for name in ("value_float", "value_floats"):
        if name in node.attributes:
            return torch.tensor(node.get(name), dtype=node.run.floating())
    for name in ("value_int", "value_ints"):
        if name in node.attributes:
            return torch.tensor(node.get(name), dtype=torch.int64)
    return node.get("value")


@op("ConstantOfShape")
def constant_of_shape(node, shape):
    value = node.get("value")
    value = torch.zeros(1, dtype=node.run.floating()) if value is None else value
    return torch.full(shape.tolist(), value.reshape(-1)[0].item(), dtype=value.dtype)


@op("Shape")
def shape(node, x):
    start, end = node.get("start", 0), node.get("end", x.dim())
    return torch.tensor(list(x.shape)[slice(start, end)], dtype=torch.int64)


@op("Size")
def size(node, x):
    return torch.tensor(x.numel(), dtype=torch.int64)


@op("Range")
def positions(node, start, limit, delta):
    values = np.arange(start.item(), limit.item(), delta.item())
    return torch.tensor(values, dtype=start.dtype)


@op("EyeLike")
def eye(node, x):
    dtype = node.run.dtype_of(node.get("dtype")) if "dtype" in node.attributes else x.dtype
    rows, columns = (torch.arange(extent) for extent in x.shape)
    return (columns[None, :] - rows[:, None] == node.get("k", 0)).to(dtype)


@op("OneHot")
def one_hot(node, indices, depth, values):
    count = int(depth)
    axis = axis_of(node.get("axis", -1), indices.dim() + 1)
    classes = torch.arange(count).reshape([count if place == axis else 1 for place in range(indices.dim() + 1)])
    whole = indices.to(torch.int64)
    wanted = torch.where(whole < 0, whole + count, whole).unsqueeze(axis)
    return torch.where(classes == wanted, values[1], values[0])


@op("Trilu")
def triangle(node, x, k=None):
    diagonal = 0 if k is None else int(k)
    return torch.triu(x, diagonal) if node.get("upper", 1) else torch.tril(x, diagonal)


@op("Reshape")
def reshape(node, x, target=None):
    wanted = node.ints("shape", target)
    if not node.get("allowzero", 0):
        wanted = [x.shape[place] if extent == 0 else extent for place, extent in enumerate(wanted)]
    return x.reshape(wanted)


@op("Flatten")
def flatten(node, x):
    axis = axis_of(node.get("axis", 1), x.dim())
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)


@op("Squeeze")
def squeeze(node, x, axes=None):
    listed = node.ints("axes", axes)
    gone = {place for place, extent in enumerate(x.shape) if extent == 1} if listed is None else listed
    gone = {axis_of(axis, x.dim()) for axis in gone}
    return x.reshape([extent for place, extent in enumerate(x.shape) if place not in gone])


@op("Unsqueeze")
def unsqueeze(node, x, axes=None):
    listed = node.ints("axes", axes)
    for axis in sorted(axis_of(axis, x.dim() + len(listed)) for axis in listed):
        x = x.unsqueeze(axis)
    return x


@op("Transpose")
def transpose(node, x):
    return x.permute(node.get("perm") or list(reversed(range(x.dim()))))


@op("Expand")
def expand(node, x, target):
    wanted = target.tolist()
    return x.expand(torch.broadcast_shapes(x.shape, wanted))


@op("Tile")
def tile(node, x, repeats):
    return x.repeat(repeats.tolist())


@op("Slice")
def cut(node, x, starts=None, ends=None, axes=None, steps=None):
    starts, ends = node.ints("starts", starts), node.ints("ends", ends)
    axes = node.ints("axes", axes) or list(range(len(starts)))
    steps = node.ints("steps", steps) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        place = axis_of(axis, x.dim())
        extent = x.shape[place]
        # Python's slices know the same rules, except that an end before the first element is written as none.
        low = max(start + extent, -1 if step < 0 else 0) if start < 0 else start
        high = end + extent if end < 0 else end
        chosen = range(extent)[low : (None if step < 0 and high < 0 else max(high, 0)) : step]
        x = torch.narrow(x, place, chosen.start, len(chosen)) if step == 1 else take(x, place, list(chosen))
    return x


@op("Split")
def split(node, x, sizes=None):
    axis = axis_of(node.get("axis", 0), x.dim())
    wanted = node.ints("split", sizes)
    if wanted is None:
        parts = node.get("num_outputs", node.results)
        chunk = -(-x.shape[axis] // parts)
        wanted = [max(0, min(chunk, x.shape[axis] - chunk * part)) for part in range(parts)]
    return tuple(torch.split(x, wanted, dim=axis))


@op("Concat")
def concatenate(node, *operands):
    return torch.cat(operands, dim=node.get("axis"))


@op("Pad")
def pad(node, x, pads=None, value=None, axes=None):
    amounts = node.ints("pads", pads)
    places = [axis_of(axis, x.dim()) for axis in (node.ints("axes", axes) or range(x.dim()))]
    constant_value = node.get("value", 0.0) if value is None else value.reshape(())
    mode = node.get("mode", "constant")
    for at, place in enumerate(places):
        before, after = amounts[at], amounts[at + len(places)]
        if before == 0 and after == 0:
            continue
        extent = x.shape[place]
        wanted = np.arange(-before, extent + after)
        inside = (wanted >= 0) & (wanted < extent)
        x = take(x, place, PADDED[mode](wanted, extent))
        if mode == "constant" and not inside.all():
            mask = torch.tensor(inside).reshape([-1 if other == place else 1 for other in range(x.dim())])
            x = torch.where(mask, x, torch.as_tensor(constant_value, dtype=x.dtype))
    return x


def reflected(wanted, extent):
    period = max(1, 2 * (extent - 1))
    folded = np.mod(wanted, period)
    return np.where(folded < extent, folded, period - folded)


PADDED = {
    "constant": lambda wanted, extent: np.clip(wanted, 0, extent - 1),
    "edge": lambda wanted, extent: np.clip(wanted, 0, extent - 1),
    "reflect": reflected,
    "wrap": lambda wanted, extent: np.mod(wanted, extent),
}


@op("CenterCropPad")
def center_crop_pad(node, x, target):
    axes = [axis_of(axis, x.dim()) for axis in (node.get("axes") or range(x.dim()))]
    for place, wanted in zip(axes, target.tolist()):
        extent = x.shape[place]
        if wanted <= extent:
            x = torch.narrow(x, place, (extent - wanted) // 2, wanted)
            continue
        before = (wanted - extent) // 2
        edges = [list(x.shape), list(x.shape)]
        edges[0][place], edges[1][place] = before, wanted - extent - before
        x = torch.cat([x.new_zeros(edges[0]), x, x.new_zeros(edges[1])], dim=place)
    return x


@op("DepthToSpace")
def depth_to_space(node, x):
    block = node.get("blocksize")
    n, c, h, w = x.shape
    if node.get("mode", "DCR") == "CRD":
        parts = x.reshape(n, c // block**2, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
    else:
        parts = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, c // block**2, h * block, w * block)


@op("SpaceToDepth")
def space_to_depth(node, x):
    block = node.get("blocksize")
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * block**2, h // block, w // block)


@op("NonZero")
def non_zero(node, x):
    return torch.nonzero(x).T.contiguous()
