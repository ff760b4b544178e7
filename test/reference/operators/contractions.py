"""Products of matrices and tensors."""

import torch

from .registry import op


@op("MatMul")
def matmul(node, a, b):
    return torch.matmul(a, b)


@op("Gemm")
def gemm(node, a, b, c=None):
    a = a.T if node.get("transA", 0) else a
    b = b.T if node.get("transB", 0) else b
    result = torch.matmul(a, b)
    if node.get("alpha", 1.0) != 1:
        result = result * node.get("alpha")
    if c is None:
        return result
    return result + (c if node.get("beta", 1.0) == 1 else c * node.get("beta"))


@op("Einsum")
def einsum(node, *operands):
    return torch.einsum(node.get("equation").replace(" ", ""), *operands)


@op("Det")
def determinant(node, x):
    return torch.linalg.det(x)
