"""Normalisations, the softmax family, and losses."""

import torch
import torch.nn.functional as F

from .registry import axis_of, op


@op("Softmax", "LogSoftmax", "Hardmax")
def softmax(node, x):
    function = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax, "Hardmax": hardest}[node.name]
    if node.opset >= 13:
        return function(x, axis_of(node.get("axis", -1), x.dim()))
    axis = axis_of(node.get("axis", 1), x.dim())
    return function(x.flatten(axis) if axis < x.dim() else x.unsqueeze(-1), axis).reshape(x.shape)


def hardest(x, axis):
    best = x == torch.amax(x, dim=axis, keepdim=True)
    place = torch.argmax(best.to(torch.uint8), dim=axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, place, 1.0)


def along_channels(vector, x):
    return vector.reshape([1, -1] + [1] * (x.dim() - 2))


@op("BatchNormalization")
def batch_normalisation(node, x, scale, bias, mean, variance):
    momentum, epsilon = node.get("momentum", 0.9), node.get("epsilon", 1e-5)
    trains = bool(node.get("training_mode", 0)) or node.run.training
    results = ()
    if trains:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        own_mean, own_variance = x.mean(dim=axes), x.var(dim=axes, unbiased=False)
        # A module that is called again goes on from what its first call left.
        mean, variance = (
            node.run.statistics.get(name, old) for name, old in zip(node.operands[3:5], (mean, variance))
        )
        # ONNX keeps the variance of the batch itself; PyTorch's module keeps the unbiased one.
        results = tuple(
            old * momentum + new * (1 - momentum) for old, new in ((mean, own_mean), (variance, own_variance))
        )
        node.run.keep_statistics(node, results)
        mean, variance = own_mean, own_variance
    centred = x - along_channels(mean, x)
    normal = centred / torch.sqrt(along_channels(variance, x) + epsilon)
    return (normal * along_channels(scale, x) + along_channels(bias, x), *results)


@op("InstanceNormalization")
def instance_normalisation(node, x, scale, bias):
    axes = list(range(2, x.dim()))
    centred = x - x.mean(dim=axes, keepdim=True)
    normal = centred / torch.sqrt((centred * centred).mean(dim=axes, keepdim=True) + node.get("epsilon", 1e-5))
    return normal * along_channels(scale, x) + along_channels(bias, x)


@op("LayerNormalization")
def layer_normalisation(node, x, scale, bias=None):
    axis = axis_of(node.get("axis", -1), x.dim())
    axes = list(range(axis, x.dim()))
    mean = x.mean(dim=axes, keepdim=True)
    centred = x - mean
    inverse = torch.rsqrt((centred * centred).mean(dim=axes, keepdim=True) + node.get("epsilon", 1e-5))
    result = centred * inverse * scale
    return (result if bias is None else result + bias), mean, inverse


@op("RMSNormalization", "SimplifiedLayerNormalization")
def root_mean_square(node, x, scale):
    axes = list(range(axis_of(node.get("axis", -1), x.dim()), x.dim()))
    inverse = torch.rsqrt((x * x).mean(dim=axes, keepdim=True) + node.get("epsilon", 1e-5))
    return x * inverse * scale, inverse


@op("GroupNormalization")
def group_normalisation(node, x, scale, bias):
    groups = node.get("num_groups")
    parts = x.reshape(x.shape[0], groups, -1)
    centred = parts - parts.mean(dim=-1, keepdim=True)
    normal = centred / torch.sqrt((centred * centred).mean(dim=-1, keepdim=True) + node.get("epsilon", 1e-5))
    if scale.numel() == groups and groups != x.shape[1]:
        return (normal * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1)).reshape(x.shape)
    return normal.reshape(x.shape) * along_channels(scale, x) + along_channels(bias, x)


@op("MeanVarianceNormalization")
def mean_variance(node, x):
    axes = node.get("axes") or [0, 2, 3]
    centred = x - x.mean(dim=axes, keepdim=True)
    return centred / (torch.sqrt((centred * centred).mean(dim=axes, keepdim=True)) + 1e-9)


@op("LpNormalization")
def norm_of_order(node, x):
    length = torch.linalg.vector_norm(x, ord=node.get("p", 2), dim=node.get("axis", -1), keepdim=True)
    return x / torch.where(length == 0, torch.ones_like(length), length)


@op("LRN")
def local_response(node, x):
    size = node.get("size")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = F.pad(x * x, [0, 0] * (x.dim() - 2) + [before, after])
    total = sum(torch.narrow(squares, 1, shift, x.shape[1]) for shift in range(size))
    return x / (node.get("bias", 1.0) + node.get("alpha", 1e-4) / size * total) ** node.get("beta", 0.75)


@op("SoftmaxCrossEntropyLoss")
def cross_entropy(node, scores, labels, weight=None):
    logarithms = torch.log_softmax(scores, dim=1)
    return likelihood(node, logarithms, labels, weight), logarithms


@op("NegativeLogLikelihoodLoss")
def likelihood(node, logarithms, labels, weight=None):
    """Written out, since PyTorch's own passes no gradient to the weights."""
    labels = labels.long()
    counts = labels != node.get("ignore_index", -100)
    chosen = torch.where(counts, labels, torch.zeros_like(labels))
    weights = torch.ones_like(logarithms[:, 0]) if weight is None else weight[chosen]
    weights = torch.where(counts, weights, torch.zeros_like(weights))
    losses = -torch.gather(logarithms, 1, chosen.unsqueeze(1)).squeeze(1) * weights
    kind = node.get("reduction", "mean")
    return {"none": lambda: losses, "sum": losses.sum, "mean": lambda: losses.sum() / weights.sum()}[kind]()
