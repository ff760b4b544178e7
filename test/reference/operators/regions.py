"""Operators that sample regions of images, region by region and sample by sample."""

import math

import torch

from .registry import MICROSOFT, op


def corners(image, y, x):
    """The shares of the four pixels around all pairs of rows y and columns x, which lie inside of an image [C, H, W]:
    [4, C, len(y), len(x)]. Their sum is the bilinear mean."""
    height, width = image.shape[1:]
    top, left = (part.detach().floor().long() for part in (y, x))
    below, right = torch.clamp(top + 1, max=height - 1), torch.clamp(left + 1, max=width - 1)
    down, along = (y - top)[:, None], (x - left)[None, :]
    at = lambda rows, columns: image[:, rows][:, :, columns]
    return torch.stack([
        at(top, left) * ((1 - down) * (1 - along)), at(top, right) * ((1 - down) * along),
        at(below, left) * (down * (1 - along)), at(below, right) * (down * along),
    ])


@op("RoiAlign")
def align_regions(node, x, regions, owners):
    scale, ratio = node.get("spatial_scale", 1.0), node.get("sampling_ratio", 0)
    half = node.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    sizes = node.get("output_height", 1), node.get("output_width", 1)
    results = []
    for region, owner in zip(regions, owners.tolist()):
        image, lines, counts = x[owner], [], []
        for axis, pooled in enumerate(sizes):
            low, high = (region[index] * scale - (0.5 if half else 0.0) for index in (1 - axis, 3 - axis))
            length = high - low if half else torch.clamp(high - low, min=1.0)
            count = ratio if ratio > 0 else math.ceil(float(length) / pooled)
            steps = [(part + (step + 0.5) / count) / pooled for part in range(pooled) for step in range(count)]
            lines.append(low + torch.tensor(steps, dtype=x.dtype) * length)
            counts.append(max(count, 0))
        if 0 in counts:
            results.append(x.new_zeros(x.shape[1], *sizes))
            continue
        inside = [((line >= -1) & (line <= extent)) for line, extent in zip(lines, image.shape[1:])]
        places = [line.clamp(0, extent - 1) for line, extent in zip(lines, image.shape[1:])]
        covered = (inside[0][:, None] & inside[1][None, :]).to(x.dtype)
        shape = (sizes[0], counts[0], sizes[1], counts[1])
        if node.get("mode", "avg") == "max":
            # As ONNX Runtime has it: the largest share of a pixel, not the largest mean of four.
            found = (corners(image, *places) * covered).amax(0)
            results.append(found.reshape(-1, *shape).amax(dim=(2, 4)))
        else:
            found = corners(image, *places).sum(0) * covered
            results.append(found.reshape(-1, *shape).mean(dim=(2, 4)))
    return torch.stack(results)


@op("CropAndResize", domain=MICROSOFT)
def crop_and_resize(node, x, regions, owners, size):
    results = []
    for region, owner in zip(regions, owners.tolist()):
        image, lines = x[owner], []
        for axis, (pooled, extent) in enumerate(zip(size.tolist(), x.shape[2:])):
            low, high = region[axis] * (extent - 1), region[axis + 2] * (extent - 1)
            parts = [0.5] if pooled == 1 else [at / (pooled - 1) for at in range(pooled)]
            lines.append(low + torch.tensor(parts, dtype=x.dtype) * (high - low))
        inside = [((line >= 0) & (line <= extent - 1)) for line, extent in zip(lines, image.shape[1:])]
        places = [line.clamp(0, extent - 1) for line, extent in zip(lines, image.shape[1:])]
        if node.get("mode", "bilinear") == "nearest":
            places = [torch.floor(place + 0.5) for place in places]
        covered = inside[0][:, None] & inside[1][None, :]
        beyond = torch.tensor(node.get("extrapolation_value", 0.0), dtype=x.dtype)
        results.append(torch.where(covered, corners(image, *places).sum(0), beyond))
    return torch.stack(results)


@op("MaxRoiPool")
def pool_regions(node, x, regions):
    rounded = lambda value: int(math.copysign(math.floor(abs(value) + 0.5), value))
    results = []
    for owner, *bounds in regions.tolist():
        left, top, right, bottom = (rounded(value * node.get("spatial_scale", 1.0)) for value in bounds)
        parts = []
        for low, high, pooled, extent in zip((top, left), (bottom, right), node.get("pooled_shape"), x.shape[2:]):
            step = max(high - low + 1, 1) / pooled
            starts = [math.floor(at * step) + low for at in range(pooled)]
            ends = [math.ceil((at + 1) * step) + low for at in range(pooled)]
            parts.append([(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in zip(starts, ends)])
        image = x[int(owner)]
        cells = [
            image[:, a:b, c:d].flatten(1).max(dim=1).values if b > a and d > c else x.new_zeros(x.shape[1])
            for a, b in parts[0] for c, d in parts[1]
        ]
        results.append(torch.stack(cells, dim=1).reshape(-1, len(parts[0]), len(parts[1])))
    return torch.stack(results)
