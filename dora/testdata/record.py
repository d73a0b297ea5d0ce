"""Trains an adapter with PyTorch and PEFT, for step_test.go to compare with.

    pip install torch==2.15.0 peft==0.21.2 onnx==1.23.2 safetensors==0.8.0
    SPARK_RECORD=python3 go test ./dora -run TestTheCurveIsThatOfPyTorch

The test writes the folder that is the argument: model.onnx, adapter_model.safetensors, adapter_config.json and batches.npz with
arrays NAME.INDEX. It runs the file in PyTorch, a module for each layer that has an adapter, and prints JSON.
"""
import json
import sys
import time

import onnx
import torch
from peft import PeftModel

from network import attributes, compute, indexed, tensor

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
        self.constants = {t.name: tensor(t) for t in self.graph.initializer}
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
            if n.name in self.layers:
                y = self.get_submodule(self.layers[n.name])(x[0])
                y = y if n.op_type == "MatMul" or len(x) < 3 else y + x[2]
            else:
                y = compute(n, a, x)
            for name, v in zip(n.output, y if isinstance(y, (list, tuple)) else [y]):
                values[name] = v
        return {o.name: values[o.name] for o in self.graph.output}


batches = [{k: v.float() if v.is_floating_point() else v for k, v in b.items()} for b in indexed(folder + "/batches.npz")]


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
