"""What scripts that run an ONNX file in PyTorch share: its nodes and tensors, in f32, and numbered batches."""
import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper


def attributes(n):
    return {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}


def tensor(t):
    t = torch.from_numpy(np.array(numpy_helper.to_array(t)))
    return t.float() if t.is_floating_point() else t


def indexed(path):
    """The arrays NAME.INDEX of a file, by index."""
    found = {}
    for key, v in np.load(path).items():
        name, index = key.rsplit(".", 1)
        found.setdefault(int(index), {})[name] = torch.from_numpy(v)
    return [found[i] for i in sorted(found)]


def compute(n, a, x):
    """The outputs of a node without weights of its own, of attributes a and operands x."""
    op = n.op_type
    if op in SAME:
        return SAME[op](*x)
    if op == "Constant":
        return tensor(a["value"])
    if op == "Cast":
        return x[0].to(TYPES[a["to"]])
    if op == "BatchNormalization":
        return F.batch_norm(x[0], x[3], x[4], x[1], x[2], False, 0.0, a.get("epsilon", 1e-5))
    if op == "LayerNormalization":
        return F.layer_norm(x[0], x[1].shape, x[1], x[2], a.get("epsilon", 1e-5))
    if op == "Softmax":
        return torch.softmax(x[0], a.get("axis", -1))
    if op == "Flatten":
        return x[0].flatten(1)
    if op == "Concat":
        return torch.cat(x, a["axis"])
    if op == "ReduceMean":
        return x[0].mean(a["axes"], keepdim=True)
    if op == "GlobalAveragePool":
        return x[0].mean((2, 3), keepdim=True)
    if op == "Transpose":
        return x[0].permute(*a["perm"])
    if op == "Reshape":
        return x[0].reshape([x[0].shape[i] if d == 0 else d for i, d in enumerate(x[1].tolist())])
    if op in ("Squeeze", "Unsqueeze"):
        y = x[0]
        for d in sorted(x[1].tolist(), reverse=op == "Squeeze"):
            y = y.squeeze(d) if op == "Squeeze" else y.unsqueeze(d)
        return y
    if op == "Split":
        return torch.split(x[0], x[1].tolist() if len(x) > 1 else x[0].shape[a["axis"]] // len(n.output), a.get("axis", 0))
    if op == "ConstantOfShape":
        return torch.full(x[0].tolist(), int(numpy_helper.to_array(a["value"])[0]))
    if op == "Expand":
        return x[0].expand(torch.broadcast_shapes(x[0].shape, x[1].tolist()))
    if op == "Gather":
        d = a.get("axis", 0)
        y = torch.index_select(x[0], d, x[1].flatten() % x[0].shape[d])
        return y.reshape(*x[0].shape[:d], *x[1].shape, *x[0].shape[d + 1 :])
    if op == "Slice":
        starts, ends, *axes = (v.tolist() for v in x[1:4])
        y = x[0]
        for s, e, d in zip(starts, ends, *(axes or [range(len(starts))])):
            y = y[(slice(None),) * d + (slice(s, e),)]
        return y
    raise NotImplementedError(op)


TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float32}
SAME = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Pow": torch.pow, "MatMul": torch.matmul, "Equal": torch.eq,
    "Where": torch.where, "Identity": lambda x: x, "Erf": torch.erf, "Relu": torch.relu, "Sigmoid": torch.sigmoid, "Sqrt": torch.sqrt,
}
