"""Trains the adapter that recover wrote with PyTorch and PEFT: the same initial values, steps, inputs and loss.

    pip install torch==2.15.0 peft==0.21.2 onnx==1.23.2 safetensors==0.8.0

The folder that is the argument holds original.onnx, damaged.onnx, the adapter in PEFT's format, train.npz and judge.npz with
the inputs one behind the other, and plan.json: order of inputs, stages, spreads. Prints relative L2 and variation explained
as JSON. Inner values are called as the nodes that give them.
"""
import json
import math
import os
import pathlib
import sys

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from peft import PeftModel

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "dora" / "testdata"))
from network import attributes, compute, tensor

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


class Net(torch.nn.Module):
    """Executes a file node by node, with a module for every layer that has weights."""

    def __init__(self, path):
        super().__init__()
        self.graph = onnx.load(path).graph
        self.constants = {t.name: tensor(t) for t in self.graph.initializer}
        self.layers = {}
        for n in self.graph.node:
            if n.op_type not in ("Conv", "Gemm"):
                continue
            a, w = attributes(n), self.constants[n.input[1]]
            if n.op_type == "Conv":
                layer = torch.nn.Conv2d(w.shape[1] * a.get("group", 1), w.shape[0], tuple(w.shape[2:]), stride=tuple(a["strides"]),
                                        dilation=tuple(a.get("dilations", (1, 1))), groups=a.get("group", 1), bias=False)
            else:
                layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
            layer.weight.data = w
            at = self
            *path, leaf = n.input[1].removesuffix(".weight").split(".")
            for p in path:
                if not hasattr(at, p):
                    setattr(at, p, torch.nn.Module())
                at = getattr(at, p)
            setattr(at, leaf, layer)
            self.layers[n.input[1]] = n.input[1].removesuffix(".weight")

    def forward(self, x, inner=(), forced=None):
        """The output, and what nodes of some names give. Where forced has a value, what follows reads that one."""
        values, given = {**self.constants, self.graph.input[0].name: x}, {}
        for n in self.graph.node:
            a, v = attributes(n), [values[i] for i in n.input]
            if n.op_type == "Conv":
                top, left, bottom, right = a.get("pads", [0, 0, 0, 0])
                y = self.get_submodule(self.layers[n.input[1]])(F.pad(v[0], (left, right, top, bottom)))
                y = y if len(v) < 3 else y + v[2].reshape(1, -1, 1, 1)
            elif n.op_type == "Gemm":
                y = self.get_submodule(self.layers[n.input[1]])(v[0]) + v[2]
            else:
                y = compute(n, a, v)
            if n.name in inner:
                given[n.name] = y
                if forced:
                    y = forced[n.name]
            values[n.output[0]] = y
        return values[self.graph.output[0].name], given


folder = sys.argv[1]
plan = json.load(open(folder + "/plan.json"))
train, judge = (torch.from_numpy(np.load(f"{folder}/{name}.npz")["x"]) for name in ("train", "judge"))
teacher = Net(folder + "/original.onnx")
net = Net(folder + "/damaged.onnx")
for p in net.parameters():
    p.requires_grad_(False)
model = PeftModel.from_pretrained(net, folder, is_trainable=True)
trained = [p for p in model.parameters() if p.requires_grad]
inner = {m["Name"].split("~")[0]: m["Spread"] for m in plan["inner"]}
spread = plan["outputs"][0]["Spread"]
at = 0
for stage in plan["stages"]:
    optimizer = torch.optim.AdamW(trained, lr=0, weight_decay=0)
    for k in range(stage["Steps"]):
        x = train[plan["order"][at]][None]
        at += 1
        with torch.no_grad():
            want, values = teacher(x, inner)
        y, got = model(x, inner, values if stage["Forced"] else None)
        loss = ((y - want) ** 2).mean() / spread
        loss = loss + stage["Inner"] * sum(((got[n] - values[n]) ** 2).mean() / s for n, s in inner.items()) / len(inner)
        optimizer.param_groups[0]["lr"] = stage["Rate"] * 0.5 * (1 + math.cos(math.pi * k / stage["Steps"]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if k % 50 == 49:
            print(k + 1, loss.item(), file=sys.stderr, flush=True)
with torch.no_grad():
    want = torch.cat([teacher(x[None])[0] for x in judge]).double()
    got = torch.cat([model(x[None])[0] for x in judge]).double()
print(json.dumps({
    "Relative": float(((got - want).norm(dim=1) / want.norm(dim=1)).mean()),
    "Explained": float(1 - ((got - want) ** 2).sum() / ((want - want.mean(0)) ** 2).sum()),
    "Numbers": sum(p.numel() for p in trained),
}))
