"""Attention operators of ONNX Runtime's own domain."""

import math

import torch

from .attention import parted, rotated
from .registry import MICROSOFT, op

# What ONNX Runtime adds to the score of a pair that is masked (attribute mask_filter_value).
MASKED = -10000.0


def attend(node, q, k, bias=None, causal=False, window=None, sink=None):
    """Weights and scores of q and k [B, H, S, D]; a causal query sees up to where it stands, counted from the last key.
    `sink`: a score that takes part in the sum and stands for no key."""
    scale = node.get("scale") or 1 / math.sqrt(q.shape[-1])
    scores = torch.matmul(q, k.transpose(-1, -2)) * scale
    if node.get("softcap", 0.0):
        scores = torch.tanh(scores / node.get("softcap")) * node.get("softcap")
    if bias is not None:
        scores = scores + bias
    if causal:
        rows, columns = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], torch.arange(k.shape[2])[None, :]
        hidden = columns > rows
        if window is not None:
            hidden = hidden | (columns <= rows - window)
        scores = scores.masked_fill(hidden, -math.inf)
    if sink is None:
        return torch.softmax(scores, dim=-1), scores
    beside = torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], dim=-1)
    return torch.softmax(beside, dim=-1)[..., :-1], scores


def mask_bias(node, mask, batch, queries, keys, dtype):
    """Of a key mask in its several forms: lengths, ends and starts, lengths and what packed samples have besides, per key, or
    per pair."""
    value = node.get("mask_filter_value", MASKED)
    columns = torch.arange(keys)
    if mask.dim() == 1:
        valid = columns[None, :] < mask[:batch, None]
        if mask.shape[0] == 2 * batch:
            valid = valid & (columns[None, :] >= mask[batch:, None])
        valid = valid[:, None, None, :]
    elif mask.dim() == 2:
        valid = (mask != 0)[:, None, None, :]
    elif mask.dim() == 3:
        valid = (mask != 0)[:, None, :, :]
    else:
        raise NotImplementedError("a mask of four dimensions")
    return torch.zeros(valid.shape, dtype=dtype).masked_fill(~valid, value)


@op("Attention", domain=MICROSOFT)
def attention(node, x, weight, shift, mask=None, past=None, score_bias=None, *more):
    if more or node.get("do_rotary", 0):
        raise NotImplementedError("Attention with rotary embedding or a shared buffer")
    widths = node.get("qkv_hidden_sizes") or [weight.shape[1] // 3] * 3
    heads = node.get("num_heads")
    q, k, v = (parted(part, heads) for part in torch.split(x @ weight + shift, widths, dim=-1))
    if past is not None:
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
    bias = score_bias
    if mask is not None:
        own = mask_bias(node, mask, x.shape[0], q.shape[2], k.shape[2], x.dtype)
        bias = own if bias is None else bias + own
    weights, _ = attend(node, q, k, bias, bool(node.get("unidirectional", 0)))
    result = torch.matmul(weights, v).transpose(1, 2).flatten(2)
    return result if k.shape != v.shape else (result, torch.stack([k, v]))


@op("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    node, q, k=None, v=None, bias=None, mask=None, score_bias=None, past_key=None, past_value=None, *more
):
    if q.dim() != 3 or k is None or v is None or more:
        raise NotImplementedError("MultiHeadAttention with packed operands or a shared buffer")
    heads = node.get("num_heads")
    if bias is not None:
        # An encoder's keys, which come per head, have their biases.
        if k.dim() == 4:
            q = q + bias[: q.shape[-1]]
        else:
            widths = [q.shape[-1], k.shape[-1], v.shape[-1]]
            q, k, v = (part + own for part, own in zip((q, k, v), torch.split(bias, widths)))
    q, k, v = (part if part.dim() == 4 else parted(part, heads) for part in (q, k, v))
    if past_key is not None:
        k, v = torch.cat([past_key, k], dim=2), torch.cat([past_value, v], dim=2)
    total = score_bias
    if mask is not None:
        own = mask_bias(node, mask, q.shape[0], q.shape[2], k.shape[2], q.dtype)
        total = own if total is None else total + own
    weights, scores = attend(node, q, k, total, bool(node.get("unidirectional", 0)))
    return torch.matmul(weights, v).transpose(1, 2).flatten(2), k, v, scores


@op("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_attention(
    node, q, k=None, v=None, mask=None, score_bias=None, past_key=None, past_value=None, held=None, beams=None,
    indirection=None, bias=None
):
    """One token, whose key and value go to place `held` of the cache; or the keys of an encoder, which get no bias."""
    if k is None or indirection is not None or (past_key is not None and held is None):
        raise NotImplementedError("DecoderMaskedMultiHeadAttention with packed operands, beams, or a cache that grows")
    heads, width = node.get("num_heads"), q.shape[-1]
    if bias is not None:
        q = q + bias[:width]
    if k.dim() == 3:
        if bias is not None:
            k, v = k + bias[width : 2 * width], v + bias[2 * width :]
        k, v = parted(k, heads), parted(v, heads)
    present = ()
    if past_key is not None:
        at = int(held)
        full = [torch.cat([old[:, :, :at], new, old[:, :, at + 1 :]], dim=2) for old, new in ((past_key, k), (past_value, v))]
        present, (k, v) = full, (part[:, :, : at + 1] for part in full)
    total = score_bias
    if mask is not None:
        own = mask_bias(node, mask, q.shape[0], 1, k.shape[2], q.dtype)
        total = own if total is None else total + own
    weights, _ = attend(node, parted(q, heads), k, total)
    return torch.matmul(weights, v).transpose(1, 2).flatten(2), *present


@op("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    node, q, k, v, past_key=None, past_value=None, ends=None, total=None, cosine=None, sine=None,
    positions=None, score_bias=None, sink=None, *more
):
    """`ends`: the place of each sequence's last token. Keys before a sequence's first token are not there; where there is no
    cache to continue, those behind its last are hidden."""
    heads, groups = node.get("num_heads"), node.get("kv_num_heads")
    if more:
        raise NotImplementedError("GroupQueryAttention with quantised caches")
    if k is None:
        width = q.shape[-1] // (heads + 2 * groups)
        q, k, v = torch.split(q, [heads * width, groups * width, groups * width], dim=-1)
    q, k, v = parted(q, heads), parted(k, groups), parted(v, groups)
    begins = int(total) == q.shape[2]
    extra = None if sink is None else sink.reshape(1, -1, 1, 1)
    if extra is None and node.get("smooth_softmax", 0):
        extra = torch.zeros(1, heads, 1, 1, dtype=q.dtype)
    each = []
    for at, last in enumerate(ends.tolist()):
        one = slice(at, at + 1)
        places = None
        if positions is not None:
            places = positions[0, 0] + torch.arange(q.shape[2]) if begins else positions[at]
        past = None if past_key is None else (past_key[one], past_value[one])
        bias = None if score_bias is None else score_bias[one if score_bias.shape[0] > 1 else slice(0, 1)]
        each.append(grouped_sequence(
            node, (q[one], k[one], v[one]), past, 0 if begins else last + 1 - q.shape[2], last if begins else None,
            (cosine, sine, places), bias, extra, int(total),
        ))
    return tuple(torch.cat(parts) for parts in zip(*each))


def grouped_sequence(node, parts, past, before, last, angles, bias, sink, total):
    """One sequence of GroupQueryAttention, `before` tokens of which are in the cache."""
    q, k, v = parts
    cosine, sine, places = angles
    steps, heads, groups = q.shape[2], q.shape[1], k.shape[1]
    if node.get("do_rotary", 0):
        at = (before + torch.arange(steps) if places is None else places)[None, :]
        turn = lambda part: rotated(part, cosine[at], sine[at], node.get("rotary_interleaved", 0), 2 * cosine.shape[-1])
        q, k = turn(q), turn(k)
    if past is not None:
        k, v = (torch.cat([held[:, :, :before], part], dim=2) for held, part in zip(past, (k, v)))
    # A buffer with room behind the last token keeps its size.
    room = max(total, 0 if past is None else past[0].shape[2]) - k.shape[2]
    present = tuple(torch.nn.functional.pad(part, [0, 0, 0, room]) for part in (k, v))
    k, v = (part.repeat_interleave(heads // groups, dim=1) for part in (k, v))
    hidden = torch.zeros(1, 1, 1, k.shape[2], dtype=q.dtype)
    if last is not None:
        hidden = hidden.masked_fill(torch.arange(k.shape[2]) > last, -math.inf)
    if bias is not None:
        hidden = hidden + bias[..., : k.shape[2]]
    window = node.get("local_window_size", -1)
    weights, _ = attend(node, q, k, hidden, True, None if window < 0 else window, sink)
    return torch.matmul(weights, v).transpose(1, 2).flatten(2), *present


@op("LinearAttention", domain=MICROSOFT)
def linear_attention(node, q, k, v, state=None, decay=None, rate=None):
    """Head by head of the values: a state of keys by values that every position writes to and reads."""
    if node.get("state_window", 0):
        raise NotImplementedError("LinearAttention with a window of states")
    heads, states = node.get("q_num_heads"), node.get("kv_num_heads")
    width, rule = q.shape[-1] // heads, node.get("update_rule", "gated_delta")
    scale = node.get("scale") or 1 / math.sqrt(width)
    q, v = parted(q, heads), parted(v, states)
    k = parted(k, k.shape[-1] // width)
    own = lambda part, head: part[:, head * part.shape[1] // states]
    per_head = lambda part, head, at: (
        part[:, at, head * part.shape[2] // states :][:, : part.shape[2] // states or 1, None]
    )
    answers, final = [None] * max(heads, states), []
    for head in range(states):
        matrix = v.new_zeros(v.shape[0], width, v.shape[-1]) if state is None else state[:, head]
        readers = [reader for reader in range(max(heads, states)) if reader * states // max(heads, states) == head]
        made = {reader: [] for reader in readers}
        for at in range(q.shape[2]):
            key, value = own(k, head)[:, at], v[:, head, at]
            if rule.startswith("gated") and decay is not None:
                matrix = matrix * torch.exp(per_head(decay, head, at))
            if rule.endswith("delta"):
                value = value - torch.einsum("be,bef->bf", key, matrix)
                value = value if rate is None else value * per_head(rate, head, at)[:, 0]
            matrix = matrix + key[:, :, None] * value[:, None, :]
            for reader in readers:
                made[reader].append(scale * torch.einsum("be,bef->bf", q[:, reader * heads // max(heads, states), at], matrix))
        final.append(matrix)
        for reader in readers:
            answers[reader] = torch.stack(made[reader], dim=1)
    return torch.cat(answers, dim=-1), torch.stack(final, dim=1)
