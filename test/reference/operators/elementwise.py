"""Element-wise operators."""

import math

import torch
import torch.nn.functional as F

from .registry import op


def unary(name, function):
    op(name)(lambda node, x: function(x))


for _name, _function in {
    "Identity": lambda x: x,
    "Neg": torch.neg,
    "Abs": torch.abs,
    "Ceil": torch.ceil,
    "Floor": torch.floor,
    "Round": torch.round,
    "Sign": torch.sign,
    "Relu": torch.relu,
    "Exp": torch.exp,
    "Log": torch.log,
    "Sqrt": torch.sqrt,
    "Reciprocal": torch.reciprocal,
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Erf": torch.erf,
    "Softsign": F.softsign,
    "Softplus": lambda x: F.softplus(x, threshold=40),
    "HardSwish": lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * torch.tanh(F.softplus(x, threshold=40)),
    "Sin": torch.sin,
    "Cos": torch.cos,
    "Tan": torch.tan,
    "Asin": torch.asin,
    "Acos": torch.acos,
    "Atan": torch.atan,
    "Sinh": torch.sinh,
    "Cosh": torch.cosh,
    "Asinh": torch.asinh,
    "Acosh": torch.acosh,
    "Atanh": torch.atanh,
    "Not": torch.logical_not,
    "BitwiseNot": torch.bitwise_not,
    "IsNaN": torch.isnan,
}.items():
    unary(_name, _function)


def binary(name, function):
    op(name)(lambda node, a, b: function(a, b))


for _name, _function in {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
    "Equal": torch.eq,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
}.items():
    binary(_name, _function)


@op("Div")
def div(node, a, b):
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@op("Pow")
def power(node, base, exponent):
    return torch.pow(base, exponent).to(base.dtype)


@op("Mod")
def modulo(node, a, b):
    return torch.fmod(a, b) if node.get("fmod", 0) else torch.remainder(a, b)


@op("IsInf")
def is_infinite(node, x):
    found = torch.zeros_like(x, dtype=torch.bool)
    if node.get("detect_positive", 1):
        found = found | (x == math.inf)
    if node.get("detect_negative", 1):
        found = found | (x == -math.inf)
    return found


@op("LeakyRelu")
def leaky_relu(node, x):
    return F.leaky_relu(x, node.get("alpha", 0.01))


@op("ThresholdedRelu")
def thresholded_relu(node, x):
    return torch.where(x > node.get("alpha", 1.0), x, torch.zeros_like(x))


@op("Shrink")
def shrink(node, x):
    bound, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    zero = torch.zeros_like(x)
    return torch.where(x > bound, x - bias, torch.where(x < -bound, x + bias, zero))


@op("HardSigmoid")
def hard_sigmoid(node, x):
    return torch.clamp(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


@op("Swish")
def swish(node, x):
    return x * torch.sigmoid(node.get("alpha", 1.0) * x)


@op("Gelu")
def gelu(node, x):
    return F.gelu(x, approximate=node.get("approximate", "none"))


@op("Elu")
def elu(node, x):
    return F.elu(x, node.get("alpha", 1.0))


@op("Selu")
def selu(node, x):
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    return gamma * F.elu(x, alpha)


@op("Celu")
def celu(node, x):
    return F.celu(x, node.get("alpha", 1.0))


@op("PRelu")
def prelu(node, x, slope):
    return torch.where(x > 0, x, slope * x)


@op("Sum")
def total(node, *operands):
    result = operands[0]
    for operand in operands[1:]:
        result = result + operand
    return result


@op("Mean")
def mean(node, *operands):
    return total(node, *operands) / len(operands)


@op("Max")
def maximum(node, *operands):
    result = operands[0]
    for operand in operands[1:]:
        result = torch.maximum(result, operand)
    return result


@op("Min")
def minimum(node, *operands):
    result = operands[0]
    for operand in operands[1:]:
        result = torch.minimum(result, operand)
    return result


@op("Where")
def where(node, condition, a, b):
    return torch.where(condition, a, b)


@op("Clip")
def clip(node, x, low=None, high=None):
    low = node.get("min") if low is None else low
    high = node.get("max") if high is None else high
    if low is None and high is None:
        return x
    if any(isinstance(bound, torch.Tensor) for bound in (low, high)):
        low, high = (None if bound is None else torch.as_tensor(bound, dtype=x.dtype) for bound in (low, high))
    return torch.clamp(x, low, high)


@op("Cast")
def cast(node, x):
    return x.to(node.run.dtype_of(node.get("to")))


@op("CastLike")
def cast_like(node, x, target):
    return x.to(target.dtype)


@op("Dropout")
def dropout(node, x, ratio=None, training=None):
    share = 0.5 if ratio is None else float(ratio)
    mask = node.run.masks.get(node.names[0])
    if mask is not None:
        return x * mask.to(x.dtype) / (1 - share), mask
    if training is not None and bool(training) and share > 0:
        raise NotImplementedError("Dropout that draws: two generators never agree")
    return x, torch.ones_like(x, dtype=torch.bool)


@op("BitShift")
def bit_shift(node, x, by):
    wide, amount = x.to(torch.int64), by.to(torch.int64)
    return (wide << amount if node.get("direction") == "LEFT" else wide >> amount).to(x.dtype)
