/**
 * @file Functions that emitted programs carry in operators.py where torch has none that does the same: those that a program calls.
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

export const HELPERS = {
  from_end: wrap,
  scatter_nd: scatterNd,
  one_hot: oneHot,
  batch_norm_training: batchStatistics,
} as const;

export type HelperName = keyof typeof HELPERS;
