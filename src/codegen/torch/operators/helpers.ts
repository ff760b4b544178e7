/**
 * @file Functions that emitted programs carry in operators.py where torch has none that does the same: those that a program
 * calls.
 */

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
    dims = [dim for dim in range(x.dim()) if dim != 1]
    now_var, now_mean = torch.var_mean(x, dims, correction=0)
    y = F.batch_norm(x, now_mean, now_var, scale, bias, False, 0.0, eps)
    return y, mean * momentum + now_mean * (1 - momentum), var * momentum + now_var * (1 - momentum)
`;

const rotary = `def rotary_embedding(x, cos, sin, heads=0, interleaved=False, size=0):
    """ONNX's RotaryEmbedding: pairs of features are turned by the angle of their position."""
    shape = x.shape
    if len(shape) == 3:
        x = x.reshape(shape[0], shape[1], heads, -1).transpose(1, 2)
    cos, sin, size = cos.unsqueeze(1), sin.unsqueeze(1), size or x.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    pair = a * cos - b * sin, a * sin + b * cos
    turned = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    y = torch.cat([turned, rest], -1)
    return y.transpose(1, 2).reshape(shape) if len(shape) == 3 else y
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
    y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=True)
    return y.transpose(1, 2).flatten(2) if joined else y
`;

const topK = `def top_k(x, k, dim, largest=True):
    """ONNX's TopK: of equal values the one with the lower index comes first."""
    values, index = torch.sort(x, dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, k), index.narrow(dim, 0, k)
`;

export const HELPERS = {
  top_k: topK,
  rotary_embedding: rotary,
  attention,
  from_end: wrap,
  scatter_nd: scatterNd,
  one_hot: oneHot,
  batch_norm_training: batchStatistics,
} as const;

export type HelperName = keyof typeof HELPERS;
