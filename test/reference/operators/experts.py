"""Mixtures of experts of ONNX Runtime's own domain, token by token and expert by expert."""

import torch
import torch.nn.functional as F

from .registry import MICROSOFT, op


def activation(node, x):
    kind = node.get("activation_type", "relu")
    if kind == "swiglu":
        if node.get("swiglu_fusion", 0) != 1:
            raise NotImplementedError("SwiGLU whose gates do not take turns with the other features")
        gate, other = x[..., 0::2], x[..., 1::2]
        limit = node.get("swiglu_limit")
        if limit is not None:
            gate, other = gate.clamp(max=limit), other.clamp(-limit, limit)
        return gate * torch.sigmoid(node.get("activation_alpha", 1.0) * gate) * (other + node.get("activation_beta", 0.0))
    plain = {"relu": F.relu, "silu": F.silu, "identity": lambda value: value}
    plain["gelu"] = lambda value: F.gelu(value, approximate="tanh")
    return plain[kind](x)


def mixed(node, x, scores, first, first_bias, second, second_bias, normalised):
    """Weights [expert, features made, features read]."""
    rows, count = x.reshape(-1, x.shape[-1]), node.get("k", 4)
    chances = torch.softmax(scores, dim=-1)
    results = []
    for row, own, score in zip(rows, chances, scores):
        chosen = torch.topk(score, count).indices.tolist()
        total = sum(own[expert] for expert in chosen) if normalised else 1.0
        result = 0
        for expert in chosen:
            hidden = first[expert] @ row
            if first_bias is not None:
                hidden = hidden + first_bias[expert]
            made = second[expert] @ activation(node, hidden)
            if second_bias is not None:
                made = made + second_bias[expert]
            result = result + own[expert] / total * made
        results.append(result)
    return torch.stack(results).reshape(x.shape)


@op("MoE", domain=MICROSOFT)
def mixture_of_experts(node, x, scores, first, first_bias, second, second_bias=None, *gates):
    if gates or node.get("use_sparse_mixer", 0):
        raise NotImplementedError("MoE with gates of their own, or a sparse mixer")
    return mixed(node, x, scores, first, first_bias, second, second_bias, node.get("normalize_routing_weights", 0))


def numbers(packed, bits):
    """Of bytes, the numbers in them along the last dimension, lowest bits first."""
    parts = [(packed.long() >> low) & (2**bits - 1) for low in range(0, 8, bits)]
    return torch.stack(parts, dim=-1).flatten(-2)


def unpacked(node, packed, scales, points):
    bits = node.get("expert_weight_bits", 4)
    scales = scales.reshape(*packed.shape[:2], -1)
    values = numbers(packed, bits).unflatten(-1, (scales.shape[-1], -1))
    shift = torch.full_like(scales, 2 ** (bits - 1))
    if points is not None:
        own = numbers(points, bits)
        shift = own[..., : packed.shape[1], None] if points.dim() == 2 else own[..., : scales.shape[-1]]
    return ((values - shift[..., None]) * scales[..., None]).flatten(-2)


@op("QMoE", domain=MICROSOFT)
def quantised_mixture(
    node, x, scores, first, first_scales, first_bias, second, second_scales, second_bias=None, gate=None, gate_scales=None,
    gate_bias=None, first_points=None, second_points=None, *more
):
    if gate is not None or more:
        raise NotImplementedError("QMoE with gates of their own, or a router's weights")
    matrices = unpacked(node, first, first_scales, first_points), unpacked(node, second, second_scales, second_points)
    # Whatever normalize_routing_weights says.
    return mixed(node, x, scores, matrices[0], first_bias, matrices[1], second_bias, True)
