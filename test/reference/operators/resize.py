"""Resize, axis by axis: every result is a weighted sum of a few positions."""

import math

import torch

from .registry import axis_of, op, take


def source(x, transform, scale, before, after, roi):
    """Where result position x lies in the operand."""
    if transform == "asymmetric":
        return x / scale
    if transform == "align_corners":
        return 0.0 if after == 1 else x * (before - 1) / (after - 1)
    if transform == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if after > 1 else 0.0
    if transform == "half_pixel_symmetric":
        adjusted = after / (scale * before)
        return before / 2 * (1 - adjusted) + (x + 0.5) / scale - 0.5
    if transform == "tf_crop_and_resize":
        start, end = roi
        if after > 1:
            return start * (before - 1) + x * (end - start) * (before - 1) / (after - 1)
        return 0.5 * (start + end) * (before - 1)
    return (x + 0.5) / scale - 0.5


NEAREST = {
    "round_prefer_floor": lambda at: math.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: math.floor(at + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def cubic(distance, a):
    distance = abs(distance)
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    if distance < 2:
        return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return 0.0


def neighbours(node, at, mode):
    """Positions, which may lie outside, and their weights."""
    if mode == "nearest":
        return [(NEAREST[node.get("nearest_mode", "round_prefer_floor")](at), 1.0)]
    low = math.floor(at)
    if mode == "linear":
        return [(low, 1 - (at - low)), (low + 1, at - low)]
    a = node.get("cubic_coeff_a", -0.75)
    return [(low + shift, cubic(at - low - shift, a)) for shift in (-1, 0, 1, 2)]


@op("Resize", "Upsample")
def resize(node, x, *operands):
    roi, scales, sizes = roles(node, operands)
    axes = [axis_of(axis, x.dim()) for axis in (node.get("axes") or range(x.dim()))]
    if node.get("antialias", 0):
        raise NotImplementedError("Resize with antialias")
    if sizes is not None:
        scales, sizes = from_sizes(node, x, axes, sizes)
    else:
        sizes = [math.floor(x.shape[axis] * scale) for axis, scale in zip(axes, scales)]
    for at, axis in enumerate(axes):
        window = (roi[at], roi[at + len(axes)]) if roi else (0.0, 1.0)
        x = along(node, x, axis, scales[at], sizes[at], window)
    return x


def roles(node, operands):
    listed = [None if operand is None or operand.numel() == 0 else operand.tolist() for operand in operands]
    if node.name == "Upsample":
        return None, listed[0] if listed else node.get("scales"), None
    if len(listed) == 1 and node.opset < 11:
        return None, listed[0], None
    return tuple((listed + [None, None, None])[:3])


def from_sizes(node, x, axes, sizes):
    scales = [size / x.shape[axis] for axis, size in zip(axes, sizes)]
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales, sizes
    one = min(scales) if policy == "not_larger" else max(scales)
    return [one] * len(axes), [math.floor(one * x.shape[axis] + 0.5) for axis in axes]


def along(node, x, axis, scale, after, roi):
    before = x.shape[axis]
    mode = node.get("mode", "nearest")
    transform = node.get("coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric")
    if scale == 1 and after == before and transform != "tf_crop_and_resize":
        return x
    rows = []
    for position in range(after):
        at = source(position, transform, scale, before, after, roi)
        found = neighbours(node, at, mode)
        outside = transform == "tf_crop_and_resize" and not 0 <= at <= before - 1
        if node.get("exclude_outside", 0):
            found = [(place, weight if 0 <= place < before else 0.0) for place, weight in found]
            total = sum(weight for _, weight in found)
            found = [(place, weight / total) for place, weight in found]
        rows.append((outside, [(min(max(place, 0), before - 1), weight) for place, weight in found]))
    shape = [1] * x.dim()
    shape[axis] = after
    result = 0
    for index in range(len(rows[0][1])):
        weights = torch.tensor([row[1][index][1] for row in rows], dtype=x.dtype).reshape(shape)
        result = result + take(x, axis, [row[1][index][0] for row in rows]) * weights
    if any(outside for outside, _ in rows):
        mask = torch.tensor([outside for outside, _ in rows]).reshape(shape)
        result = torch.where(mask, torch.tensor(node.get("extrapolation_value", 0.0), dtype=x.dtype), result)
    return result
