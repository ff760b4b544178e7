"""Operators of ONNX Runtime's own domain that are ONNX's own, or older and wider forms of them."""

import torch

from . import indexing, shaping
from .registry import MICROSOFT, op
from .windows import TRANSPOSED, padding_list

op("Trilu", domain=MICROSOFT)(shaping.triangle)
op("GatherND", domain=MICROSOFT)(indexing.gather_nd)
op("Pad", domain=MICROSOFT)(shaping.pad)
op("Range", domain=MICROSOFT)(lambda node, start, limit, delta=None: shaping.positions(
    node, start, limit, torch.ones((), dtype=start.dtype) if delta is None else delta
))


@op("ExpandDims", domain=MICROSOFT)
def expand_dims(node, x, axis):
    return x.unsqueeze(int(axis))


@op("Inverse", domain=MICROSOFT)
def inverse(node, x):
    return torch.linalg.inv(x)


@op("UnfoldTensor", domain=MICROSOFT)
def unfold(node, x):
    return x.unfold(node.get("dim", -1), node.get("size"), node.get("step", 1))


@op("CDist", domain=MICROSOFT)
def distances(node, a, b):
    squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)
    return squares if node.get("metric", "sqeuclidean") == "sqeuclidean" else torch.sqrt(squares)


@op("GridSample", domain=MICROSOFT)
def grid_sample(node, x, grid):
    return indexing.grid_sample(node, x, grid)


@op("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def convolve_transposed(node, x, weight, pads=None, bias=None):
    count = x.dim() - 2
    amounts = node.ints("pads", pads) or [0] * (2 * count)
    strides, dilations = node.get("strides") or [1] * count, node.get("dilations") or [1] * count
    whole = TRANSPOSED[count](x, weight, bias, strides, 0, 0, node.get("group", 1), dilations)
    crops = padding_list([-amount for amount in amounts[:count]], [-amount for amount in amounts[count:]])
    return torch.nn.functional.pad(whole, crops)
