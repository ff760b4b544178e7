"""An ONNX file as a list of calls of PyTorch functions, and one run of it."""

import onnx
import torch
from onnx import numpy_helper
from operators.registry import OPERATORS, Call

DTYPES = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.BFLOAT16: torch.bfloat16,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.INT16: torch.int16,
    onnx.TensorProto.INT8: torch.int8,
    onnx.TensorProto.UINT8: torch.uint8,
    onnx.TensorProto.BOOL: torch.bool,
}


class Step:
    """A node: its function (or the steps of a local function), its call, and the names around it."""

    def __init__(self, function, call, inputs, outputs):
        self.function = function
        self.call = call
        self.inputs = inputs
        self.outputs = outputs


class Body:
    """The steps of a local function with the names of its operands and results."""

    def __init__(self, steps, inputs, outputs):
        self.steps = steps
        self.inputs = inputs
        self.outputs = outputs


class Model:
    """A file, read. `dtype` is what all floating-point numbers become; None leaves them as the file has them."""

    def __init__(self, path, dtype=None):
        self.dtype = dtype
        self.training = False
        self.statistics = {}
        self.masks = {}
        proto = onnx.load(path)
        self.functions = {(item.domain, item.name): item for item in proto.functions}
        self.constants = {item.name: self.tensor(item) for item in proto.graph.initializer}
        self.outputs = [item.name for item in proto.graph.output]
        opsets = {item.domain: item.version for item in proto.opset_import}
        self.steps = self.read(proto.graph.node, opsets, {})
        for step in self.steps:
            if step.call is not None and step.call.name == "Constant":
                self.constants[step.outputs[0]] = step.function(step.call)
        self.steps = [step for step in self.steps if step.call is None or step.call.name != "Constant"]

    def tensor(self, proto):
        """A tensor of the file; 4-byte half floats that NumPy lacks come as float32."""
        dtype = DTYPES.get(proto.data_type)
        if dtype is None:
            raise NotImplementedError(f"a tensor of type {onnx.TensorProto.DataType.Name(proto.data_type)}")
        array = numpy_helper.to_array(proto)
        if dtype == torch.bfloat16:
            array = array.astype("float32")
        return self.cast(torch.from_numpy(array.copy()).to(dtype))

    def cast(self, value):
        return value.to(self.dtype) if self.dtype is not None and value.is_floating_point() else value

    def dtype_of(self, number):
        dtype = DTYPES[number]
        return self.dtype if self.dtype is not None and dtype.is_floating_point else dtype

    def floating(self):
        return self.dtype or torch.float32

    def keep_statistics(self, call, values):
        for name, value in zip(call.operands[3:5], values):
            self.statistics[name] = value.detach()

    def read(self, nodes, opsets, outer):
        steps = []
        for node in nodes:
            attributes = {item.name: self.attribute(item, outer) for item in node.attribute}
            attributes = {name: value for name, value in attributes.items() if value is not None}
            domain = "" if node.domain == "ai.onnx" else node.domain
            function = self.functions.get((node.domain, node.op_type))
            inputs, outputs = list(node.input), list(node.output)
            if function is not None:
                defaults = {item.name: self.attribute(item, {}) for item in function.attribute_proto}
                inside = {item.domain: item.version for item in function.opset_import}
                body = self.read(function.node, {**opsets, **inside}, {**defaults, **attributes})
                steps.append(Step(Body(body, list(function.input), list(function.output)), None, inputs, outputs))
                continue
            known = OPERATORS.get((domain, node.op_type))
            if known is None:
                raise NotImplementedError(f"no operator {domain}:{node.op_type}")
            opset = opsets.get("", opsets.get("ai.onnx", 0))
            call = Call(node.op_type, attributes, opset, outputs, self, inputs)
            steps.append(Step(known, call, inputs, outputs))
        return steps

    def attribute(self, item, outer):
        """A plain value; what refers to an attribute of the function around it is that one's, None where it is not given."""
        if item.ref_attr_name:
            return outer.get(item.ref_attr_name)
        value = onnx.helper.get_attribute_value(item)
        if isinstance(value, onnx.TensorProto):
            return self.tensor(value)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, (onnx.GraphProto, onnx.SparseTensorProto)):
            raise NotImplementedError(f"attribute {item.name}: control flow and sparse tensors")
        if isinstance(value, (int, float)):
            return value
        return [entry.decode() if isinstance(entry, bytes) else entry for entry in value]

    def evaluate(self, values, training=False):
        """All tensors by name; `values` holds the inputs and whatever else takes the place of what the file says, and under
        `mask NAME` what the Dropout that makes NAME keeps."""
        self.training = training
        self.statistics = {}
        self.masks = {name[5:]: value for name, value in values.items() if name.startswith("mask ")}
        known = {**self.constants, **values}
        # Of a step whose result is given, nothing else is ever read.
        execute([step for step in self.steps if not any(name in values for name in step.outputs)], known)
        return known


def execute(steps, known):
    for step in steps:
        operands = [known[name] if name else None for name in step.inputs]
        while operands and operands[-1] is None:
            operands.pop()
        if isinstance(step.function, Body):
            body = step.function
            missing = [None] * (len(body.inputs) - len(operands))
            inside = dict(zip(body.inputs, [*operands, *missing]))
            execute(body.steps, inside)
            results = tuple(inside[name] for name in body.outputs)
        else:
            results = step.function(step.call, *operands)
        if not isinstance(results, tuple):
            results = (results,)
        for name, result in zip(step.outputs, results):
            if name:
                known[name] = result
