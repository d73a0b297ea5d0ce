"""Records what PEFT computes with adapters of linear layers and convolutions, for peft_test.go to compare with.

    pip install torch==2.15.0 peft==0.21.2 onnx==1.23.2
    python3 dora/testdata/layers.py dora/testdata/layers

Writes a folder KIND for DoRA and LoRA: model.onnx, the adapter as PEFT saves it, and golden.json: inputs, targets, outputs, the mean
squared difference from the targets, its gradients by all trained numbers, and the weights after merging.
"""
import json
import pathlib
import sys
from collections import OrderedDict

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from peft import LoraConfig, get_peft_model

CONVS = OrderedDict(
    conv1=dict(in_channels=3, out_channels=8, kernel_size=3, stride=2, padding=1, bias=True),
    conv2=dict(in_channels=8, out_channels=6, kernel_size=(3, 2), bias=False),
    conv3=dict(in_channels=6, out_channels=10, kernel_size=1, bias=True),
)
LINEARS = OrderedDict(fc1=dict(in_features=120, out_features=12, bias=True), fc2=dict(in_features=12, out_features=7, bias=False))
INPUT = (2, 3, 10, 10)  # fc1 reads 10 channels of 3 x 4 pixels; PEFT 0.21 fails on dilations


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, c in CONVS.items():
            setattr(self, name, torch.nn.Conv2d(**c))
        for name, c in LINEARS.items():
            setattr(self, name, torch.nn.Linear(**c))

    def forward(self, x):
        for name in CONVS:
            x = torch.tanh(getattr(self, name)(x))
        x = x.flatten(1)
        return self.fc2(torch.tanh(self.fc1(x)))


def listed(t):
    return [float(v) for v in t.detach().to(torch.float32).numpy().ravel()]


def file_of(net):
    weights, nodes, x = [], [], "x"

    def constant(name, t):
        weights.append(numpy_helper.from_array(np.ascontiguousarray(t.detach().numpy()), name))
        return name

    for name in CONVS:
        c = getattr(net, name)
        inputs = [x, constant(f"{name}.weight", c.weight)] + ([constant(f"{name}.bias", c.bias)] if c.bias is not None else [])
        nodes.append(helper.make_node("Conv", inputs, [name], f"/{name}/Conv", dilations=c.dilation, kernel_shape=c.kernel_size,
                                      pads=[*c.padding, *c.padding], strides=c.stride))
        nodes.append(helper.make_node("Tanh", [name], [f"{name}.tanh"], f"/{name}/Tanh"))
        x = f"{name}.tanh"
    nodes.append(helper.make_node("Flatten", [x], ["flat"], "/Flatten", axis=1))
    nodes.append(helper.make_node("Gemm", ["flat", constant("fc1.weight", net.fc1.weight), constant("fc1.bias", net.fc1.bias)], ["fc1"], "/fc1/Gemm", transB=1))
    nodes.append(helper.make_node("Tanh", ["fc1"], ["fc1.tanh"], "/fc1/Tanh"))
    nodes.append(helper.make_node("MatMul", ["fc1.tanh", constant("onnx::MatMul_1", net.fc2.weight.T)], ["y"], "/fc2/MatMul"))
    io = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "layers", [io("x", INPUT)], [io("y", (INPUT[0], 7))], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


out = pathlib.Path(sys.argv[1])
for kind in ("dora", "lora"):
    torch.manual_seed(5)
    net = Net()
    folder = out / kind
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(file_of(net), folder / "model.onnx")
    config = LoraConfig(r=2, lora_alpha=3, use_dora=kind == "dora", target_modules=[*CONVS, *LINEARS])
    model = get_peft_model(net, config)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            p.data = 0.3 * torch.randn_like(p)
        if "magnitude" in name:
            p.data *= 1 + 0.3 * torch.rand_like(p)
    x, target = torch.randn(INPUT), torch.randn(INPUT[0], 7)
    y = model(x)
    loss = ((y - target) ** 2).mean()
    loss.backward()
    golden = {"x": listed(x), "target": listed(target), "y": listed(y), "loss": float(loss.detach()), "gradients": {}, "merged": {}}
    for name, p in model.named_parameters():
        if p.requires_grad:
            name = name.replace("base_model.model.", "").replace(".default", "").replace("magnitude_vector.weight", "magnitude_vector")
            golden["gradients"][name] = listed(p.grad)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    merged = model.merge_and_unload()
    for name in [*CONVS, *LINEARS]:
        golden["merged"][name] = listed(getattr(merged, name).weight)
    (folder / "golden.json").write_text(json.dumps(golden).replace(', "', ',\n"') + "\n")
