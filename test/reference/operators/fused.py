"""Fused operators of ONNX Runtime's own domain that have a plain equivalent."""

import torch
import torch.nn.functional as F

from .attention import parted, rotated
from .contractions import gemm
from .normalisation import layer_normalisation, root_mean_square
from .registry import MICROSOFT, op
from .windows import convolve


@op("BiasGelu", domain=MICROSOFT)
def bias_gelu(node, x, bias):
    return F.gelu(x + bias)


@op("Gelu", domain=MICROSOFT)
def exact_gelu(node, x):
    return F.gelu(x)


@op("FastGelu", domain=MICROSOFT)
def fast_gelu(node, x, bias=None):
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@op("QuickGelu", domain=MICROSOFT)
def quick_gelu(node, x):
    return x * torch.sigmoid(node.get("alpha", 1.702) * x)


@op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node, a, b):
    a = turned(a, node.get("transA", 0), node.get("transBatchA", 0))
    b = turned(b, node.get("transB", 0), node.get("transBatchB", 0))
    return torch.matmul(a, b) * node.get("alpha", 1.0)


def turned(x, last, batch):
    if batch:
        x = torch.movedim(x, 0, -2)
    return x.transpose(-1, -2) if last and x.dim() > 1 else x


def activated(node, x, name):
    given = node.get("activation_params") or [node.get("activation_alpha"), node.get("activation_beta")]
    first, second = (*[value for value in given if value is not None], None, None)[:2]
    functions = {
        "": lambda value: value,
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "LeakyRelu": lambda value: F.leaky_relu(value, 0.01 if first is None else first),
        "HardSigmoid": lambda value: torch.clamp(
            (0.2 if first is None else first) * value + (0.5 if second is None else second), 0, 1
        ),
        "Clip": lambda value: torch.clamp(value, first, second),
        "Elu": lambda value: F.elu(value, 1.0 if first is None else first),
        "Softplus": F.softplus,
        "Softsign": F.softsign,
    }
    return functions[name](x)


@op("FusedGemm", domain=MICROSOFT)
def fused_gemm(node, a, b, c=None):
    return activated(node, gemm(node, a, b, c), node.get("activation", ""))


@op("FusedConv", domain=MICROSOFT)
def fused_convolution(node, x, weight, bias=None, added=None):
    result = convolve(node, x, weight, bias)
    return activated(node, result if added is None else result + added, node.get("activation", ""))


@op("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalisation(node, x, skip, scale, shift=None, bias=None):
    total = x + skip if bias is None else x + skip + bias
    return *layer_normalisation(node, total, scale, shift), total


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_root_mean_square(node, x, skip, scale, bias=None):
    total = x + skip if bias is None else x + skip + bias
    result, inverse = root_mean_square(node, total, scale)
    return result, None, inverse, total


@op("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalisation(node, x, scale):
    return root_mean_square(node, x, scale)


@op("RotaryEmbedding", domain=MICROSOFT)
def fused_rotary(node, x, positions, cosine, sine):
    heads, flat = node.get("num_heads", 0), x.dim() == 3
    width = node.get("rotary_embedding_dim", 0) or 2 * cosine.shape[-1]
    parts = parted(x, heads or x.shape[-1] // width) if flat else x
    steps = torch.arange(parts.shape[2])
    places = positions + steps if positions.numel() == 1 else positions
    places = places.reshape(-1, parts.shape[2]).expand(parts.shape[0], -1)
    result = rotated(parts, cosine[places], sine[places], node.get("interleaved", 0), width)
    return result.transpose(1, 2).flatten(2) if flat else result


@op("GatedAdd", domain=MICROSOFT)
def gated_add(node, x, added, gate):
    return x + added * gate


@op("GatedRMSNorm", domain=MICROSOFT)
def gated_root_mean_square(node, x, scale, gate):
    parts = x.unflatten(-1, (-1, scale.shape[0]))
    inverse = torch.rsqrt((parts * parts).mean(dim=-1, keepdim=True) + node.get("epsilon", 1e-5))
    return (parts * inverse * scale).reshape(x.shape) * F.silu(gate)


@op("EmbedLayerNormalization", domain=MICROSOFT)
def embedded(node, words, segments, table, places, segment_table, scale, shift, mask=None, positions=None):
    at = torch.arange(words.shape[1])[None, :] if positions is None else positions.long()
    total = table[words.long()] + places[at]
    if segments is not None:
        total = total + segment_table[segments.long()]
    centred = total - total.mean(dim=-1, keepdim=True)
    inverse = torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + node.get("epsilon", 1e-12))
    counts = torch.zeros(words.shape[0], dtype=torch.int32) if mask is None else mask.sum(dim=-1).to(torch.int32)
    return centred * inverse * scale + shift, counts, total
