"""Trains an adapter with PyTorch and PEFT, for step_test.go to compare with.

    pip install torch==2.15.0 peft==0.21.2 onnx==1.23.2 safetensors==0.8.0
    SPARK_RECORD=python3 go test ./dora -run TestTheCurveIsThatOfPyTorch

The test writes the folder that is the argument: model.onnx, adapter_model.safetensors, adapter_config.json and batches.npz with
arrays NAME.INDEX. It runs the file in PyTorch, a module for each layer that has an adapter, and prints JSON.
"""
import json
import sys
import time

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from peft import PeftModel

STEPS, RATE, DECAY, CLIP = 50, 1e-3, 0.01, 0.05
folder = sys.argv[1]


def module_name(initializer, node):
    """As dora/layers.go names a layer."""
    if initializer.endswith(".weight"):
        return initializer[: -len(".weight")]
    parts = []
    for s in node.split("/")[:-1]:
        if parts and s.startswith(parts[-1] + "."):
            parts[-1] = s
        elif s:
            parts.append(s)
    return ".".join(parts)


class Net(torch.nn.Module):
    """Executes a file node by node."""

    def __init__(self, path):
        super().__init__()
        self.graph = onnx.load(path).graph
        self.constants = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in self.graph.initializer}
        for name, c in self.constants.items():
            if c.is_floating_point():
                self.constants[name] = c.to(torch.get_default_dtype())
        self.layers = {}
        for n in self.graph.node:
            if n.op_type in ("MatMul", "Gemm") and n.input[1] in self.constants:
                self.layers[n.name] = module_name(n.input[1], n.name)
                w = self.constants[n.input[1]]
                if n.op_type == "MatMul" or not attributes(n).get("transB"):
                    w = w.T
                layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
                layer.weight.data = w.contiguous()
                at = self
                *path, leaf = self.layers[n.name].split(".")
                for p in path:
                    if not hasattr(at, p):
                        setattr(at, p, torch.nn.Module())
                    at = getattr(at, p)
                setattr(at, leaf, layer)

    def forward(self, inputs):
        values = {"": None, **self.constants, **inputs}
        for n in self.graph.node:
            a = attributes(n)
            x = [values[i] for i in n.input]
            y = self.run(n, a, x)
            for name, v in zip(n.output, y if isinstance(y, (list, tuple)) else [y]):
                values[name] = v
        return {o.name: values[o.name] for o in self.graph.output}

    def run(self, n, a, x):
        op = n.op_type
        if n.name in self.layers:
            y = self.get_submodule(self.layers[n.name])(x[0])
            return y if op == "MatMul" or len(x) < 3 else y + x[2]
        if op in BINARY:
            return BINARY[op](x[0], x[1])
        if op in UNARY:
            return UNARY[op](x[0])
        if op == "Constant":
            t = torch.from_numpy(np.array(numpy_helper.to_array(a["value"])))
            return t.to(torch.get_default_dtype()) if t.is_floating_point() else t
        if op == "Cast":
            return x[0].to(torch.get_default_dtype()) if a["to"] in (1, 10) else x[0].to({7: torch.int64, 9: torch.bool}[a["to"]])
        if op == "LayerNormalization":
            return torch.nn.functional.layer_norm(x[0], x[1].shape, x[1], x[2], a.get("epsilon", 1e-5))
        if op == "Softmax":
            return torch.softmax(x[0], a.get("axis", -1))
        if op == "Transpose":
            return x[0].permute(*a["perm"])
        if op == "Reshape":
            return x[0].reshape([x[0].shape[i] if d == 0 else d for i, d in enumerate(x[1].tolist())])
        if op == "Squeeze":
            for d in sorted(x[1].tolist(), reverse=True):
                x[0] = x[0].squeeze(d)
            return x[0]
        if op == "Unsqueeze":
            for d in sorted(x[1].tolist()):
                x[0] = x[0].unsqueeze(d)
            return x[0]
        if op == "Split":
            return torch.split(x[0], x[1].tolist() if len(x) > 1 else x[0].shape[a["axis"]] // len(n.output), a.get("axis", 0))
        if op == "Concat":
            return torch.cat(x, a["axis"])
        if op == "ConstantOfShape":
            return torch.full(x[0].tolist(), int(numpy_helper.to_array(a["value"])[0]))
        if op == "Where":
            return torch.where(*x)
        if op == "Expand":
            return x[0].expand(torch.broadcast_shapes(x[0].shape, x[1].tolist()))
        if op == "Gather":
            d = a.get("axis", 0)
            y = torch.index_select(x[0], d, x[1].flatten() % x[0].shape[d])
            return y.reshape(*x[0].shape[:d], *x[1].shape, *x[0].shape[d + 1 :])
        if op == "Slice":
            starts, ends, axes = (v.tolist() for v in x[1:4])
            for s, e, d in zip(starts, ends, axes):
                x[0] = x[0].narrow(d, s % x[0].shape[d], (min(e, x[0].shape[d]) - s) % (x[0].shape[d] + 1))
            return x[0]
        raise NotImplementedError(op)


BINARY = {"Add": torch.add, "Mul": torch.mul, "Div": torch.div, "Sub": torch.sub, "Pow": torch.pow, "MatMul": torch.matmul, "Equal": torch.eq}
UNARY = {"Identity": lambda x: x, "Erf": torch.erf, "Relu": torch.relu}


def attributes(n):
    return {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}


batches = {}
for key, v in np.load(folder + "/batches.npz").items():
    name, index = key.rsplit(".", 1)
    t = torch.from_numpy(v)
    batches.setdefault(int(index), {})[name] = t.to(torch.get_default_dtype()) if t.is_floating_point() else t


def loss_of(model, batch):
    out = model({k: v for k, v in batch.items() if not k.startswith("target:")})
    return sum(((y - batch["target:" + name]) ** 2).mean() for name, y in sorted(out.items()))


model = PeftModel.from_pretrained(Net(folder + "/model.onnx"), folder, is_trainable=True)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=DECAY)
losses, norms, seconds = [], [], []
for step in range(STEPS):
    begin = time.process_time()
    optimizer.zero_grad()
    loss = loss_of(model, batches[step % len(batches)])
    loss.backward()
    norms.append(float(torch.nn.utils.clip_grad_norm_(trained, CLIP)))
    optimizer.step()
    seconds.append(time.process_time() - begin)
    losses.append(float(loss))
merged = model.merge_and_unload()
with torch.no_grad():
    out = merged({k: v for k, v in batches[0].items() if not k.startswith("target:")})
print(json.dumps({
    "torch": torch.__version__, "trained": sum(p.numel() for p in trained), "losses": losses, "norms": norms, "seconds": min(seconds),
    "merged": {k: v.flatten().tolist()[:64] for k, v in out.items()},
}))
