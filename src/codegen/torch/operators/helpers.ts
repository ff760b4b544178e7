/**
 * @file Functions that emitted programs carry in operators.py where torch has none that does the same: those that a program
 * calls.
 */

import { IMAGE_HELPERS } from './images.js';
import { QUANTISED_HELPERS } from './quantised.js';
import { RECURRENT_HELPERS } from './recurrent.js';

const wrap = `def from_end(index, size):
    """Indices below zero count from the end; others stay, so that one outside is an error."""
    return torch.where(index < 0, index + size, index)
`;

const scatterNd = `def scatter_nd(x, index, updates, accumulate=False):
    """ONNX's ScatterND: the last dimension of the index names places in the first dimensions of x."""
    return x.index_put(tuple(index.unbind(-1)), updates, accumulate)
`;

const oneHot = `def one_hot(index, depth, values, dim):
    """ONNX's OneHot: \`values\` holds the values off and on."""
    index = torch.where(index < 0, index + depth, index).unsqueeze(dim)
    shape = [1] * index.dim()
    shape[dim] = depth
    places = torch.arange(depth, dtype=index.dtype).reshape(shape)
    return torch.where(index == places, values[1], values[0])
`;

const batchStatistics = `def batch_norm_training(x, scale, bias, mean, var, eps, momentum):
    """ONNX's BatchNormalization in training: the running variance takes the biased one."""
    y, now_mean, now_inverse = torch.native_batch_norm(x, scale, bias, None, None, True, 0.0, eps)
    now_var = now_inverse.detach() ** -2 - eps
    return y, mean * momentum + now_mean.detach() * (1 - momentum), var * momentum + now_var * (1 - momentum)
`;

const rotary = `def rotary_embedding(x, cos, sin, heads=0, interleaved=False, size=0):
    """ONNX's RotaryEmbedding: pairs of features are rotated by the angle of their position."""
    shape, heads_at = x.shape, 1
    if len(shape) == 3:
        x, heads_at = x.reshape(shape[0], shape[1], heads, -1), 2
    cos, sin, size = cos.unsqueeze(heads_at), sin.unsqueeze(heads_at), size or x.shape[-1]
    turned, rest = x.split([size, x.shape[-1] - size], -1)
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    pair = a * cos - b * sin, a * sin + b * cos
    parts = [torch.stack(pair, -1).flatten(-2)] if interleaved else [*pair]
    return torch.cat([*parts, rest] if rest.shape[-1] > 0 else parts, -1).reshape(shape)
`;

const attention = `def attention(q, k, v, mask=None, heads=0, kv_heads=0, causal=False, scale=None):
    """ONNX's Attention: heads are a dimension, or part of the last one."""
    joined = q.dim() == 3
    if joined:
        q, k, v = (
            x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)
            for x, count in ((q, heads), (k, kv_heads), (v, kv_heads))
        )
    if causal and mask is not None:
        ahead = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
        mask = mask & ~ahead if mask.dtype == torch.bool else mask.masked_fill(ahead, float("-inf"))
        causal = False
    if mask is not None and q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=True)
    return y.transpose(1, 2).flatten(2) if joined else y
`;

const scoredAttention = `def scored_attention(
    q,
    k,
    v,
    mask=None,
    heads=0,
    kv_heads=0,
    causal=False,
    scale=None,
    past_k=None,
    past_v=None,
    lengths=None,
    softcap=0.0,
    shown=0,
):
    """ONNX's Attention, its scores written out, and its four results: y, keys, values, and scores."""
    joined = q.dim() == 3
    if joined:
        q, k, v = (
            x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)
            for x, count in ((q, heads), (k, kv_heads), (v, kv_heads))
        )
    past = 0 if past_k is None else past_k.shape[2]
    if past_k is not None:
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    present, groups = (k, v), q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = [q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)]
    scores.append(softcap * torch.tanh(scores[0] / softcap) if softcap else scores[0])
    bias = torch.zeros(scores[0].shape[-2:], dtype=q.dtype)
    column = torch.arange(k.shape[2])
    if mask is not None:
        added = mask
        if mask.dtype == torch.bool:
            added = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, float("-inf"))
        bias = bias + F.pad(added, (0, k.shape[2] - added.shape[-1]), value=float("-inf"))
    if causal:
        offset = past if lengths is None else (lengths - q.shape[2]).reshape(-1, 1, 1, 1)
        bias = bias.masked_fill(column > torch.arange(q.shape[2]).unsqueeze(1) + offset, float("-inf"))
    if lengths is not None:
        bias = bias.masked_fill(column >= lengths.reshape(-1, 1, 1, 1), float("-inf"))
    scores.append(scores[1] + bias)
    empty = torch.isneginf(bias.amax(-1, keepdim=True))
    scores.append(torch.softmax(scores[2].masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0))
    y = scores[3] @ v
    return y.transpose(1, 2).flatten(2) if joined else y, *present, scores[shown]
`;

const gatherNd = `def gather_nd(x, index, batch):
    """ONNX's GatherND: the first dimensions of x and index are the same."""
    rows = x.reshape(-1, *x.shape[batch:])
    places = index.reshape(rows.shape[0], -1, index.shape[-1])
    first = torch.arange(rows.shape[0]).unsqueeze(1)
    return rows[(first, *places.unbind(-1))].reshape(*index.shape[:-1], *x.shape[batch + index.shape[-1] :])
`;

const reverseSequence = `def reverse_sequence(x, lengths, time, batch):
    """ONNX's ReverseSequence: the first elements of each sequence along time, as many as its length."""
    step = torch.arange(x.shape[time]).reshape([-1 if dim == time else 1 for dim in range(x.dim())])
    length = lengths.reshape([-1 if dim == batch else 1 for dim in range(x.dim())])
    return torch.gather(x, time, torch.where(step < length, length - 1 - step, step).expand(x.shape))
`;

const tensorScatter = `def tensor_scatter(x, update, dim, starts=None, circular=False):
    """ONNX's TensorScatter: writes an update into a cache, of each sequence from its start on."""
    places = torch.arange(update.shape[dim]).reshape([-1 if place == dim else 1 for place in range(x.dim())])
    if starts is not None:
        places = places + starts.reshape([-1] + [1] * (x.dim() - 1))
    places = places.remainder(x.shape[dim]) if circular else places
    return torch.scatter(x, dim, places.expand(update.shape), update)
`;

const padWithOwn = `def pad_with_own(x, dim, before, after, mode):
    """ONNX's Pad with values of x itself: reflect, edge or wrap."""
    size = x.shape[dim]
    at = torch.arange(-before, size + after)
    if mode == "reflect":
        at = at.remainder(max(2 * size - 2, 1))
        at = torch.where(at >= size, 2 * size - 2 - at, at)
    at = at.remainder(size) if mode == "wrap" else at.clamp(0, size - 1)
    return x.index_select(dim, at)
`;

const topK = `def top_k(x, k, dim, largest=True):
    """ONNX's TopK: of equal values the one with the lower index comes first."""
    values, index = torch.sort(x, dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, k), index.narrow(dim, 0, k)
`;

const shiftedRight = `def shifted_right(x, by):
    """Of 64 bits without a sign: zeros come in."""
    x, by = x.long(), by.long()
    return torch.where(by == 0, x, (x >> 1 & 2**63 - 1) >> (by - 1).clamp(min=0)).to(torch.uint64)
`;

const recorded = `def recorded(function, operands, *others):
    """A function's results, and what autograd keeps for the gradients of its first operands, without the results."""
    with torch.enable_grad():
        operands = [x.detach().requires_grad_() for x in operands]
        results = function(*operands, *others)
    results = results if isinstance(results, tuple) else (results,)
    return *(x.detach() for x in results), (torch.autograd.graph.get_gradient_edge(results[0]), operands)
`;

const gradients = `def gradients(record, slope):
    """Gradients of operands, where \`slope\` is that of the first result; zero for operands that are not read."""
    return torch.autograd.grad(*record, slope, materialize_grads=True)
`;

export const HELPERS = {
  recorded,
  gradients,
  top_k: topK,
  rotary_embedding: rotary,
  attention,
  scored_attention: scoredAttention,
  gather_nd: gatherNd,
  reverse_sequence: reverseSequence,
  tensor_scatter: tensorScatter,
  pad_with_own: padWithOwn,
  shifted_right: shiftedRight,
  from_end: wrap,
  scatter_nd: scatterNd,
  one_hot: oneHot,
  batch_norm_training: batchStatistics,
  ...IMAGE_HELPERS,
  ...QUANTISED_HELPERS,
  ...RECURRENT_HELPERS,
} as const;

export type HelperName = keyof typeof HELPERS;
