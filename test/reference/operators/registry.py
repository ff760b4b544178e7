"""The table of operators, and a node as an operator's function sees it."""

import torch

OPERATORS = {}

MICROSOFT = "com.microsoft"


def op(*names, domain=""):
    """Enters a function (node, *operands) -> tensor or tuple of tensors under these names."""

    def enter(function):
        for name in names:
            OPERATORS[(domain, name)] = function
        return function

    return enter


class Call:
    """One call of an operator: attributes, the file's opset, the names of its results, the model around it, and the names of
    its operands."""

    def __init__(self, name, attributes, opset, names, run, operands=()):
        self.name = name
        self.attributes = attributes
        self.opset = opset
        self.names = names
        self.results = len(names)
        self.run = run
        self.operands = operands

    def get(self, name, default=None):
        return self.attributes.get(name, default)

    def ints(self, name, operand, default=None):
        """A list of integers that is an attribute in old opsets and an operand in new ones."""
        if operand is not None:
            return [int(value) for value in operand.reshape(-1).tolist()]
        value = self.attributes.get(name, default)
        return value if value is None else [int(item) for item in value]


def axis_of(axis, dimensions):
    return axis + dimensions if axis < 0 else axis


def take(x, axis, positions):
    """Positions along an axis, differentiably."""
    return torch.index_select(x, axis, torch.as_tensor(positions, dtype=torch.int64))
