"""Convolutions and pooling. Pooling gathers each window's positions, so that every padding and rounding is one rule."""

import math

import torch
import torch.nn.functional as F

from .registry import MICROSOFT, op, take

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def geometry(node, spatial, kernel):
    """Strides, dilations, pads before and after per spatial dimension."""
    count = len(spatial)
    strides = node.get("strides") or [1] * count
    dilations = node.get("dilations") or [1] * count
    auto = node.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = node.get("pads") or [0] * (2 * count)
        return strides, dilations, pads[:count], pads[count:]
    if auto == "VALID":
        return strides, dilations, [0] * count, [0] * count
    before, after = [], []
    for extent, width, stride, dilation in zip(spatial, kernel, strides, dilations):
        reach = dilation * (width - 1) + 1
        total = max(0, (math.ceil(extent / stride) - 1) * stride + reach - extent)
        small, large = total // 2, total - total // 2
        before.append(small if auto == "SAME_UPPER" else large)
        after.append(large if auto == "SAME_UPPER" else small)
    return strides, dilations, before, after


def padding_list(before, after):
    """As torch's pad wants it: the last dimension first."""
    return [amount for pair in reversed(list(zip(before, after))) for amount in pair]


@op("Conv")
def convolve(node, x, weight, bias=None):
    strides, dilations, before, after = geometry(node, x.shape[2:], weight.shape[2:])
    if before == after:
        padding = before
    else:
        x, padding = F.pad(x, padding_list(before, after)), 0
    return CONVOLUTIONS[x.dim() - 2](x, weight, bias, strides, padding, dilations, node.get("group", 1))


@op("ConvTranspose")
def convolve_transposed(node, x, weight, bias=None):
    spatial, kernel = x.shape[2:], weight.shape[2:]
    count = len(spatial)
    strides, dilations = node.get("strides") or [1] * count, node.get("dilations") or [1] * count
    extra = node.get("output_padding") or [0] * count
    full = [
        stride * (extent - 1) + more + dilation * (width - 1) + 1
        for extent, width, stride, dilation, more in zip(spatial, kernel, strides, dilations, extra)
    ]
    before, after = transposed_pads(node, full, spatial, strides)
    whole = TRANSPOSED[count](x, weight, None, strides, 0, 0, node.get("group", 1), dilations)
    # A negative padding crops; what output_padding adds beyond the last element is zero.
    edges = padding_list([-amount for amount in before], [more - amount for more, amount in zip(extra, after)])
    result = F.pad(whole, edges)
    return result if bias is None else result + bias.reshape([1, -1] + [1] * count)


def transposed_pads(node, full, spatial, strides):
    count = len(full)
    auto, wanted = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [extent * stride for extent, stride in zip(spatial, strides)]
    if wanted is None:
        pads = node.get("pads") or [0] * (2 * count)
        return pads[:count], pads[count:]
    totals = [extent - target for extent, target in zip(full, wanted[-count:])]
    halves = [(total // 2, total - total // 2) for total in totals]
    if auto != "SAME_UPPER":
        halves = [(large, small) for small, large in halves]
    return [pair[0] for pair in halves], [pair[1] for pair in halves]


def windows(node, x, kernel):
    """All windows [N, C, o1, …, k1 · k2 · …], what of them is inside x, or inside x and its padding, and flat positions."""
    spatial = list(x.shape[2:])
    strides, dilations, before, after = geometry(node, spatial, kernel)
    count = len(spatial)
    inside, covered, place, result = None, None, None, x
    for axis, extent in enumerate(spatial):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        room = extent + before[axis] + after[axis] - reach
        outputs = (-(-room // strides[axis]) if node.get("ceil_mode", 0) else room // strides[axis]) + 1
        # A window that would start in the padding behind the tensor is left out.
        if node.get("ceil_mode", 0) and (outputs - 1) * strides[axis] >= extent + before[axis]:
            outputs -= 1
        start = torch.arange(outputs)[:, None] * strides[axis] - before[axis]
        at = start + torch.arange(kernel[axis])[None, :] * dilations[axis]
        result = take(result, 2 + 2 * axis, at.clamp(0, extent - 1).reshape(-1)).unflatten(2 + 2 * axis, at.shape)
        shape = [1] * (2 * count)
        shape[2 * axis], shape[2 * axis + 1] = at.shape
        own = [((at >= 0) & (at < extent)), ((at >= -before[axis]) & (at < extent + after[axis])), at]
        first, second, third = (part.reshape(shape) for part in own)
        inside = first if inside is None else inside & first
        covered = second if covered is None else covered & second
        place = third if place is None else place * extent + third
    order = [2 * axis for axis in range(count)] + [2 * axis + 1 for axis in range(count)]
    together = lambda part: part.permute(order).flatten(count)
    lead = [0, 1] + [2 + axis for axis in order]
    return result.permute(lead).flatten(2 + count), together(inside), together(covered), together(place)


@op("MaxPool")
def max_pool(node, x):
    kernel = node.get("kernel_shape")
    if node.results == 1 and plainly_padded(node, kernel):
        # What exporters write; PyTorch's own kernel is the one to race against.
        strides, dilations, before, _ = geometry(node, x.shape[2:], kernel)
        return F.max_pool2d(x, kernel, strides, before, dilations)
    found, inside, _, place = windows(node, x, kernel)
    values, chosen = torch.where(inside, found, torch.full((), -math.inf, dtype=x.dtype)).max(dim=-1)
    if node.results == 1:
        return values
    flat = torch.gather(place.expand(found.shape), -1, chosen.unsqueeze(-1)).squeeze(-1)
    channel = torch.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * (x.dim() - 2))
    return values, flat + channel * math.prod(x.shape[2:])


def plainly_padded(node, kernel):
    pads = node.get("pads") or [0] * (2 * len(kernel))
    halves = pads[: len(kernel)]
    plain = node.get("auto_pad", "NOTSET") == "NOTSET" and not node.get("ceil_mode", 0)
    fits = halves == pads[len(kernel) :] and all(amount * 2 <= width for amount, width in zip(halves, kernel))
    return len(kernel) == 2 and plain and fits


@op("AveragePool")
def average_pool(node, x):
    found, inside, covered, _ = windows(node, x, node.get("kernel_shape"))
    counted = covered if node.get("count_include_pad", 0) else inside
    return torch.where(inside, found, torch.zeros((), dtype=x.dtype)).sum(-1) / counted.sum(-1)


@op("LpPool")
def norm_pool(node, x):
    found, inside, _, _ = windows(node, x, node.get("kernel_shape"))
    masked = torch.where(inside, found, torch.zeros((), dtype=x.dtype))
    return torch.linalg.vector_norm(masked, ord=node.get("p", 2), dim=-1)


@op("GlobalAveragePool")
def global_average(node, x):
    return x.mean(dim=list(range(2, x.dim())), keepdim=True)


@op("GlobalMaxPool")
def global_max(node, x):
    return x.flatten(2).max(dim=-1).values.reshape(list(x.shape[:2]) + [1] * (x.dim() - 2))


@op("GlobalLpPool")
def global_norm(node, x):
    return torch.linalg.vector_norm(x, ord=node.get("p", 2), dim=list(range(2, x.dim())), keepdim=True)


@op("MaxUnpool")
def max_unpool(node, x, indices, size=None):
    kernel = node.get("kernel_shape")
    strides, _, before, after = geometry(node, x.shape[2:], kernel)
    shape = [
        (extent - 1) * stride - first - last + width
        for extent, stride, first, last, width in zip(x.shape[2:], strides, before, after, kernel)
    ]
    own = list(x.shape[:2]) + shape
    wanted = own if size is None else size.tolist()
    flat = torch.zeros(math.prod(own), dtype=x.dtype).scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(own)
    return F.pad(flat, padding_list([0] * len(shape), [b - a for a, b in zip(own[2:], wanted[2:])]))


@op("Col2Im")
def fold(node, x, image, block):
    count = len(image)
    if count != 2:
        raise NotImplementedError("Col2Im of other than two dimensions")
    strides, dilations = node.get("strides") or [1, 1], node.get("dilations") or [1, 1]
    pads = node.get("pads") or [0] * 4
    height, width = image.tolist()
    padded = (height + pads[0] + pads[2], width + pads[1] + pads[3])
    whole = F.fold(x, padded, block.tolist(), dilations, 0, strides)
    return whole[:, :, pads[0] : pads[0] + height, pads[1] : pads[1] + width]


@op("DeformConv")
def convolve_deformed(node, x, weight, offsets, bias=None, mask=None):
    """A sum over the places of a window; what an offset hits between pixels is their bilinear mean, zero outside."""
    batch, channels, height, width = x.shape
    rows, _, tall, broad = weight.shape
    strides, dilations, before, _ = geometry(node, x.shape[2:], weight.shape[2:])
    groups, parts = node.get("offset_group", 1), node.get("group", 1)
    size = offsets.shape[2:]
    moves = offsets.reshape(batch, groups, tall * broad, 2, *size)
    weights = torch.ones_like(moves[:, :, :, 0]) if mask is None else mask.reshape(batch, groups, tall * broad, *size)
    images = x.reshape(batch * groups, channels // groups, height, width)
    total = 0
    for tap in range(tall * broad):
        own = torch.tensor([tap // broad * dilations[0] - before[0], tap % broad * dilations[1] - before[1]])
        y = moves[:, :, tap, 0] + torch.arange(size[0])[:, None] * strides[0] + own[0]
        across = moves[:, :, tap, 1] + torch.arange(size[1])[None, :] * strides[1] + own[1]
        # As grid_sample has places: -1 and 1 are the middles of the outermost pixels.
        grid = torch.stack([2 * across / max(width - 1, 1) - 1, 2 * y / max(height - 1, 1) - 1], dim=-1)
        found = F.grid_sample(images, grid.flatten(0, 1), padding_mode="zeros", align_corners=True)
        found = found.reshape(batch, groups, -1, *size) * weights[:, :, tap, None]
        split = found.reshape(batch, parts, channels // parts, *size)
        kernel = weight[:, :, tap // broad, tap % broad].reshape(parts, rows // parts, -1)
        total = total + torch.einsum("gmc,ngcyx->ngmyx", kernel, split).flatten(1, 2)
    return total if bias is None else total + bias.reshape(1, -1, 1, 1)


@op("CausalConvWithState", domain=MICROSOFT)
def convolve_causally(node, x, weight, bias=None, state=None):
    if x.dim() != 3 or node.get("state_window", 0):
        raise NotImplementedError("CausalConvWithState over several dimensions, or with a window of states")
    last = node.get("channels_last", 0)
    turn = lambda value: value.transpose(1, 2) if last else value
    step = node.get("dilation", 1)
    reach = (weight.shape[-1] - 1) * step
    own = turn(x)
    before = own.new_zeros(*own.shape[:2], reach) if state is None else turn(state)
    joined = torch.cat([before, own], dim=2)
    result = F.conv1d(joined, weight, bias, dilation=step, groups=own.shape[1])
    result = F.silu(result) if node.get("activation", "none") in ("silu", "swish") else result
    return turn(result), turn(joined[:, :, joined.shape[2] - reach :])
