"""Attention and rotary embeddings of ONNX's own domain."""

import math

import torch

from .registry import op


def parted(x, heads):
    """[B, S, H · D] → [B, H, S, D]."""
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def as_bias(mask, dtype):
    """A truth value lets a pair through."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)


@op("Attention")
def attention(node, q, k, v, mask=None, past_key=None, past_value=None, lengths=None):
    flat = q.dim() == 3
    if flat:
        q = parted(q, node.get("q_num_heads"))
        k, v = parted(k, node.get("kv_num_heads")), parted(v, node.get("kv_num_heads"))
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = torch.cat([past_key, k], dim=2), torch.cat([past_value, v], dim=2)
    present = (k, v)
    repeats = q.shape[1] // k.shape[1]
    k, v = (part.repeat_interleave(repeats, dim=1) for part in (k, v))
    root = math.sqrt(node.get("scale") or 1 / math.sqrt(q.shape[-1]))
    scores = torch.matmul(q * root, (k * root).transpose(-1, -2))
    seen = {0: scores}
    if node.get("softcap", 0.0):
        scores = torch.tanh(scores / node.get("softcap")) * node.get("softcap")
    seen[1] = scores
    bias = torch.zeros(scores.shape[-2:], dtype=q.dtype)
    if mask is not None:
        own = as_bias(mask, q.dtype)
        missing = k.shape[2] - own.shape[-1]
        bias = bias + torch.nn.functional.pad(own, [0, missing], value=-math.inf)
    if node.get("is_causal", 0):
        rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
        offset = past if lengths is None else (lengths - q.shape[2]).reshape(-1, 1, 1, 1)
        bias = bias + as_bias(columns <= rows + offset, q.dtype)
    if lengths is not None:
        valid = torch.arange(k.shape[2]) < lengths[:, None]
        bias = bias + as_bias(valid, q.dtype)[:, None, None, :]
    scores = scores + bias
    seen[2] = scores
    nothing = torch.isneginf(bias.amax(dim=-1, keepdim=True))
    weights = torch.softmax(scores.masked_fill(nothing, 0.0), dim=-1).masked_fill(nothing, 0.0)
    seen[3] = weights
    result = torch.matmul(weights, v)
    if flat:
        result = result.transpose(1, 2).flatten(2)
    return result, *present, seen[node.get("qk_matmul_output_mode", 0)]


@op("RotaryEmbedding")
def rotary(node, x, cosine, sine, positions=None):
    flat = x.dim() == 3
    parts = parted(x, node.get("num_heads")) if flat else x
    if positions is not None:
        cosine, sine = cosine[positions], sine[positions]
    turned = rotated(parts, cosine, sine, node.get("interleaved", 0), node.get("rotary_embedding_dim", 0))
    return turned.transpose(1, 2).flatten(2) if flat else turned


def rotated(x, cosine, sine, interleaved, width):
    """x [B, H, S, D] with cosine and sine [B, S, D / 2]; only the first `width` features turn, all of them for 0."""
    width = width or x.shape[-1]
    turning, rest = x[..., :width], x[..., width:]
    cosine, sine = (part[:, None, :, : width // 2] for part in (cosine, sine))
    if interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = turning[..., : width // 2], turning[..., width // 2 :]
    real, imaginary = first * cosine - second * sine, first * sine + second * cosine
    if interleaved:
        both = torch.stack([real, imaginary], dim=-1).flatten(-2)
    else:
        both = torch.cat([real, imaginary], dim=-1)
    return torch.cat([both, rest], dim=-1)
